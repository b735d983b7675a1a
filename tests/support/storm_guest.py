"""A guest of the storm: one tab of somebody, on a plain socket, with manners as bad as those of people and of lines.

It leaves in the middle of everything, with and without a word, stops reading, goes away without closing, says the same
twice, cancels what others began, and comes back with the number of the last event it took. It knows the protocol from
its page alone. What it sent, was answered and saw goes into a log for the judges.
"""

import enum
import itertools
import json
import random
import socket as socketlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

Line = dict[str, Any]
OPEN_S = 20.0
SEND_S = 30.0
DOINGS = ("", "look_up", "look_up, pay_keyed", "scout", "scout, pay_keyed")
"""What messages ask for; of these, a conversation that is not calm asks for a sub-agent alone."""
PATIENCE = 3
"""Messages that a guest leaves unanswered before it says more."""
LATER = frozenset({"busy", "unavailable", "too_many_frames"})
"""Refusals after which the same message may be sent again."""


class Leave(enum.Enum):
    """How a guest goes."""

    CLEAN = enum.auto()
    ABORT = enum.auto()
    HALF_OPEN = enum.auto()
    LOST = enum.auto()
    """It did not: the connection ended."""


@dataclass(frozen=True, kw_only=True)
class Manners:
    """How guests behave."""

    pause_s: float
    """Between two doings, on average."""
    slow_s: float = 4.0
    """The longest that one does not read."""
    back_s: float = 0.5
    """The longest between two connections."""
    words: int = 8_000
    """More of them in one message out of eight, at most, to fill what waits to be sent."""
    doings: dict[str, int] = field(
        default_factory=lambda: {
            "say": 44,
            "again": 12,
            "cancel": 6,
            "look_back": 3,
            "slow": 5,
            "leave": 6,
            "abort": 10,
            "vanish": 4,
        }
    )
    """By weight."""


@dataclass(kw_only=True)
class Room:
    """A conversation, and what all guests together know of it."""

    path: str
    is_calm: bool
    """Nobody cancels or interrupts here, so that every turn has to finish."""
    note: Callable[[Line], None]
    ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    @property
    def owner(self) -> str:
        return self.path.split("/")[1]

    @property
    def conversation(self) -> str:
        return self.path.split("/")[2]


@dataclass(kw_only=True)
class Message:
    """One that somebody wants to say."""

    room: Room
    id: str
    text: str
    when_busy: str
    sent_over: int = 0
    """The connection over which it was sent last."""
    not_before_s: float = 0.0


@dataclass(kw_only=True)
class Person:
    """Has several tabs."""

    name: str
    token: str
    accepted: deque[Message] = field(default_factory=lambda: deque(maxlen=8))
    """To say them again, in whichever tab."""


class Scene(Protocol):
    """Where a guest is."""

    url: str
    is_storming: bool
    is_over: bool
    count: Counter[str]
    """What has happened."""

    async def pause(self, seconds: float) -> None:
        """Shorter when the weather changes."""

    def park(self, socket: ClientConnection) -> None:
        """Leave a connection open that nobody looks after."""


