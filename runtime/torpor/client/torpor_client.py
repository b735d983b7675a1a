"""The Python client: talks ``torpor.v1`` and keeps at it, over as many connections as it takes.

Above: the command line, tests, programs that use conversations. Below: ``Connection``, which has the sockets, and
``ClientCore``, which decides everything that needs none.
"""

import ssl
from collections.abc import Awaitable, Callable, Sequence
from random import SystemRandom
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup

from torpor.client import files
from torpor.client.connection import Connection
from torpor.client.core import Answer, ClientCore
from torpor.client.failures import ClientClosed, ServerRefused
from torpor.client.options import ClientOptions
from torpor.client.watch import Watch
from torpor.clock import Clock, IdSource, RandomIds, SystemClock
from torpor.errors import BadFrame, ClientError
from torpor.records.commands import Receipt
from torpor.records.context import WorkingContext
from torpor.records.frames import (
    Accepted,
    Archive,
    Cancel,
    ClientFrame,
    CountJobs,
    Create,
    Cursor,
    Delete,
    Done,
    DrainServer,
    DropJob,
    ForgetOwner,
    Fork,
    HibernateConversation,
    InspectConversation,
    Link,
    ListConversations,
    ListJobs,
    ListMcp,
    ListTurns,
    QuarantineConversation,
    ReadBundle,
    ReadHistory,
    ReadNumbers,
    Refresh,
    ReleaseConversation,
    Rename,
    Result,
    Retract,
    RetryJob,
    Send,
    ThawConversation,
    Unarchive,
    UpdateContext,
    Welcome,
)
from torpor.records.ids import MessageId
from torpor.records.terms import Offer, WhenBusy

Row = dict[str, Any]
_Kind = TypeVar("_Kind")
_RANDOM = SystemRandom()


class ClientStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start."""

    connections: int
    """Connections that were opened."""
    resent: int
    """Messages sent again because the server had no room for them."""
    unreadable: int
    """Frames that this client does not know."""


class TorporClient:
    """Use it as ``async with TorporClient(url, token) as client``, entered and left by one task.

    Requests wait for as long as the server can be hoped for, over any number of connections; callers set deadlines
    with anyio's scopes, and ``trouble`` tells what is waited for. It gives up when the server refuses the token or the
    address is no Torpor; then everything that waits raises that error.

    Raises, from every request: RequestRefused: the server's own answer, or what it would answer to a frame that is too
    long. Unauthenticated, ServerRefused, NoToken, OtherPerson: it gave up.
    """

    def __init__(
        self,
        url: str,
        token: str | Callable[[], Awaitable[str]],
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        jitter: Callable[[], float] = _RANDOM.random,
        options: ClientOptions | None = None,
        on_connection: Callable[[Welcome | None], None] = lambda welcome: None,
        on_put_off: Callable[[str], None] = lambda why: None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Args: token: or a function that gives one, and a newer one whenever that has expired. jitter: numbers in
        [0, 1). on_connection: called with each welcome, and with None when it is over. on_put_off: called with the
        server's words whenever it has no room for a request, which is then sent again. tls: what ``wss`` is checked
        with, instead of the system's own store."""
        self._ids = ids or RandomIds()
        self._options = options or ClientOptions()
        self._core = ClientCore(token if isinstance(token, str) else "")
        self._on_connection = on_connection
        self._connection = Connection(
            url,
            self._core,
            clock=clock or SystemClock(),
            jitter=jitter,
            options=self._options,
            on_change=self._on_change,
            on_put_off=on_put_off,
            token_source=None if isinstance(token, str) else token,
            tls=tls,
        )
        self._tasks: TaskGroup | None = None
        self._watches: set[Watch] = set()
        self._changed: anyio.Event | None = None
        """Made by whoever waits for a welcome."""
        self._ended: ClientError | None = None

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run, name="client")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks is None:
            return
        self._end(ClientClosed())
        for watch in tuple(self._watches):
            await watch.aclose()
        self._tasks.cancel_scope.cancel()
        # The block's own error is not the group's business, or it would come out wrapped in one.
        passed = (None, None, None) if isinstance(exc, Exception) else (kind, exc, trace)
        await self._tasks.__aexit__(*passed)

    @property
    def welcome(self) -> Welcome | None:
        """What the server said of us; None while there is no connection."""
        return self._core.welcome

    @property
    def trouble(self) -> str:
        """What stands in the way of a connection, or ended the last one, in words like "connection refused"; empty
        while there is one, and before the first attempt."""
        return self._connection.trouble

    @property
    def ended(self) -> ClientError | None:
        """Why the client gave up, or was left; None while it goes on."""
        return self._ended or self._connection.final

    def statistics(self) -> ClientStatistics:
        return ClientStatistics(
            connections=self._connection.opened,
            resent=self._connection.resent,
            unreadable=self._core.unreadable,
        )

    async def connected(self) -> Welcome:
        """Return once the server has said welcome."""
        while (welcome := self._core.welcome) is None:
            if self._ended is not None:
                raise self._ended
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()
        return welcome

    def renew(self, token: str) -> None:
        """Go on as the same person with a newer token, before the old one has expired. Nothing is interrupted.

        Raises: OtherPerson: it is somebody else's; the one before stays, and nothing is said to the server.
        """
        self._core.renew(token)
        self._connection.wake()

    async def send(
        self,
        conversation: str,
        text: str,
        *,
        message_id: str | None = None,
        when_busy: WhenBusy = WhenBusy.QUEUE,
        agent: str = "",
        resume: Offer | None = None,
        lookback: int = 0,
        attachments: Sequence[str] | None = None,
    ) -> Receipt:
        """Send a message and return once it is durable; it is one message however often it had to be sent.

        ``agent`` is only read when the message creates the conversation. ``resume`` takes up an offer of the turn that
        failed; the text may be empty then. ``lookback`` has so many exchanges (up to 50) from before what the model
        still sees quoted to it, in this message's turn alone. ``attachments`` are what ``upload`` gave; with some, the
        text may be empty. A server without room for it is asked again
        after the time that it names. Cancelled, the message may have been accepted: send it again under the same id.
        """
        frame = Send(
            ref=self._ids.new_id(),
            conversation=conversation,
            message_id=MessageId(message_id or self._ids.new_id()),
            text=text,
            when_busy=when_busy,
            agent=agent,
            resume=resume,
            lookback=lookback,
            attachments=tuple(attachments or ()),
        )
        accepted = await self._ask(frame, Accepted)
        return Receipt(
            message_id=accepted.message_id, event=accepted.event, at_us=accepted.at_us, position=accepted.position
        )

    async def upload(self, data: bytes, *, name: str, upload: str = "") -> Row:
        """Send a file, and return what came of it once it is durable: ``attachment``, which ``send`` takes, beside its
        ``blob``, ``media_type``, ``size_bytes``, ``tokens``, ``pages`` and ``note``.

        The same file goes on where it was cut off, also of another client's, for as long as the server keeps what it
        has of it. Args: upload: an id to go on by, instead of one made of the file.
        Raises: RequestRefused: with a code that begins with ``attachment_`` no model could be shown it. With
            ``too_many_uploads`` there was no room for a minute, or there will be none for longer: the server's words
            say when.
        """
        return await files.upload(self._asking, data, name=name, upload=upload)

    async def fetch(self, conversation: str, blob: str) -> bytes:
        """An attachment of the conversation, as ``message.received`` names it.

        Raises: RequestRefused: with ``unknown_conversation`` no message of this conversation has it. FileDiffers: its
            bytes were damaged where they are stored.
        """
        return await files.fetched(self._asking, conversation, blob)

    async def link(self, conversation: str, blob: str) -> str:
        """The path of an address, at the server's own, from which anybody may get the attachment for a short while."""
        frame = Link(ref=self._ids.new_id(), conversation=conversation, blob=blob)
        path: str = (await self._ask(frame, Result)).rows[0]["path"]
        return path

    async def cancel(self, conversation: str) -> None:
        """End the running turn and return once its end is durable.

        Raises: ConnectionLost: it may have been done; it is not repeated, since it could meet the next turn.
        """
        await self._ask(Cancel(ref=self._ids.new_id(), conversation=conversation), Done)

    async def update_context(self, conversation: str, context: WorkingContext, *, agent: str = "") -> None:
        """Tell what the user works on, in place of what was told before, and return once it is durable.

        ``agent`` is only read when this creates the conversation. Told again over another connection where an answer
        was lost, before any later update of this client.
        """
        frame = UpdateContext(ref=self._ids.new_id(), conversation=conversation, context=context, agent=agent)
        await self._ask(frame, Done)

    async def refresh(self, conversation: str) -> str:
        """Have the live context made anew; returns what was done, one of ``commands.Refreshed``."""
        return (await self._ask(Refresh(ref=self._ids.new_id(), conversation=conversation), Done)).outcome

    def watch(self, conversation: str, cursor: Cursor | None = None) -> Watch:
        """Watch a conversation from behind ``cursor``; without one, from its present state. See ``Watch``.

        Raises: BadFrame: this client watches it already.
        """
        if self._ended is not None:
            raise self._ended
        if self._core.is_watched(conversation):
            raise BadFrame(f"conversation {conversation!r} is watched by this client already")
        watch = Watch(
            on_drained=lambda: self._drained(conversation),
            on_close=lambda: self._unwatch(conversation, watch),
            items_max=self._options.items_max,
        )
        self._watches.add(watch)
        self._core.watch(conversation, cursor=cursor, sink=watch)
        self._connection.wake()
        return watch

    async def create(self, conversation: str, *, agent: str = "", title: str = "") -> None:
        """Begin a conversation without a message, for ``agent`` or the home's default one.

        Returns once it is durable. Again for the same id and agent, it changes nothing.

        Raises: RequestRefused: ``conversation_exists``, ``unknown_agent``, ``too_many_conversations``.
        """
        frame = Create(ref=self._ids.new_id(), conversation=conversation, agent=agent, title=title)
        await self._ask(frame, Done)

    async def rename(self, conversation: str, title: str) -> None:
        """Give it another title, or none, and return once it is durable."""
        await self._ask(Rename(ref=self._ids.new_id(), conversation=conversation, title=title), Done)

    async def archive(self, conversation: str) -> None:
        """Have lists leave it out unless asked; a message brings it back."""
        await self._ask(Archive(ref=self._ids.new_id(), conversation=conversation), Done)

    async def unarchive(self, conversation: str) -> None:
        """Have lists show it again."""
        await self._ask(Unarchive(ref=self._ids.new_id(), conversation=conversation), Done)

    async def retract(self, conversation: str, message_id: str) -> None:
        """Take the last message back, with the turn that answered it, or one that waits; return once it is durable.

        Raises: RequestRefused: with ``not_retractable`` it is neither, or its turn runs.
        """
        frame = Retract(ref=self._ids.new_id(), conversation=conversation, message_id=MessageId(message_id))
        await self._ask(frame, Done)

    async def fork(self, conversation: str, into: str, *, before: str = "", title: str = "") -> None:
        """Begin conversation ``into`` with what was said before the message ``before``, or before the last one.

        ``into`` is an id of the same owner that is not used; done again, it changes nothing. Raises: RequestRefused:
        ``conversation_exists``, ``not_forkable``, ``too_many_conversations``.
        """
        frame = Fork(
            ref=self._ids.new_id(), conversation=conversation, into=into, before=MessageId(before), title=title
        )
        await self._ask(frame, Done)

    async def delete(self, conversation: str) -> None:
        """Take it away for good, with everything that is stored of it, and return once nothing is left.

        Raises: RequestRefused: with ``unknown_conversation`` there is none; after a lost connection that is as good.
        """
        await self._ask(Delete(ref=self._ids.new_id(), conversation=conversation), Done)

    async def forget(self, owner: str, *, limit: int = 10, dry_run: bool = False) -> Row:
        """For operators: delete conversations of ``[tenant/]owner``, at most ``limit``, or only count what there is.

        To be called until the row says that nothing is ``left``; with the last one goes whatever else is kept.
        """
        frame = ForgetOwner(ref=self._ids.new_id(), owner=owner, limit=limit, dry_run=dry_run)
        return (await self._ask(frame, Result)).rows[0]

    async def list(self, *, archived: bool = False) -> tuple[Row, ...]:
        """One's own conversations, or everybody's to an operator, in order of their paths.

        Args: archived: whether archived ones are wanted too.
        """
        rows: list[Row] = []
        more = True
        while more:
            after = rows[-1]["path"] if rows else ""
            result = await self._ask(ListConversations(ref=self._ids.new_id(), after=after, archived=archived), Result)
            rows.extend(result.rows)
            more = result.more and bool(result.rows)
        return tuple(rows)

    async def history(self, conversation: str, *, before: int = 0, limit: int = 100) -> tuple[Row, ...]:
        """The ``limit`` events before the one numbered ``before`` (0: the latest ones), oldest first; fewer where the
        conversation began, or where they are long."""
        frame = ReadHistory(ref=self._ids.new_id(), conversation=conversation, before=before, limit=limit)
        return (await self._ask(frame, Result)).rows

    async def bundle(self, conversation: str, bundle: str) -> Any:
        """What a sub-agent of the conversation left, which the event of its end names: decoded JSON.

        Raises: RequestRefused: with ``unknown_conversation`` no sub-agent of this conversation left it.
        """
        frame = ReadBundle(ref=self._ids.new_id(), conversation=conversation, bundle=bundle)
        return (await self._ask(frame, Result)).rows[0]["content"]

    async def inspect(self, path: str, *, seq: int = 0) -> tuple[Row, ...]:
        """For operators: the records of a journal after ``seq``, as they stand there."""
        rows: list[Row] = []
        more = True
        while more:
            after = rows[-1]["seq"] if rows else seq
            result = await self._ask(InspectConversation(ref=self._ids.new_id(), path=path, seq=after), Result)
            rows.extend(result.rows)
            more = result.more and bool(result.rows)
        return tuple(rows)

    async def hibernate(self, path: str, *, deadline_s: float = 0.0) -> None:
        """For operators: put an actor to sleep, after its running turn if that ends within ``deadline_s``.

        Raises: RequestRefused: with ``not_now`` the turn is still running.
        """
        await self._ask(HibernateConversation(ref=self._ids.new_id(), path=path, deadline_s=deadline_s), Done)

    async def thaw(self, path: str) -> None:
        """For operators: wake an actor."""
        await self._ask(ThawConversation(ref=self._ids.new_id(), path=path), Done)

    async def quarantine(self, path: str, *, reason: str) -> None:
        """For operators: cut off an actor, a running turn with it, and let none start until it is released."""
        await self._ask(QuarantineConversation(ref=self._ids.new_id(), path=path, reason=reason), Done)

    async def release(self, path: str) -> None:
        """For operators: take a quarantine back; a turn that is due goes on."""
        await self._ask(ReleaseConversation(ref=self._ids.new_id(), path=path), Done)

    async def jobs(self) -> tuple[Row, ...]:
        """For operators: background work that is not done, in order of paths."""
        rows: list[Row] = []
        more = True
        while more:
            after = rows[-1]["path"] if rows else ""
            result = await self._ask(ListJobs(ref=self._ids.new_id(), after=after), Result)
            rows.extend(result.rows)
            more = result.more and bool(result.rows)
        return tuple(rows)

    async def job_counts(self) -> Row:
        """For operators: how many jobs there are in which state, and since when the oldest is due."""
        result = await self._ask(CountJobs(ref=self._ids.new_id()), Result)
        return result.rows[0]

    async def retry_job(self, path: str) -> None:
        """For operators: have a job run now, with all its attempts before it."""
        await self._ask(RetryJob(ref=self._ids.new_id(), path=path), Done)

    async def drop_job(self, path: str) -> None:
        """For operators: remove a job, undone."""
        await self._ask(DropJob(ref=self._ids.new_id(), path=path), Done)

    async def server_statistics(self) -> dict[str, Row]:
        """For operators: the numbers of the server's parts, by the part's name."""
        result = await self._ask(ReadNumbers(ref=self._ids.new_id()), Result)
        return {row["room"]: row for row in result.rows}

    async def turns(self, *, limit: int = 200) -> tuple[Row, ...]:
        """For operators: the turns that run now, the oldest first, up to ``limit`` of them."""
        return (await self._ask(ListTurns(ref=self._ids.new_id(), limit=limit), Result)).rows

    async def mcp_servers(self) -> tuple[Row, ...]:
        """For operators: how the server's connections to MCP servers stand, and of servers without one that there is
        none."""
        return (await self._ask(ListMcp(ref=self._ids.new_id()), Result)).rows

    async def drain(self, *, deadline_s: float | None = None) -> Row:
        """For operators: have the server end, its running turns after their present step, and return what it waits for.

        Args: deadline_s: for the turns that run; None for what the server has configured.
        Raises: ConnectionLost: it may have begun; it is not repeated, since it could meet the next server.
        """
        frame = DrainServer(ref=self._ids.new_id(), deadline_s=-1.0 if deadline_s is None else deadline_s)
        return (await self._ask(frame, Result)).rows[0]

    @property
    def _asking(self) -> files.Ask:
        return files.Ask(self._ids.new_id, self._ask)

    async def _ask(self, frame: ClientFrame, kind: type[_Kind]) -> _Kind:
        if self._ended is not None:
            raise self._ended
        waiter = _Waiter()
        self._core.ask(frame, waiter)
        self._connection.wake()
        try:
            answer = await waiter.wait()
        finally:
            self._core.withdraw(frame.ref)
        if not isinstance(answer, kind):
            raise ServerRefused(f"server answered with {type(answer).__name__}, expected {kind.__name__}")
        return answer

    async def _run(self) -> None:
        self._end(await self._connection.keep())

    def _end(self, error: ClientError) -> None:
        if self._ended is None:
            self._ended = error
            self._core.give_up(error)
            self._tell_changed()

    def _on_change(self, welcome: Welcome | None) -> None:
        self._tell_changed()
        self._on_connection(welcome)

    def _tell_changed(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _drained(self, conversation: str) -> None:
        self._core.drained(conversation)
        self._connection.wake()

    def _unwatch(self, conversation: str, watch: Watch) -> None:
        self._watches.discard(watch)
        self._core.unwatch(conversation, sink=watch)
        self._connection.wake()


class _Waiter:
    """One caller, waiting for one answer."""

    def __init__(self) -> None:
        self._settled = anyio.Event()
        self._answer: Answer | Exception = ClientClosed()

    def settle(self, answer: Answer | Exception) -> None:
        self._answer = answer
        self._settled.set()

    async def wait(self) -> Answer:
        await self._settled.wait()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer
