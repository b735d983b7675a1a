// What a page in a browser would do: the global WebSocket, JSON, and what docs/protocol.md says; nothing else.
//
//     node page.mjs URL TOKEN CONVERSATION TEXT
//
// It sends one message, drops the connection in the middle of the reply, comes back with its cursor, sends the same
// message again, as a page does that cannot know whether it arrived, and prints what it has seen as one JSON object.

const [url, token, conversation, text] = process.argv.slice(2)
const DELTAS_BEFORE_THE_DROP = 5
const MESSAGE = { frame: 'send', ref: 'r1', conversation, message_id: 'from_the_page', text }

const events = []
const receipts = []
const answers = []
let cursor = null
let call = ''
let shown = [] // code points of the reply being written
let shownAtTheDrop = ''
let deltas = 0
let connections = 0

function connect() {
  const socket = new WebSocket(url, 'torpor.v1')
  connections += 1
  socket.onopen = () => {
    const subscription = cursor ? { conversation, cursor } : { conversation }
    say(socket, { frame: 'hello', token, subscriptions: [subscription] })
    say(socket, MESSAGE)
  }
  socket.onmessage = ({ data }) => take(socket, JSON.parse(data))
  socket.onclose = ({ code }) => {
    if (connections > 1) fail(`closed with ${code}`)
    else connect()
  }
}

function say(socket, frame) {
  socket.send(JSON.stringify(frame))
}

function take(socket, frame) {
  if (socket.readyState !== WebSocket.OPEN) return
  switch (frame.frame) {
    case 'reload':
    case 'resumed':
      answers.push(frame.frame)
      for (const event of frame.events ?? []) keep(event, frame.epoch)
      break
    case 'accepted':
      receipts.push(frame)
      break
    case 'delta':
      show(frame)
      deltas += 1
      if (connections === 1 && deltas === DELTAS_BEFORE_THE_DROP) {
        shownAtTheDrop = shown.join('')
        socket.close()
      }
      break
    case 'event':
      keep(frame.event, frame.epoch)
      if (frame.event.type === 'turn.finished') finish(socket)
      break
    case 'error':
      fail(JSON.stringify(frame))
  }
}

function keep(event, epoch) {
  if (cursor && event.event <= cursor.event) return fail(`event ${event.event} came twice`)
  events.push(event)
  cursor = { epoch, event: event.event }
}

function show(frame) {
  const offset = frame.offset ?? 0
  if (frame.call !== call) {
    call = frame.call
    shown = []
  }
  if (offset > shown.length) return // a gap: the page waits for reply.finished
  shown = [...shown.slice(0, offset), ...frame.text]
}

function finish(socket) {
  socket.onclose = null
  socket.close()
  console.log(JSON.stringify({ events, receipts, answers, connections, shown: shown.join(''), shownAtTheDrop }))
}

function fail(why) {
  console.error(why)
  process.exit(1)
}

connect()
