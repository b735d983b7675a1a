"""The live conversations: one entry each, its incarnations one after another, and what follows the crash of one.

Above: the registry, which knows what commands mean and who may have them. Below: actors; ``passivate``, who sleeps when
room is wanted; ``crashes``, what is done after one. Each entry has a task, in which an actor is led from its lease to
its end; then the next one is started, or the conversation is forgotten. Only so many load at once; owners take turns.

A *guest* is the entry of a conversation that may not exist: it takes nobody's place before it is found to.

A crash ends one actor and nothing else. Its unanswered commands fail as *unavailable* (the client resends under the
same id); a conversation that is still due is started again after a growing pause, and one that never gets anywhere or
crashes too often, or whose journal cannot be trusted, is quarantined.
"""

from collections.abc import Callable, Collection

import anyio
import anyio.abc
import structlog

from torpor.actor.lifecycle import ActorState
from torpor.actor.loop import Actor
from torpor.actor.mailbox import PendingReply
from torpor.actor.parts import ActorParts
from torpor.errors import (
    Busy,
    ClientError,
    Fenced,
    JournalCorrupt,
    LeaseHeld,
    Quarantined,
    StoreError,
    StoreFull,
    TorporError,
    Unavailable,
)
from torpor.records.commands import Command, Hibernate, Wake
from torpor.records.ids import ConversationKey
from torpor.store.contract import QuarantineKind
from torpor.supervisor.crashes import Crashes, root_cause
from torpor.supervisor.entry import Entry
from torpor.supervisor.leases import Leases
from torpor.supervisor.memory import Memory
from torpor.supervisor.options import SupervisorOptions
from torpor.supervisor.passivate import Passivation
from torpor.supervisor.quarantine import mark_if_possible
from torpor.supervisor.room import Room
from torpor.supervisor.statistics import Counts, Refusal, SupervisorStatistics, statistics_of
from torpor.turn.places import FairPlaces, Owner

_log = structlog.get_logger()


