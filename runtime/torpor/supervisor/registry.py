"""The supervisor: one entry per live conversation, thawed on demand, put to sleep when idle or when room is wanted.

A command is put into the mailbox of the conversation's actor at once, in order of calls; the actor is started if none
lives, and loads while commands wait, so concurrent thaws of one conversation are one. A hibernating actor takes no more
commands: they wait in the entry for the next incarnation. Only so many actors load at once; owners take turns.

Only so many actors live. For one more, the one that rested longest makes room, whether or not somebody watches it; one
that runs never does. Where nobody rests the command is answered as *busy* and nothing is recorded. A command that
cannot begin a conversation wants no room before its conversation is found to exist; where there is none it is refused,
and nothing of it stays.

A crash ends one actor and nothing else. Its unanswered commands fail as *unavailable* (the client resends under the
same id); a conversation that is still due is started again after a growing pause, and one that never gets anywhere or
crashes too often, or whose journal cannot be trusted, is quarantined.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import Final

import anyio
import anyio.abc
import structlog

from torpor.actor.lifecycle import ActorState
from torpor.actor.loop import BEGINNING, Actor
from torpor.actor.mailbox import PendingReply
from torpor.actor.parts import ActorParts
from torpor.errors import (
    Busy,
    ClientError,
    Fenced,
    JournalCorrupt,
    LeaseHeld,
    NotNow,
    Quarantined,
    StoreError,
    StoreFull,
    TorporError,
    Unavailable,
    UnknownConversation,
)
from torpor.records.commands import (
    ArchiveConversation,
    CancelTurn,
    Command,
    Hibernate,
    RefreshLiveContext,
    RenameConversation,
    RetractMessage,
    TellLiveContext,
    Wake,
)
from torpor.records.ids import ConversationKey
from torpor.store.contract import Lease, QuarantineKind
from torpor.supervisor.closing import Closing
from torpor.supervisor.contract import Answer, Listing, LiveStatus, RunningTurn
from torpor.supervisor.crashes import Crashes, root_cause
from torpor.supervisor.entry import Entry
from torpor.supervisor.leases import Leases
from torpor.supervisor.memory import Memory, Unmeasured
from torpor.supervisor.options import SupervisorOptions
from torpor.supervisor.passivate import Passivation
from torpor.supervisor.quarantine import lift, mark, mark_if_possible
from torpor.supervisor.room import Room
from torpor.supervisor.statistics import Counts, Refusal, SupervisorStatistics, shown, statistics_of
from torpor.supervisor.turns import running_turns
from torpor.turn.places import FairPlaces, Owner

_ALWAYS_US: Final = 2**62
"""After every mark. A mark says since when a conversation is due, never when it will be: one that seems to lie ahead is
older than a clock that was set back."""
_OF_A_CLIENT: Final = (
    CancelTurn,
    RenameConversation,
    ArchiveConversation,
    RetractMessage,
    RefreshLiveContext,
    Hibernate,
)
"""Commands for any id that somebody names, which begin no conversation."""
_TAKEN_TO_THE_END: Final = (CancelTurn, TellLiveContext)
"""Of no use later: what ends a turn, and what a job that is being finished has found out."""
_log = structlog.get_logger()


class Supervisor:
    """Implements ``supervisor.contract.Conversations``; ``async with supervisor.running()``."""

    def __init__(
        self,
        parts: ActorParts,
        *,
        holder: str,
        options: SupervisorOptions,
        memory: Memory | None = None,
        chance: Callable[[], float] = lambda: 0.5,
        on_gone: Callable[[ConversationKey], None] = lambda _: None,
    ) -> None:
        """Args: memory: of the process; without one there is always enough.  chance: a number from 0 up to 1, another
        one each time, so that what failed or was refused together does not come again together.  on_gone: told of each
        conversation that lives no more."""
        self._on_gone = on_gone
        clock = parts.clock
        self._parts = parts
        self._holder = holder
        self._options = options
        self._entries: dict[ConversationKey, Entry] = {}
        self._guests = 0
        """Entries that take nobody's place."""
        self._room = Room(options, memory=memory or Unmeasured(), chance=chance, monotonic_s=clock.monotonic_s)
        self._passivation = Passivation(options, room=self._room, clock=clock)
        self._crashes = Crashes(options, chance=chance)
        self._counts = Counts()
        self._leases = Leases(parts.store, clock=clock, holder=holder, options=options)
        self._thaws = FairPlaces(options.thaws_max, monotonic_s=clock.monotonic_s)
        self._thawing: set[Actor] = set()
        """Those that hold a place among the thaws."""
        self._closing = Closing()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._stopping = anyio.Event()
        self._emptied = anyio.Event()
        self._is_cut_off = False
        self._has_ended = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Supervisor"]:
        """Claim what is due, sweep, and at the end let every actor leave within the stop deadline, unless that was done
        before."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._sweep, name="supervisor:sweep")
            try:
                yield self
            finally:
                await self._stop()
                self._has_ended = True
                tasks.cancel_scope.cancel()

    @property
    def accepts(self) -> bool:
        """Whether commands are taken; no more once it stops."""
        return not self._stopping.is_set()

    def post(self, key: ConversationKey, command: Command) -> PendingReply:
        """See the contract. Raises: Busy, Unavailable, Quarantined."""
        if self._has_ended or (self._stopping.is_set() and not isinstance(command, _TAKEN_TO_THE_END)):
            raise self._unavailable("the server is stopping")
        if (verdict := self._closing.verdict(key)) is not None:
            raise verdict
        entry = self._entries.get(key)
        if entry is None:
            is_guest = isinstance(command, _OF_A_CLIENT)
            if is_guest and self._guests >= self._options.live_max:
                raise self._turned_away(Refusal.LIVE)
            if not is_guest:
                self._make_room()
            return self._started(key, command, is_guest=is_guest)
        if entry.is_guest and isinstance(command, BEGINNING):
            self._seat(entry)
        reply = PendingReply(command)
        if entry.actor.mailbox.is_closed or entry.actor.state is ActorState.STOPPED:
            if len(entry.next) >= self._parts.actor.mailbox_capacity:
                raise self._unavailable("the conversation is between two incarnations")
            entry.next.append(reply)
        else:
            entry.actor.mailbox.offer(reply)
            if not isinstance(command, Hibernate) and not entry.is_guest:
                self._passivation.used(entry.actor)
        return reply

    async def deliver(self, key: ConversationKey, command: Command) -> Answer:
        reply = self.post(key, command)
        if not isinstance(command, Hibernate) or command.deadline_s <= 0:
            return await reply.wait()
        with anyio.move_on_after(command.deadline_s):
            return await reply.wait()
        if (status := self.live_status(key)) is not None and status.turn:
            reply.fail(NotNow(turn=status.turn, deadline_s=command.deadline_s))
        return await reply.wait()

    def live_status(self, key: ConversationKey) -> LiveStatus | None:
        if (entry := self._entries.get(key)) is None:
            return None
        actor = entry.actor
        state = actor.journal.state if actor.journal is not None else None
        return LiveStatus(
            state=shown(actor.state).value,
            turn=state.turn.number if state and state.turn else 0,
            waiting=len(state.queued) if state else 0,
        )

    async def list_conversations(
        self,
        *,
        tenant: str | None,
        owner: str | None,
        limit: int,
        after: ConversationKey | None = None,
        with_archived: bool = True,
    ) -> tuple[Listing, ...]:
        rows = await self._parts.store.list_conversations(
            tenant=tenant, owner=owner, limit=limit, after=after, with_archived=with_archived
        )
        return tuple(Listing(row=row, live=self.live_status(row.key)) for row in rows)

    async def quarantine(
        self, key: ConversationKey, *, reason: str, kind: QuarantineKind = QuarantineKind.OPERATOR
    ) -> None:
        """See the contract. Of several that ask at once, each is answered."""
        async with self.set_aside(key, verdict=Quarantined(key.conversation, reason=reason)):
            row = await self._parts.store.describe(key)
            if row is None:
                raise UnknownConversation(key.conversation)
            await mark(key, self._parts, kind=kind, reason=reason)
            self._counts.quarantines += not row.quarantine

    def close(self, key: ConversationKey, *, verdict: ClientError) -> Callable[[], None]:
        """From now on every command for it is told ``verdict``; a turn that runs goes on. Returns: what reopens it."""
        return self._closing.mark(key, verdict)

    def holding(self, key: ConversationKey) -> AbstractContextManager[None]:
        """In the block nobody sets it aside. Raises: ClientError: somebody is about to."""
        return self._closing.holding(key)

    async def end_turn(self, key: ConversationKey, command: CancelTurn) -> None:
        """End the turn that runs, also of a conversation that takes no commands any more.

        Raises: ClientError: it takes none of this either, or none runs.
        """
        entry = self._entries.get(key)
        if entry is not None and not entry.actor.mailbox.is_closed and entry.actor.state is not ActorState.STOPPED:
            reply = PendingReply(command)
            entry.actor.mailbox.offer(reply)
            await reply.wait()

    @asynccontextmanager
    async def set_aside(self, key: ConversationKey, *, verdict: ClientError) -> AsyncIterator[Lease]:
        """In the block nobody serves ``key``: its actor was cut off and no other starts; commands are told ``verdict``.

        Nobody else sets it aside meanwhile, or holds it.
        Raises: Unavailable: its actor did not end in time, or lives on another server; somebody else goes on with it.
        """
        reopen = self._closing.mark(key, verdict)
        try:
            async with self._alone(key):
                await self._ended(key, verdict)
                lease = await self._leases.acquire(key)
                yield lease
                await self._parts.store.release(lease)
        except LeaseHeld as exc:
            raise self._unavailable("another server holds the conversation") from exc
        finally:
            reopen()

    @asynccontextmanager
    async def lent(self, key: ConversationKey) -> AsyncIterator[Lease | None]:
        """The right to write beside the actor of ``key``, which stays in service; None while a turn runs there.

        For what its actor does not touch again, such as a sub-agent that ended. Nobody sets it aside in the block; an
        actor that starts meanwhile, or leaves, may fence it.
        Raises: ClientError: somebody is about to set it aside. Unavailable: it lives on another server.
        """
        with self._closing.holding(key):
            if (entry := self._entries.get(key)) is not None:
                is_free = entry.lease is not None and entry.holds(entry.lease) and entry.actor.state is ActorState.IDLE
                yield entry.lease if is_free else None
                return
            try:
                lease = await self._leases.acquire(key)
            except LeaseHeld as exc:
                raise self._unavailable("another server holds the conversation") from exc
            yield lease
            await self._parts.store.release(lease)

    @asynccontextmanager
    async def _alone(self, key: ConversationKey) -> AsyncIterator[None]:
        is_alone = False
        try:
            async with self._closing.alone(key, deadline_s=self._options.cut_deadline_s):
                is_alone = True
                yield
        except TimeoutError:
            if is_alone:
                raise
            raise self._unavailable("something else is being done with the conversation") from None

    async def release(self, key: ConversationKey) -> None:
        """See the contract."""
        row = await self._parts.store.describe(key)
        if row is None or not row.quarantine:
            return
        is_due = await lift(key, self._parts)
        self._crashes.forget(key)
        self._counts.releases += 1
        if is_due:
            with suppress(ClientError):  # without room now, a later look finds what is due
                self.post(key, Wake())

    def stop_taking(self) -> None:
        """From now on no turn and no step of one begins, and every actor leaves as soon as it may. Again is once."""
        self._stopping.set()
        for entry in self._entries.values():
            entry.actor.leave()

    async def emptied(self) -> None:
        """Return once nobody lives; to be waited for by one task."""
        while self._entries:
            self._emptied = anyio.Event()
            await self._emptied.wait()

    def cut_off(self) -> int:
        """End whoever is still there. Returns: how many turns that cut off; they go on at the next start."""
        self._is_cut_off = True
        cut = len(self.turns())
        for entry in self._entries.values():
            entry.end(self._unavailable("the server is stopping"))
        return cut

    def turns(self) -> tuple[RunningTurn, ...]:
        """Those that run now, the oldest first."""
        return running_turns((entry.actor for entry in self._entries.values()), agents=self._parts.agents)

    def statistics(self) -> SupervisorStatistics:
        """Costs a look at each live conversation."""
        return statistics_of(
            self._entries.values(),
            self._counts,
            waiting_thaws=self._thaws.statistics().waiting,
            memory_bytes=self._room.memory_bytes(),
        )

    def __repr__(self) -> str:
        return f"<Supervisor {self._holder} live={len(self._entries)} stopping={self._stopping.is_set()}>"

    def _live(self) -> int:
        """How many places are taken."""
        return len(self._entries) - self._guests

    def _make_room(self) -> None:
        """Let one more have a place. Raises: Busy: there is none."""
        if (refusal := self._passivation.refusal(live=self._live())) is not None:
            raise self._turned_away(refusal)

    def _turned_away(self, refusal: Refusal) -> Busy:
        self._counts.refused[refusal] += 1
        return self._room.turned_away(refusal, live=self._live(), waiting=self._thaws.statistics().waiting)

    def _seat(self, entry: Entry) -> None:
        """Let a guest have a place, since its conversation exists or may begin now. Raises: Busy: there is none."""
        self._make_room()
        entry.is_guest = False
        self._guests -= 1

    def _started(self, key: ConversationKey, command: Command, *, is_guest: bool = False) -> PendingReply:
        reply = PendingReply(command)
        entry = self._entries[key] = Entry(Actor(key, self._parts, on_rest=self._rested), is_guest=is_guest)
        self._guests += is_guest
        entry.actor.mailbox.offer(reply)
        self._start(entry)
        if self._stopping.is_set():
            entry.actor.leave()
        return reply

    def _start(self, entry: Entry) -> None:
        assert self._tasks is not None, "the supervisor is not running"
        self._tasks.start_soon(self._incarnate, entry, name=f"actor:{entry.actor.key.conversation}")

    async def _incarnate(self, entry: Entry) -> None:
        """Run one incarnation to its end, and start the next one or forget the conversation."""
        error: TorporError = self._unavailable("the conversation was interrupted")
        is_followed = False
        try:
            error, restart_s = await self._lived(entry, error)
            if restart_s:
                with anyio.move_on_after(restart_s) as entry.scope:
                    await self._stopping.wait()
            is_followed = restart_s is not None and entry.verdict is None and not self._stopping.is_set()
        finally:
            if is_followed:
                self._succeed(entry)
            else:
                self._forget(entry, entry.verdict or error)

    async def _lived(self, entry: Entry, error: TorporError) -> tuple[TorporError, float | None]:
        """Run one incarnation; what its unanswered commands were told, and after how long the next one may start."""
        actor = entry.actor
        restart_s: float | None = None
        try:
            with entry.scope:
                await self._lead(entry)
                why = self._passivation.ended(actor)
                if actor.journal is not None and actor.journal.state.seq:
                    self._counts.hibernations[why] += 1
                self._crashes.rested(actor.key)
                restart_s = 0.0 if entry.next else None
        except Exception as exc:  # noqa: BLE001  the actor edge: one conversation's failure stays its own
            error, restart_s = await self._crashed(entry, root_cause(exc))
        except BaseExceptionGroup as exc:
            # It failed and was cut off at once, as trio tells them: its failure ends here, the cut goes on.
            cut, failed = exc.split(lambda inner: not isinstance(inner, Exception | BaseExceptionGroup))
            _log.warning("actor.failed_when_cut_off", conversation=actor.key.path, why=repr(failed))
            raise cut or exc from None
        finally:
            self._passivation.ended(actor)
            self._give_thaw_back(actor)
            if actor.state is not ActorState.STOPPED:
                actor.abandon(entry.verdict or error)
        return error, restart_s

    async def _lead(self, entry: Entry) -> None:
        await self._thaws.take(_owner(entry.actor))
        self._thawing.add(entry.actor)
        row = await self._parts.store.describe(entry.actor.key)
        if row is not None and row.quarantine:
            raise Quarantined(entry.actor.key.conversation, reason=row.quarantine)
        if entry.is_guest and row is not None:
            self._seat(entry)
        entry.lease = await self._leases.acquire(entry.actor.key)
        await entry.actor.run(entry.lease)

    def _succeed(self, entry: Entry) -> None:
        """Start the next incarnation with the commands that waited for it."""
        actor = Actor(entry.actor.key, self._parts, on_rest=self._rested)
        waiting, entry.next = entry.next, []
        for reply in waiting or [PendingReply(Wake())]:
            actor.mailbox.offer(reply)
        entry.follow(actor)
        self._start(entry)

    def _forget(self, entry: Entry, error: TorporError) -> None:
        del self._entries[entry.actor.key]
        self._guests -= entry.is_guest
        for reply in entry.next:
            reply.fail(error)
        self._on_gone(entry.actor.key)
        entry.forget()
        if not self._entries:
            self._emptied.set()

    async def _crashed(self, entry: Entry, exc: Exception) -> tuple[TorporError, float | None]:
        """The error for unanswered commands, and after how long to start again; None for not at all."""
        key, journal = entry.actor.key, entry.actor.journal
        match exc:
            case Fenced() | LeaseHeld():
                _log.info("lease.elsewhere", conversation=key.path, why=str(exc))
                return self._unavailable("another server holds the conversation"), None
            case Quarantined() | Busy():
                return exc, None
            case JournalCorrupt():
                return await self._quarantined(key, kind=QuarantineKind.JOURNAL, reason=exc.reason), None
        is_own = not isinstance(exc, StoreError)
        verdict = self._crashes.add(
            key,
            now_s=self._parts.clock.monotonic_s(),
            has_progressed=journal is not None and journal.has_committed,
            is_own=is_own,
        )
        self._counts.crashes += 1
        _log.error(
            "actor.crashed",
            conversation=key.path,
            crashes=verdict.in_a_row,
            why=repr(exc),
            exc_info=exc if is_own else None,
        )
        if verdict.given_up:
            reason = f"{verdict.given_up}, the last one {exc!r}"
            return await self._quarantined(key, kind=QuarantineKind.CRASHES, reason=reason), None
        self._counts.restarts += 1
        why = "the conversation was interrupted"
        if isinstance(exc, StoreError):
            is_full = isinstance(exc, StoreFull)  # its own words name a path, which is nobody's business
            why = "the server's storage is full" if is_full else "the server's storage does not answer"
        return self._unavailable(why), verdict.pause_s

    async def _quarantined(self, key: ConversationKey, *, kind: QuarantineKind, reason: str) -> Quarantined:
        self._counts.quarantines += 1
        return await mark_if_possible(key, self._parts, kind=kind, reason=reason)

    async def _ended(self, key: ConversationKey, verdict: ClientError) -> None:
        """Cut off the actor, if one lives, and wait until it has gone. Raises: Unavailable: it did not go in time."""
        if (entry := self._entries.get(key)) is None:
            return
        entry.end(verdict)
        with anyio.move_on_after(self._options.cut_deadline_s):
            await entry.gone()
        if self._entries.get(key) is entry:
            raise self._unavailable(f"the actor did not end within {self._options.cut_deadline_s:g} s")

    async def _sweep(self) -> None:
        """Look after leases, idle actors and what is due, again and again; one look that fails is not the last."""
        while True:
            try:
                await self._leases.renew(self._entries.values())
                self._passivation.look(live=self._live())
                await self._claim()
            except StoreError as exc:
                _log.warning("sweep.failed", why=str(exc))
            except Exception as exc:  # noqa: BLE001  the sweep's edge: a bug in it must not end every conversation
                _log.error("sweep.failed", why=repr(exc), exc_info=exc)
            await anyio.sleep(self._options.sweep_s)

    def _rested(self, actor: Actor) -> None:
        if self._give_thaw_back(actor):
            self._counts.thaws += 1
        entry = self._entries[actor.key]
        if entry.is_guest and actor.journal is not None and actor.journal.state.seq:
            # It was begun elsewhere while this one was on its way; one too many leaves at the next look.
            entry.is_guest = False
            self._guests -= 1
        if not entry.is_guest:
            self._passivation.rested(actor)

    def _give_thaw_back(self, actor: Actor) -> bool:
        """Let the next one load; False when this one is loaded already."""
        if actor not in self._thawing:
            return False
        self._thawing.discard(actor)
        self._thaws.give_back(_owner(actor))
        return True

    async def _claim(self) -> None:
        """Wake what is due and has no actor here, whether or not a client asks for it."""
        batch = self._options.due_batch
        due = await self._parts.store.due(now_us=_ALWAYS_US, limit=batch + len(self._entries))
        for key in [key for key in due if key not in self._entries and self._closing.verdict(key) is None][:batch]:
            if self._stopping.is_set() or self._passivation.refusal(live=self._live()) is not None:
                return  # what found no room is still due at the next look
            self._started(key, Wake())

    async def _stop(self) -> None:
        """Those that are still there after the deadline are cut off with their tasks, and go on at the next start."""
        if not self._is_cut_off:
            self.stop_taking()
            with anyio.move_on_after(self._options.stop_deadline_s, shield=True):
                await self.emptied()

    def _unavailable(self, why: str) -> Unavailable:
        return Unavailable(why, retry_after_s=self._options.unavailable_retry_after_s)


def _owner(actor: Actor) -> Owner:
    return actor.key.tenant, actor.key.owner
