"""One conversation watched by one client: journal and bus joined into one stream without gap or duplicate.

Above: the session, which begins and ends it. Beside: the outbox, into which it puts frames. Below: the bus, which says
what happens now but only as a hint, and the journal, which has everything.

    CATCHING_UP ──caught up──▶ LIVE      reads the journal, at the client's pace ; hands on what the bus says
         ▲                      │
         └─────fell behind──────┘        and from both: ──ended──▶ ENDED

It listens to the bus before it reads. While it catches up it keeps nothing of what it hears but the highest number,
and goes live in the moment in which it has sent that; so a slow client costs a place in the journal, not memory. A
number missing on the bus, or an event for which the outbox has no room, sends it back to the journal.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.lowlevel
import msgspec
import structlog

from torpor.bus.contract import Bus
from torpor.clock import Clock
from torpor.errors import (
    ConversationDeleted,
    IllegalTransition,
    JournalCorrupt,
    Quarantined,
    StoreUnavailable,
    TorporError,
)
from torpor.gateway.event_text import EncodedEvent, EventTexts, public
from torpor.gateway.options import GatewayOptions
from torpor.gateway.outbox import Outbox
from torpor.gateway.pages import PAGE_BYTES, newest
from torpor.gateway.status import Bundles, Jobs, Journals, Operated, run_status
from torpor.gateway.uploads import Uploads
from torpor.records.blocks import UNREADABLE
from torpor.records.events import AnyEvent, Delta, Progress
from torpor.records.frames import (
    Cursor,
    DeltaFrame,
    ErrorFrame,
    EventFrame,
    ProgressFrame,
    Reload,
    Resumed,
    RunStatus,
    StatusFrame,
)
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord, ModelReplied, TurnCancelled, TurnFailed, TurnFinished
from torpor.store.contract import QuarantineKind
from torpor.supervisor.contract import Conversations, Directory, Forks

_ENDS_REPLY: Final = (ModelReplied, TurnCancelled, TurnFailed, TurnFinished)
_LOOKS_MAX: Final = 3
_MICROSECONDS: Final = 1_000_000
_log = structlog.get_logger()


class State(Enum):
    CATCHING_UP = auto()
    LIVE = auto()
    ENDED = auto()


class Signal(Enum):
    CAUGHT_UP = auto()
    FELL_BEHIND = auto()
    ENDED = auto()


TRANSITIONS: Final = {
    (State.CATCHING_UP, Signal.CAUGHT_UP): State.LIVE,
    (State.LIVE, Signal.FELL_BEHIND): State.CATCHING_UP,
    (State.CATCHING_UP, Signal.ENDED): State.ENDED,
    (State.LIVE, Signal.ENDED): State.ENDED,
    (State.ENDED, Signal.ENDED): State.ENDED,
}


def next_state(state: State, signal: Signal) -> State:
    """Raises: IllegalTransition: the table does not list the pair."""
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(state, signal) from None


class Spawn(Protocol):
    """Runs a task of the session; what it raises ends the session, never another one."""

    def __call__(self, work: Callable[[], Awaitable[None]], *, name: str) -> None: ...


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the process that a session talks to."""

    conversations: Conversations
    directory: Directory
    forks: Forks
    journals: Journals
    bundles: Bundles
    bus: Bus
    jobs: Jobs
    server: Operated
    uploads: Uploads
    message_attachments_max: int = 0
    """What clients are told of it; 0 for nothing."""
    events: EventTexts = msgspec.field(default_factory=EventTexts)


async def quarantine_unreadable(key: ConversationKey, exc: JournalCorrupt, *, ports: Ports) -> None:
    """Have a conversation quarantined whose journal cannot be read or shown, and all who watch it told; nothing when
    it is. Where that cannot be done now, whoever reads it next finds out again."""
    _log.error("gateway.journal_unreadable", conversation=key.path, why=exc.reason)
    try:
        row = await ports.journals.describe(key)
        if row is not None and not row.quarantine:
            await ports.conversations.quarantine(key, reason=exc.reason, kind=QuarantineKind.JOURNAL)
    except TorporError as failure:
        _log.warning("gateway.not_set_aside", conversation=key.path, why=str(failure))


