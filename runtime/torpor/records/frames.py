"""The wire: what clients and the gateway say to each other under ``torpor.v1``.

JSON text frames with the tag in ``frame``. A client ignores fields and event types that it does not know; the gateway
answers a frame it does not know with ``error``. ``ref`` is the client's own name for a request and comes back with
whatever answers it.
"""

from typing import Any, TypeAlias

import msgspec

from torpor.records.bounds import Amount, Count, LookBack, Place, RowCount
from torpor.records.context import WorkingContext
from torpor.records.events import TOOL_PROGRESS, AnyEvent
from torpor.records.ids import NO_MESSAGE, CallId, MessageId
from torpor.records.terms import Offer, WhenBusy

SUBPROTOCOL = "torpor.v1"


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """The last event a client has seen; of another epoch, or ahead of the journal, it is answered by ``reload``."""

    epoch: int = 1
    event: int


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """What to watch; without a cursor it starts with ``reload``."""

    conversation: str
    cursor: Cursor | None = None


class ClientFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="frame"):
    """Root of what a client sends. Any order of first frames is legal: those before ``hello`` are held, bounded."""

    ref: str = ""


class Hello(ClientFrame, frozen=True, tag="hello"):
    """Who I am (unless a header said so) and what I watch."""

    token: str = ""
    subscriptions: tuple[Subscription, ...] = ()


class Subscribe(ClientFrame, frozen=True, tag="subscribe"):
    """Watch one more; again for the same conversation starts over from the new cursor."""

    subscription: Subscription


class Unsubscribe(ClientFrame, frozen=True, tag="unsubscribe"):
    conversation: str


class Send(ClientFrame, frozen=True, tag="send"):
    """A message; creates the conversation when it does not exist yet. Answered by ``accepted`` or ``error``."""

    conversation: str
    message_id: MessageId
    text: str
    when_busy: WhenBusy = WhenBusy.QUEUE
    agent: str = ""
    resume: Offer | None = None
    """Takes up an offer of the turn that failed; ``text`` may be empty then."""
    lookback: LookBack = 0
    """Exchanges from before what the model still sees that are quoted to it, in the turn of this message alone."""
    attachments: tuple[str, ...] = ()
    """Each as ``upload.finish`` answered it; ``text`` may be empty then."""


class Create(ClientFrame, frozen=True, tag="create"):
    """Begin a conversation of this id without a message. Answered by ``done`` once it is durable; again for the same id
    and agent changes nothing."""

    conversation: str
    agent: str = ""
    title: str = ""


class Rename(ClientFrame, frozen=True, tag="rename"):
    """Give it another title, or none. Answered by ``done`` once it is durable."""

    conversation: str
    title: str


class Archive(ClientFrame, frozen=True, tag="archive"):
    """Have lists leave it out. Answered by ``done`` once it is durable; a message brings it back."""

    conversation: str


class Unarchive(ClientFrame, frozen=True, tag="unarchive"):
    """Have lists show it again. Answered by ``done`` once it is durable."""

    conversation: str


class Retract(ClientFrame, frozen=True, tag="retract"):
    """Take the last message back, or one that waits. Answered by ``done`` once it is durable."""

    conversation: str
    message_id: MessageId


class Fork(ClientFrame, frozen=True, tag="fork"):
    """Begin another conversation of the same owner, ``into``, with everything up to a message. Answered by ``done``
    once it is there; again for the same conversation and message changes nothing."""

    conversation: str
    into: str
    """An id that is not used."""
    before: MessageId = NO_MESSAGE
    """Empty for the last one."""
    title: str = ""
    """Empty for the one that it has there."""


class Delete(ClientFrame, frozen=True, tag="delete"):
    """Take it away for good, with everything that is stored of it. Answered by ``done`` once nothing is left."""

    conversation: str


class UpdateContext(ClientFrame, frozen=True, tag="context.update"):
    """What the user works on now, in place of what was told before. Answered by ``done`` once it is durable; creates
    the conversation when it does not exist yet."""

    conversation: str
    context: WorkingContext
    agent: str = ""


class Refresh(ClientFrame, frozen=True, tag="refresh"):
    """Make the live context anew. Answered by ``done``, whose ``outcome`` is a ``commands.Refreshed``."""

    conversation: str


class Cancel(ClientFrame, frozen=True, tag="cancel"):
    """End the running turn. Answered by ``done`` once its end is durable."""

    conversation: str


class Ack(ClientFrame, frozen=True, tag="ack"):
    """I have everything up to ``event``; not answered."""

    conversation: str
    event: Amount


class ReadHistory(ClientFrame, frozen=True, tag="history"):
    """The events before a number, for who scrolls back. Answered by ``result``, oldest first."""

    conversation: str
    before: Amount = 0
    """0 for the latest ones."""
    limit: RowCount = 100


class ReadBundle(ClientFrame, frozen=True, tag="bundle"):
    """What a sub-agent of the conversation left, for who shows it. Answered by ``result``, one row: ``bundle``, and
    ``content``, which is JSON."""

    conversation: str
    bundle: str
    """As the event ``research.finished`` or ``subagent.finished`` names it."""


class BeginUpload(ClientFrame, frozen=True, tag="upload.begin"):
    """Send a file, or go on sending one. Answered by ``result``, one row: ``received_bytes``, from where it goes on."""

    upload: str
    """An id of the client's own; the same one goes on."""
    name: str
    size_bytes: Place
    sha256: str
    """Of the whole file, hex."""


class UploadPiece(ClientFrame, frozen=True, tag="upload.piece"):
    """The bytes from ``offset`` on; best as a binary message. One at a time: answered as ``upload.begin``."""

    upload: str
    offset: Place
    data: bytes = b""
    """In a text message, base64."""


class FinishUpload(ClientFrame, frozen=True, tag="upload.finish"):
    """All of it was sent. Answered by ``result``, one row, whose ``attachment`` a ``send`` names."""

    upload: str


class DropUpload(ClientFrame, frozen=True, tag="upload.drop"):
    """Forget what was sent of it. Answered by ``done``."""

    upload: str


class Fetch(ClientFrame, frozen=True, tag="fetch"):
    """A part of an attachment that a message of the conversation has. Answered by ``piece``."""

    conversation: str
    blob: str
    """As ``message.received`` names it."""
    offset: Place = 0
    size_bytes: Count = 262_144


class Link(ClientFrame, frozen=True, tag="link"):
    """An address from which anybody may get the attachment for a short while. Answered by ``result``, one row."""

    conversation: str
    blob: str


class ListConversations(ClientFrame, frozen=True, tag="list"):
    """One's own conversations; with the operator scope those of everybody. Answered by ``result``."""

    limit: RowCount = 200
    after: str = ""
    """Path ``tenant/owner/conversation`` of the last row seen."""
    archived: bool = False
    """Whether archived ones are wanted too."""


class HibernateConversation(ClientFrame, frozen=True, tag="hibernate"):
    """Operator. Answered by ``done`` or ``error{not_now}``."""

    path: str
    deadline_s: float = 0.0


class ThawConversation(ClientFrame, frozen=True, tag="thaw"):
    """Operator. Answered by ``done``."""

    path: str


class QuarantineConversation(ClientFrame, frozen=True, tag="quarantine"):
    """Operator. End its actor, a running turn with it, and let none start. Answered by ``done``, once it is durable."""

    path: str
    reason: str
    """In a few words; clients read it."""


class ReleaseConversation(ClientFrame, frozen=True, tag="release"):
    """Operator. Take a quarantine back, whoever caused it; a turn that is due goes on. Answered by ``done``."""

    path: str


class ForgetOwner(ClientFrame, frozen=True, tag="forget"):
    """Operator. Delete conversations of an owner and, with the last one, whatever else is kept for them. Answered by
    ``result``, one row, once what it counts is gone; to be sent again until it says that nothing is left."""

    owner: str
    """``[tenant/]owner``."""
    limit: RowCount = 10
    """Conversations at once."""
    dry_run: bool = False
    """Only count what there is."""


class InspectConversation(ClientFrame, frozen=True, tag="inspect"):
    """Operator. The journal's records after ``seq``. Answered by ``result``."""

    path: str
    seq: Amount = 0
    limit: RowCount = 500


class ListJobs(ClientFrame, frozen=True, tag="jobs"):
    """Operator. Background work that is not done. Answered by ``result``."""

    state: str = ""
    """``waiting``, ``running`` or ``dead``; empty for all."""
    limit: RowCount = 200
    after: str = ""
    """Path ``tenant/owner/conversation/job`` of the last row seen."""


class CountJobs(ClientFrame, frozen=True, tag="jobs.count"):
    """Operator. How many jobs there are, in one row: ``waiting``, ``due`` of these, ``running``, ``dead``, and since
    when the oldest is due. Answered by ``result``."""


class RetryJob(ClientFrame, frozen=True, tag="jobs.retry"):
    """Operator. Have a job run now, with all its attempts before it. Answered by ``done``."""

    path: str


class DropJob(ClientFrame, frozen=True, tag="jobs.drop"):
    """Operator. Remove a job, undone. Answered by ``done``."""

    path: str


class ReadNumbers(ClientFrame, frozen=True, tag="statistics"):
    """Operator. The numbers of the server's parts, a row for each with its name in ``room``. Answered by ``result``."""


class ListTurns(ClientFrame, frozen=True, tag="turns"):
    """Operator. The turns that run now, the oldest first. Answered by ``result``."""

    limit: RowCount = 200


class ListMcp(ClientFrame, frozen=True, tag="mcp"):
    """Operator. How its connections to MCP servers stand, and of servers that nobody needed yet that there is none.
    Answered by ``result``."""


class DrainServer(ClientFrame, frozen=True, tag="drain"):
    """Operator. Begin no more turns, let running ones come to the end of a step, and end the server. Answered at once
    by ``result``, one row that says what is waited for."""

    deadline_s: float = -1.0
    """For the turns that run; below 0 for the configured one."""


AnyClientFrame: TypeAlias = (
    Hello
    | Subscribe
    | Unsubscribe
    | Send
    | Create
    | Rename
    | Archive
    | Unarchive
    | Retract
    | Fork
    | Delete
    | UpdateContext
    | Refresh
    | Cancel
    | Ack
    | ReadHistory
    | ReadBundle
    | BeginUpload
    | UploadPiece
    | FinishUpload
    | DropUpload
    | Fetch
    | Link
    | ListConversations
    | HibernateConversation
    | ThawConversation
    | QuarantineConversation
    | ReleaseConversation
    | ForgetOwner
    | InspectConversation
    | ListJobs
    | CountJobs
    | RetryJob
    | DropJob
    | ReadNumbers
    | ListTurns
    | ListMcp
    | DrainServer
)


class ServerFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="frame", omit_defaults=True):
    """Root of what the gateway sends."""


class Welcome(ServerFrame, frozen=True, tag="welcome"):
    """The answer to ``hello``."""

    principal: str
    tenant: str
    owner: str
    scopes: tuple[str, ...]
    expires_at_us: int = 0
    """When the token ends, UTC; 0 for one that does not."""
    frame_bytes_max: int = 0
    """The longest frame that the server takes; it closes a connection that sends a longer one."""
    message_attachments_max: int = 0
    """How many files one message may have; 0 where that is not told."""
    ref: str = ""


class Accepted(ServerFrame, frozen=True, tag="accepted"):
    """The message is durable. The first receipt again for a resend."""

    conversation: str
    message_id: MessageId
    event: int
    at_us: int = 0
    position: int = 0
    ref: str = ""


class EventFrame(ServerFrame, frozen=True, tag="event"):
    """One numbered event: contiguous within its conversation and epoch."""

    conversation: str
    epoch: int
    event: AnyEvent


class DeltaFrame(ServerFrame, frozen=True, tag="delta"):
    """A piece of the reply being written; a new ``call`` replaces the old one's text. Never a success."""

    conversation: str
    call: str
    offset: int
    text: str


class ProgressFrame(ServerFrame, frozen=True, tag="progress"):
    """What a running tool, or a sub-agent at work for it, says of itself. Ephemeral like a delta."""

    conversation: str
    call_id: CallId
    name: str
    text: str
    type: str = TOOL_PROGRESS
    """Else ``subagent.progress`` or ``research.progress``, between the events of its beginning and its end."""


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the conversation is doing, from the same read as the head it comes with."""

    state: str
    """``new`` (nothing written yet), ``rest``, ``running`` or ``quarantined``."""
    turn: int = 0
    waiting: int = 0
    """Messages accepted and not yet taken by a turn."""


class Reload(ServerFrame, frozen=True, tag="reload"):
    """Start over: this is the state, and events go on after ``head``."""

    conversation: str
    epoch: int
    head: int
    status: RunStatus
    events: tuple[AnyEvent, ...] = ()
    """The latest events up to ``head``, oldest first; as many as the gateway keeps for a reload."""
    ref: str = ""


class Resumed(ServerFrame, frozen=True, tag="resumed"):
    """The cursor is good: the events after it follow, then live ones."""

    conversation: str
    epoch: int
    head: int
    status: RunStatus
    ref: str = ""


class StatusFrame(ServerFrame, frozen=True, tag="status"):
    """What the conversation is doing has changed without an event: it was quarantined, or released."""

    conversation: str
    status: RunStatus


class Done(ServerFrame, frozen=True, tag="done"):
    """What ``ref`` asked for has happened and is durable."""

    ref: str
    outcome: str = ""
    """What that was, where there is a choice."""


class Result(ServerFrame, frozen=True, tag="result"):
    """Facts that ``ref`` asked for."""

    ref: str
    rows: tuple[dict[str, Any], ...]
    more: bool = False
    """There are rows behind these."""


class Piece(ServerFrame, frozen=True, tag="piece"):
    """Bytes of an attachment; always a binary message, with ``data`` behind its header."""

    ref: str
    blob: str
    offset: int = 0
    data: bytes = b""
    """Fewer than were asked for at the end, and none behind it."""


class ErrorFrame(ServerFrame, frozen=True, tag="error"):
    """A stable code, a message for people, and when to try again if that can help."""

    code: str
    message: str
    retry_after_s: float | None = None
    ref: str = ""
    conversation: str = ""
    message_id: str = ""


AnyServerFrame: TypeAlias = (
    Welcome
    | Accepted
    | EventFrame
    | DeltaFrame
    | ProgressFrame
    | Reload
    | Resumed
    | StatusFrame
    | Done
    | Result
    | Piece
    | ErrorFrame
)