class Guest:
    """``live`` until the scene is over."""

    def __init__(
        self, scene: Scene, person: Person, rooms: list[Room], *, name: str, manners: Manners, chance: random.Random
    ) -> None:
        self.name = name
        self.rooms = {room.conversation: room for room in rooms}
        self.pending: dict[tuple[str, str], Message] = {}
        """Not answered yet."""
        self.seen: dict[str, int] = {}
        """By conversation, the number of the last event."""
        self._scene = scene
        self._person = person
        self._manners = manners
        self._chance = chance
        self._connections = 0
        self._said: dict[tuple[str, str], str] = {}
        """By conversation and call, what its deltas came to over this connection."""
        self._may_read = anyio.Event()

    async def live(self) -> None:
        """Come and go."""
        back_s = self._manners.back_s
        while not self._scene.is_over:
            try:
                await self._visit()
                back_s = self._manners.back_s
            except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed) as exc:
                self._scene.count[f"kept out by {type(exc).__name__}"] += 1
                back_s = min(2 * back_s, 8 * self._manners.back_s)
            await self._scene.pause(self._chance.uniform(0.01, back_s))

    async def _visit(self) -> None:
        socket = await connect(
            self._scene.url,
            subprotocols=[Subprotocol("torpor.v1")],
            compression=None,
            proxy=None,
            open_timeout=OPEN_S,
            close_timeout=1,
            ping_interval=None,
            max_size=None,
            max_queue=4,
        )
        line: socketlib.socket = socket.transport.get_extra_info("socket")
        line.setsockopt(socketlib.SOL_SOCKET, socketlib.SO_RCVBUF, 8192)  # so that it matters who does not read
        leave = Leave.ABORT
        try:
            leave = await self._stay(socket)
        finally:
            self._scene.count[f"went {leave.name}"] += 1
            if leave is Leave.HALF_OPEN:
                socket.transport.pause_reading()
                self._scene.park(socket)
            elif leave is Leave.ABORT:
                socket.transport.abort()
        if leave is Leave.CLEAN:
            await socket.close()
        elif leave is Leave.LOST:
            self._closed(socket)

    def _closed(self, socket: ClientConnection) -> None:
        self._scene.count[f"closed {socket.close_code}"] += 1
        for room in self.rooms.values():
            self._note(room, what="closed", code=socket.close_code)

    async def _stay(self, socket: ClientConnection) -> Leave:
        self._connections += 1
        self._said.clear()
        self._may_read.set()
        leave = Leave.LOST
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                try:
                    while True:
                        await self._may_read.wait()
                        self._hear(json.loads(await socket.recv()))
                except ConnectionClosed:
                    tasks.cancel_scope.cancel()

            tasks.start_soon(listen)
            try:
                await self._hello(socket)
                leave = await self._act(socket)
            except ConnectionClosed:
                pass
            except TimeoutError:
                leave = Leave.ABORT
                self._scene.count["nobody reads"] += 1
            tasks.cancel_scope.cancel()
        return leave

    async def _hello(self, socket: ClientConnection) -> None:
        watched: list[Line] = [self._subscription(room) for room in self.rooms.values()]
        hello = {"frame": "hello", "token": self._person.token, "subscriptions": watched}
        if self._chance.random() < 0.2:  # any order of first frames is legal
            hello["subscriptions"] = watched[1:]
            await self._send(socket, frame="subscribe", subscription=watched[0])
        await self._send(socket, **hello)

    def _subscription(self, room: Room) -> Line:
        seen = self.seen.get(room.conversation)
        if seen is None or (self._scene.is_storming and self._chance.random() < 0.05):
            return {"conversation": room.conversation}
        return {"conversation": room.conversation, "cursor": {"epoch": 1, "event": seen}}

    async def _act(self, socket: ClientConnection) -> Leave:
        while not self._scene.is_over:
            if self._scene.is_storming:
                (doing,) = self._chance.choices(*zip(*self._manners.doings.items(), strict=True))
                if leave := await self._do(doing, socket):
                    return leave
            for message in list(self.pending.values()):
                await self._say(socket, message)
            pause_s = self._manners.pause_s if self._scene.is_storming else 0.5
            await self._scene.pause(min(self._chance.expovariate(1 / pause_s), 4 * pause_s))
        return Leave.CLEAN

    async def _do(self, doing: str, socket: ClientConnection) -> Leave | None:
        room = self._chance.choice(list(self.rooms.values()))
        match doing:
            case "say":
                self._think_of(room)
            case "again" if self._person.accepted:
                message = self._chance.choice(self._person.accepted)
                if message.room.conversation in self.rooms:
                    await self._send_message(socket, message)
            case "cancel" if not room.is_calm:
                self._note(room, what="cancelled")
                await self._send(socket, frame="cancel", conversation=room.conversation)
            case "look_back":
                await self._send(socket, frame="history", conversation=room.conversation, limit=5)
            case "slow":
                self._may_read = anyio.Event()
                await self._scene.pause(self._chance.uniform(0.2, 1) * self._manners.slow_s)
                self._may_read.set()
            case "leave":
                return Leave.CLEAN
            case "abort":
                return Leave.ABORT
            case "vanish":
                return Leave.HALF_OPEN
            case _:
                pass
        return None

    def _think_of(self, room: Room) -> None:
        """Have a new message to say, unless enough are waiting for their answer: a conversation takes one at a time."""
        if len(self.pending) >= PATIENCE:
            return
        name = f"m{next(room.ids)}"
        wish = f"[{name}]"
        when_busy = "queue"
        doing = self._chance.choices(DOINGS, [8, 1, 1, 1, 1])[0]
        if doing and (room.is_calm or doing == "scout"):
            wish = f"[{name}: {doing}]"
        if room.is_calm:
            when_busy = self._chance.choices(["queue", "steer", "reject"], [8, 1, 1])[0]
        else:
            when_busy = self._chance.choices(["queue", "steer", "interrupt", "reject"], [6, 2, 2, 1])[0]
        words = "told " * (self._chance.randrange(self._manners.words + 1) if self._chance.random() < 0.125 else 1)
        text = f"{self.name} says: \N{WAVING HAND SIGN} {words}{wish}"
        ends = ["finished"] if room.is_calm else ["finished", "cancelled"]
        self._note(room, what="sent", id=name, text=text, ends=ends, when_busy=when_busy)
        self.pending[room.conversation, name] = Message(room=room, id=name, text=text, when_busy=when_busy)

    async def _say(self, socket: ClientConnection, message: Message) -> None:
        if message.sent_over == self._connections or message.not_before_s > anyio.current_time():
            return
        if message.when_busy == "reject" and message.sent_over:
            # Over another connection it might be refused while the first copy is accepted: what became of it is
            # for the journal to say.
            del self.pending[message.room.conversation, message.id]
            return
        message.sent_over = self._connections
        await self._send_message(socket, message)

    async def _send_message(self, socket: ClientConnection, message: Message) -> None:
        await self._send(
            socket,
            frame="send",
            ref=message.id,
            conversation=message.room.conversation,
            message_id=message.id,
            text=message.text,
            when_busy=message.when_busy,
        )

    async def _send(self, socket: ClientConnection, **frame: Any) -> None:
        with anyio.fail_after(SEND_S):
            await socket.send(json.dumps(frame))

    def _hear(self, frame: Line) -> None:
        match frame["frame"]:
            case "event":
                self._take(self.rooms[frame["conversation"]], frame)
            case "delta":
                self._listen_in(frame)
            case "accepted":
                self._accepted(self.rooms[frame["conversation"]], frame)
            case "resumed" | "reload":
                self._begin(self.rooms[frame["conversation"]], frame)
            case "error":
                self._refused(frame)
            case _:
                pass

    def _begin(self, room: Room, frame: Line) -> None:
        head = frame.get("head", 0)
        if frame["frame"] == "reload":
            self._note(room, what="reloaded", head=head, events=frame.get("events", []), epoch=frame.get("epoch", 1))
            self.seen[room.conversation] = head
        else:
            self._note(room, what="resumed", head=head)

    def _take(self, room: Room, frame: Line) -> None:
        event = frame["event"]
        self._note(room, what="event", event=event, epoch=frame.get("epoch", 1))
        self.seen[room.conversation] = event["event"]
        self._scene.count["events"] += 1
        if event["type"] == "reply.finished":
            said = self._said.pop((room.conversation, event["call"]), "")
            if said:
                self._note(room, what="heard", call=event["call"], text=said)

    def _listen_in(self, frame: Line) -> None:
        call = frame["conversation"], frame["call"]
        said = self._said.setdefault(call, "")
        if frame.get("offset", 0) == len(said):  # else the committed reply has it all
            self._said[call] = said + frame["text"]

    def _accepted(self, room: Room, frame: Line) -> None:
        self._note(room, what="accepted", id=frame["message_id"], event=frame["event"])
        message = self.pending.pop((room.conversation, frame["message_id"]), None)
        if message is not None:
            self._scene.count["accepted"] += 1
            self._person.accepted.append(message)
        else:
            self._scene.count["accepted again"] += 1

    def _refused(self, frame: Line) -> None:
        code = frame["code"]
        self._scene.count[f"told {code}"] += 1
        message = self.pending.get((frame.get("conversation", ""), frame.get("message_id", "")))
        for room in [message.room] if message else self.rooms.values():
            self._note(room, what="refused", code=code, id=message.id if message else "")
        if message is not None and code in LATER:
            message.sent_over = 0
            message.not_before_s = anyio.current_time() + frame.get("retry_after_s", 0.0)
        elif message is not None:
            del self.pending[message.room.conversation, message.id]

    def _note(self, room: Room, **line: Any) -> None:
        room.note(line | {"client": self.name, "path": room.path})