class Subscription:
    """See the module docstring. ``name`` is what the client calls the conversation; every frame carries it."""

    def __init__(
        self,
        key: ConversationKey,
        *,
        name: str,
        ports: Ports,
        outbox: Outbox,
        spawn: Spawn,
        clock: Clock,
        options: GatewayOptions,
    ) -> None:
        self.key = key
        self.name = name
        self._ports = ports
        self._outbox = outbox
        self._spawn = spawn
        self._clock = clock
        self._options = options
        self._state = State.CATCHING_UP
        self._reading = anyio.CancelScope()
        self._sent = 0
        """Number of the last event that was queued for the client."""
        self._heard = 0
        """Highest number that the bus has told of."""
        self._head = 0
        """What the journal held when the client was told where it begins."""
        self._epoch = 0
        """Of the numbers that the client was told."""
        self._is_begun = False
        """Whether the conversation was there when it was; only then the epoch is certain."""
        self._is_joined = False
        """Whether the client was told where it begins."""
        self._has_turned = False
        """Whether it was quarantined or released since the client was told last."""
        self._reply_ended = True
        """Whether the last event that was queued ends a reply, so that what the bus still holds of one is over."""

    @property
    def is_ended(self) -> bool:
        return self._state is State.ENDED

    def start(self, cursor: Cursor | None, *, ref: str = "") -> None:
        """Listen to the bus, then answer ``ref`` with ``resumed`` or ``reload``, and go on with what follows."""
        self._ports.bus.subscribe(self.key, self)
        self._spawn(lambda: self._read(lambda: self._join(cursor, ref=ref)), name=f"join:{self.key.path}")

    def end(self) -> None:
        """Nothing is queued any more; ending twice is once."""
        self._state = next_state(self._state, Signal.ENDED)
        self._ports.bus.unsubscribe(self.key, self)
        self._outbox.forget(self.name)
        self._reading.cancel()

    def on_records(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
        for record in records:
            self._heard = max(self._heard, record.event)
            if self._state is State.LIVE and record.event > self._sent and not self._offer(record):
                self._fall_behind()

    def on_delta(self, key: ConversationKey, delta: Delta) -> None:
        if self._state is State.LIVE:
            self._put_delta(delta.call, offset=delta.offset, text=delta.text)

    def on_progress(self, key: ConversationKey, progress: Progress) -> None:
        if self._state is State.LIVE:
            self._outbox.put_progress(
                ProgressFrame(
                    conversation=self.name,
                    call_id=progress.call_id,
                    name=progress.name,
                    text=progress.text,
                    type=progress.type,
                )
            )

    def on_standing(self, key: ConversationKey) -> None:
        self._has_turned = True
        if self._is_joined:
            self._spawn(self._tell_standing, name=f"standing:{self.key.path}")

    def on_gone(self, key: ConversationKey) -> None:
        self.end()
        error = ConversationDeleted(self.name)
        self._outbox.put(ErrorFrame(code=error.code, message=str(error), conversation=self.name))

    async def _read(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` until it is done or the subscription ends."""
        self._reading = anyio.CancelScope()
        if self._state is State.ENDED:
            return
        try:
            with self._reading:
                await work()
        except JournalCorrupt as exc:
            self.end()
            error = Quarantined(self.name, reason="its journal cannot be read")
            self._outbox.put(ErrorFrame(code=error.code, message=str(error), conversation=self.name))
            await quarantine_unreadable(self.key, exc, ports=self._ports)

    async def _join(self, cursor: Cursor | None, *, ref: str = "") -> None:
        head, status = await self._look(begins=True)
        self._head = head
        if cursor is not None and await self._is_continued(cursor, head=head):
            answer: Resumed | Reload = Resumed(
                conversation=self.name, epoch=self._epoch, head=head, status=status, ref=ref
            )
            self._sent = cursor.event
        else:
            events = await self._latest(head)
            answer = Reload(conversation=self.name, epoch=self._epoch, head=head, status=status, events=events, ref=ref)
            self._sent = head
        await anyio.lowlevel.checkpoint_if_cancelled()
        await self._outbox.send(answer, conversation=self.name)
        self._is_joined = True
        await self._tell_standing()
        await self._catch_up()

    async def _is_continued(self, cursor: Cursor, *, head: int) -> bool:
        """Whether what follows ``cursor`` is replayed: it is of this life, and neither too much nor too long ago."""
        if cursor.epoch != self._epoch or not 0 <= cursor.event <= head:
            return False
        if head - cursor.event > self._options.replay_events_max:
            return False
        try:
            following = await self._ports.journals.events_after(self.key, event=cursor.event, limit=1)
        except JournalCorrupt:
            return True  # the replay reports the journal, after the state has been told
        age_us = self._clock.now_us() - following[0].at_us if following else 0
        return age_us <= self._options.replay_age_max_s * _MICROSECONDS

    async def _look(self, *, begins: bool = False) -> tuple[int, RunStatus]:
        """Head and status as of one moment: read again while something is published during the read.

        Args: begins: the client is about to be told numbers of the life that the conversation has then.
        """
        looks = 0
        while True:
            epoch = await self._ports.journals.epoch() if begins else self._epoch
            row = await self._ports.journals.describe(self.key)
            if begins:
                self._is_begun = row is not None
                self._epoch = row.epoch if row is not None else epoch
            # Nothing may be awaited between the head and the live status.
            head = row.head.event if row else 0
            status = run_status(row, self._ports.conversations.live_status(self.key))
            looks += 1
            if head >= self._heard or looks == _LOOKS_MAX:
                return head, status

    async def _tell_standing(self) -> None:
        """What a quarantine or a release has changed, once; behind the answer that may tell the status before that."""
        if not self._has_turned or self._state is State.ENDED:
            return
        self._has_turned = False
        _, status = await self._look()
        await self._outbox.send(StatusFrame(conversation=self.name, status=status), conversation=self.name)

    async def _latest(self, head: int) -> tuple[AnyEvent, ...]:
        """The events of a reload: up to ``head``, as many as its bounds allow."""
        limit = min(head, self._options.reload_events_max)
        if limit == 0:
            return ()
        try:
            return await newest(
                self._ports.journals,
                self.key,
                last=head,
                limit=limit,
                size_bytes=self._options.reload_bytes_max,
                made=self._public,
                least=0,
            )
        except JournalCorrupt as exc:
            # The state still says what is known; that it is set aside follows the answer.
            work = partial(quarantine_unreadable, self.key, exc, ports=self._ports)
            self._spawn(work, name=f"quarantine:{self.key.path}")
            return ()

    async def _is_same_life(self) -> bool:
        """Whether the client's numbers are those of the conversation that has begun since it was told them."""
        if not self._is_begun and (row := await self._ports.journals.describe(self.key)) is not None:
            self._is_begun = row.epoch == self._epoch
            return self._is_begun
        return True

    async def _catch_up(self) -> None:
        if not await self._is_same_life():
            await self._join(None)
            return
        limit = max(self._options.replay_page, 2)
        # One record that was sent already is read again: its kind tells whether a reply can be running.
        after = max(self._sent - 1, 0)
        while True:
            await self._outbox.room()  # who does not read has nothing read for them
            await anyio.lowlevel.checkpoint_if_cancelled()
            before, heard = self._sent, self._heard
            records = await self._ports.journals.events_after(self.key, event=after, limit=limit, size_bytes=PAGE_BYTES)
            await anyio.lowlevel.checkpoint_if_cancelled()  # who leaves when a read is over has come too late to cut it
            for record in records:
                if record.event > self._sent:
                    await self._replay(record)
                self._reply_ended = isinstance(record, _ENDS_REPLY)
            is_cut = bool(records) and records[-1].event < max(self._heard, self._head)
            after = self._sent
            if len(records) == limit or is_cut:
                continue
            await self._outbox.room()
            await anyio.lowlevel.checkpoint_if_cancelled()
            if self._sent >= self._heard:
                self._go_live()
                return
            if self._sent == before < heard:  # what was published during the read is in the next one
                raise StoreUnavailable(f"event {self._heard} of {self.key.path!r} was published and is not readable")

    async def _replay(self, record: JournalRecord) -> None:
        if record.event != self._sent + 1:
            raise JournalCorrupt(self.key.path, reason=f"event {self._sent + 1} is missing before {record.event}")
        frame = EventFrame(conversation=self.name, epoch=self._epoch, event=self._public(record))
        await self._outbox.send(frame, conversation=self.name)
        self._sent = record.event

    def _public(self, record: JournalRecord) -> AnyEvent:
        """Raises: JournalCorrupt: what it holds cannot be shown."""
        try:
            return public(record)
        except UNREADABLE as exc:
            raise JournalCorrupt(self.key.path, reason=f"record {record.seq} cannot be shown: {exc}") from exc

    def _go_live(self) -> None:
        self._state = next_state(self._state, Signal.CAUGHT_UP)
        live = self._ports.bus.live_reply(self.key)
        # The journal may be ahead of the bus: a reply whose end was just read is over, whatever the bus still holds.
        if live is not None and live.text and not self._reply_ended:
            self._put_delta(live.call, offset=0, text=live.text)

    def _offer(self, record: JournalRecord) -> bool:
        if record.event != self._sent + 1 or not self._is_begun:
            return False
        try:
            event = self._ports.events.of(record)
        except UNREADABLE:
            return False  # the journal has it too, and its reader reports it
        frame = EncodedEvent(conversation=self.name, epoch=self._epoch, event=event)
        if not self._outbox.offer(frame, conversation=self.name):
            return False
        self._sent = record.event
        return True

    def _fall_behind(self) -> None:
        self._state = next_state(self._state, Signal.FELL_BEHIND)
        self._spawn(lambda: self._read(self._catch_up), name=f"catch_up:{self.key.path}")

    def _put_delta(self, call: str, *, offset: int, text: str) -> None:
        self._outbox.put_delta(DeltaFrame(conversation=self.name, call=call, offset=offset, text=text))

    def __repr__(self) -> str:
        return f"<Subscription {self.name!r} {self._state.name} sent={self._sent} heard={self._heard}>"