class Lives:
    """See the module docstring. ``counts`` is shared with the registry."""

    def __init__(
        self,
        parts: ActorParts,
        *,
        options: SupervisorOptions,
        leases: Leases,
        memory: Memory,
        chance: Callable[[], float],
        on_gone: Callable[[ConversationKey], None],
        counts: Counts,
    ) -> None:
        """Args: chance: a number from 0 up to 1, another one each time.  on_gone: told of each that lives no more."""
        monotonic_s = parts.clock.monotonic_s
        self._parts = parts
        self._options = options
        self._leases = leases
        self._on_gone = on_gone
        self._counts = counts
        self._entries: dict[ConversationKey, Entry] = {}
        self._guests = 0
        self._room = Room(options, memory=memory, chance=chance, monotonic_s=monotonic_s)
        self._passivation = Passivation(options, room=self._room, clock=parts.clock)
        self._crashes = Crashes(options, chance=chance)
        self._thaws = FairPlaces(options.thaws_max, monotonic_s=monotonic_s)
        self._thawing: set[Actor] = set()
        """Those that hold a place among the thaws."""
        self._tasks: anyio.abc.TaskGroup | None = None
        self._leaving = anyio.Event()
        self._emptied = anyio.Event()

    def live_in(self, tasks: anyio.abc.TaskGroup) -> None:
        """Each conversation has a task there."""
        self._tasks = tasks

    def get(self, key: ConversationKey) -> Entry | None:
        """None when it does not live."""
        return self._entries.get(key)

    def entries(self) -> Collection[Entry]:
        """All of them, guests as well."""
        return self._entries.values()

    def begin(self, key: ConversationKey, command: Command, *, is_guest: bool) -> PendingReply:
        """Start the actor of one that does not live, with its first command. Raises: Busy: there is no room."""
        if not is_guest:
            self._make_room()
        elif self._guests >= self._options.live_max:
            raise self._turned_away(Refusal.LIVE)
        return self._started(key, command, is_guest=is_guest)

    def wake(self, key: ConversationKey) -> bool:
        """Start the actor of one that does not live, unasked; False where there is no room."""
        if self.are_leaving or self._passivation.refusal(live=self._live()) is not None:
            return False
        self._started(key, Wake(), is_guest=False)
        return True

    def seat(self, entry: Entry) -> None:
        """Let a guest have a place, since its conversation exists or may begin now. Raises: Busy: there is none."""
        self._make_room()
        entry.is_guest = False
        self._guests -= 1

    def offer(self, entry: Entry, command: Command) -> PendingReply:
        """Put it into the mailbox, or let it wait for the next incarnation.

        Raises: Busy, Unavailable: there is no room for it.
        """
        reply = PendingReply(command)
        if entry.takes_commands:
            entry.actor.mailbox.offer(reply)
            if not isinstance(command, Hibernate) and not entry.is_guest:
                self._passivation.used(entry.actor)
        elif len(entry.next) < self._parts.actor.mailbox_capacity:
            entry.next.append(reply)
        else:
            raise self.unavailable("the conversation is between two incarnations")
        return reply

    def look(self) -> None:
        """Let sleep who should; costs as much as there is to do."""
        self._passivation.look(live=self._live())

    def forgive(self, key: ConversationKey) -> None:
        """Its crashes so far do not count any more."""
        self._crashes.forget(key)

    @property
    def are_leaving(self) -> bool:
        """Whether all were told to leave."""
        return self._leaving.is_set()

    def leave(self) -> None:
        """From now on no turn and no step of one begins, and every actor leaves as soon as it may. Again is once."""
        self._leaving.set()
        for entry in self._entries.values():
            entry.actor.leave()

    async def emptied(self) -> None:
        """Return once nobody lives; to be waited for by one task."""
        while self._entries:
            self._emptied = anyio.Event()
            await self._emptied.wait()

    def cut_off(self, verdict: ClientError) -> None:
        """End whoever is still there."""
        for entry in self._entries.values():
            entry.end(verdict)

    def statistics(self) -> SupervisorStatistics:
        """Costs a look at each."""
        return statistics_of(
            self._entries.values(),
            self._counts,
            waiting_thaws=self._thaws.statistics().waiting,
            memory_bytes=self._room.memory_bytes(),
        )

    def unavailable(self, why: str) -> Unavailable:
        """With the time after which to come again."""
        return Unavailable(why, retry_after_s=self._options.unavailable_retry_after_s)

    def __repr__(self) -> str:
        return f"<Lives {len(self._entries)} guests={self._guests} leaving={self.are_leaving}>"

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

    def _started(self, key: ConversationKey, command: Command, *, is_guest: bool) -> PendingReply:
        reply = PendingReply(command)
        entry = self._entries[key] = Entry(Actor(key, self._parts, on_rest=self._rested), is_guest=is_guest)
        self._guests += is_guest
        entry.actor.mailbox.offer(reply)
        self._start(entry)
        if self.are_leaving:
            entry.actor.leave()
        return reply

    def _start(self, entry: Entry) -> None:
        assert self._tasks is not None, "the supervisor is not running"
        self._tasks.start_soon(self._incarnate, entry, name=f"actor:{entry.actor.key.conversation}")

    async def _incarnate(self, entry: Entry) -> None:
        """Run one incarnation to its end, and start the next one or forget the conversation."""
        error: TorporError = self.unavailable("the conversation was interrupted")
        is_followed = False
        try:
            error, restart_s = await self._lived(entry, error)
            if restart_s:
                with anyio.move_on_after(restart_s) as entry.scope:
                    await self._leaving.wait()
            is_followed = restart_s is not None and entry.verdict is None and not self.are_leaving
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
            self.seat(entry)
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
                return self.unavailable("another server holds the conversation"), None
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
        return self.unavailable(why), verdict.pause_s

    async def _quarantined(self, key: ConversationKey, *, kind: QuarantineKind, reason: str) -> Quarantined:
        self._counts.quarantines += 1
        return await mark_if_possible(key, self._parts, kind=kind, reason=reason)

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


def _owner(actor: Actor) -> Owner:
    return actor.key.tenant, actor.key.owner
