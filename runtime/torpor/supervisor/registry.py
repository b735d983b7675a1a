"""The supervisor: one entry per live conversation, thawed on demand, put to sleep when idle.

A command is put into the mailbox of the conversation's actor at once, in order of calls; the actor is started if none
lives, and loads while commands wait, so concurrent thaws of one conversation are one. A hibernating actor takes no more
commands: they wait in the entry for the next incarnation.

A crash ends one actor and nothing else. Its unanswered commands fail as *unavailable* (the client resends under the
same id); a conversation that is still due is started again after a growing pause, and one that never gets anywhere,
or whose journal cannot be trusted, is quarantined.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import takewhile
from typing import Final

import anyio
import anyio.abc
import structlog

from torpor.actor.lifecycle import ActorState
from torpor.actor.loop import Actor
from torpor.actor.mailbox import PendingReply
from torpor.actor.parts import ActorParts
from torpor.errors import (
    Fenced,
    JournalCorrupt,
    LeaseHeld,
    NotNow,
    Quarantined,
    StoreError,
    StoreFull,
    TorporError,
    Unavailable,
)
from torpor.records.commands import Command, Hibernate, Wake
from torpor.records.ids import ConversationKey
from torpor.store.contract import Lease
from torpor.supervisor.contract import Answer, Listing, LiveStatus
from torpor.supervisor.options import SupervisorOptions

_ALWAYS_US: Final = 2**62
"""After every mark."""
_log = structlog.get_logger()


class _Entry:
    """A live conversation: its actor, and what waits for the next one."""

    __slots__ = ("actor", "crashes", "lease", "next", "scope")

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.next: list[PendingReply] = []
        self.crashes = 0
        self.scope: anyio.CancelScope | None = None
        self.lease: Lease | None = None

    def holds(self, lease: Lease) -> bool:
        """Whether its actor works under ``lease``, and neither left nor was followed by another one."""
        return self.lease is lease and self.actor.state not in {ActorState.HIBERNATING, ActorState.STOPPED}


class Supervisor:
    """Implements ``supervisor.contract.Conversations``; ``async with supervisor.running()``."""

    def __init__(self, parts: ActorParts, *, holder: str, options: SupervisorOptions) -> None:
        self._parts = parts
        self._holder = holder
        self._options = options
        self._entries: dict[ConversationKey, _Entry] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._stopping = anyio.Event()
        self._emptied = anyio.Event()
        self._has_lapsing_leases = False
        self._has_claimed = False
        self._resting: dict[Actor, float] = {}
        self._packed: dict[Actor, float] = {}
        # Both: since when, in this order, some of them awake again; a turn moves its actor to the end of the first.

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Supervisor"]:
        """Claim what is due, sweep, and at the end let every actor leave within the stop deadline."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._sweep, name="supervisor:sweep")
            try:
                yield self
            finally:
                await self._stop()
                tasks.cancel_scope.cancel()

    @property
    def accepts(self) -> bool:
        """Whether commands are taken; no more once it stops."""
        return not self._stopping.is_set()

    def post(self, key: ConversationKey, command: Command) -> PendingReply:
        """See the contract. Raises: Busy, Unavailable."""
        if self._stopping.is_set():
            raise self._unavailable("the server is stopping")
        reply = PendingReply(command)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(Actor(key, self._parts, on_rest=self._rested))
            entry.actor.mailbox.offer(reply)
            self._start(entry)
        elif entry.actor.mailbox.is_closed or entry.actor.state is ActorState.STOPPED:
            if len(entry.next) >= self._parts.actor.mailbox_capacity:
                raise self._unavailable("the conversation is between two incarnations")
            entry.next.append(reply)
        else:
            entry.actor.mailbox.offer(reply)
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
            state=(ActorState.THAWING if actor.state is ActorState.STOPPED else actor.state).value,
            turn=state.turn.number if state and state.turn else 0,
            waiting=len(state.queued) if state else 0,
        )

    async def list_conversations(
        self, *, tenant: str | None, owner: str | None, limit: int, after: ConversationKey | None = None
    ) -> tuple[Listing, ...]:
        rows = await self._parts.store.list_conversations(tenant=tenant, owner=owner, limit=limit, after=after)
        return tuple(Listing(row=row, live=self.live_status(row.key)) for row in rows)

    def __repr__(self) -> str:
        return f"<Supervisor {self._holder} live={len(self._entries)} stopping={self._stopping.is_set()}>"

    def _start(self, entry: _Entry) -> None:
        assert self._tasks is not None, "the supervisor is not running"
        self._tasks.start_soon(self._incarnate, entry, name=f"actor:{entry.actor.key.conversation}")

    async def _incarnate(self, entry: _Entry) -> None:
        """Run one incarnation to its end, and start the next one or forget the conversation."""
        error: TorporError = self._unavailable("the conversation was interrupted")
        is_followed = False
        try:
            error, restart_s = await self._lived(entry, error)
            if restart_s:
                with anyio.move_on_after(restart_s):
                    await self._stopping.wait()
            is_followed = restart_s is not None and not self._stopping.is_set()
        finally:
            if is_followed:
                self._succeed(entry)
            else:
                self._forget(entry, error)

    async def _lived(self, entry: _Entry, error: TorporError) -> tuple[TorporError, float | None]:
        """Run one incarnation; what its unanswered commands were told, and after how long the next one may start."""
        actor = entry.actor
        restart_s: float | None = None
        try:
            with anyio.CancelScope() as entry.scope:
                await self._lead(entry)
                restart_s = 0.0 if entry.next else None
        except Exception as exc:  # noqa: BLE001  the actor edge: one conversation's failure stays its own
            error, restart_s = await self._crashed(entry, root_cause(exc))
        except BaseExceptionGroup as exc:
            # It failed and was cut off at once, as trio tells them: its failure ends here, the cut goes on.
            cut, failed = exc.split(lambda inner: not isinstance(inner, Exception | BaseExceptionGroup))
            _log.warning("actor.failed_when_cut_off", conversation=actor.key.path, why=repr(failed))
            raise cut or exc from None
        finally:
            self._forget_rest(actor)
            if actor.state is not ActorState.STOPPED:
                actor.abandon(error)
        return error, restart_s

    async def _lead(self, entry: _Entry) -> None:
        row = await self._parts.store.describe(entry.actor.key)
        if row is not None and row.quarantine:
            raise Quarantined(entry.actor.key.conversation, reason=row.quarantine)
        entry.lease = await self._parts.store.acquire(
            entry.actor.key,
            holder=self._holder,
            ttl_s=self._options.lease_ttl_s,
            now_us=self._parts.clock.now_us(),
        )
        self._has_lapsing_leases = self._has_lapsing_leases or entry.lease.expires_us > 0
        await entry.actor.run(entry.lease)

    def _succeed(self, entry: _Entry) -> None:
        """Start the next incarnation with the commands that waited for it."""
        actor = Actor(entry.actor.key, self._parts, on_rest=self._rested)
        waiting, entry.next = entry.next, []
        for reply in waiting or [PendingReply(Wake())]:
            actor.mailbox.offer(reply)
        entry.actor, entry.lease = actor, None
        self._start(entry)

    def _forget(self, entry: _Entry, error: TorporError) -> None:
        del self._entries[entry.actor.key]
        for reply in entry.next:
            reply.fail(error)
        if not self._entries:
            self._emptied.set()

    async def _crashed(self, entry: _Entry, exc: Exception) -> tuple[TorporError, float | None]:
        """The error for unanswered commands, and after how long to start again; None for not at all."""
        key = entry.actor.key
        match exc:
            case Fenced() | LeaseHeld():
                _log.info("lease.elsewhere", conversation=key.path, why=str(exc))
                return self._unavailable("another server holds the conversation"), None
            case Quarantined():
                return exc, None
            case JournalCorrupt():
                return await self._quarantined(key, exc.reason), None
        journal = entry.actor.journal
        progressed = journal is not None and journal.has_committed
        entry.crashes = 1 if progressed else entry.crashes + 1
        _log.error("actor.crashed", conversation=key.path, crashes=entry.crashes, why=repr(exc), exc_info=exc)
        if entry.crashes > self._options.restarts_max and not isinstance(exc, StoreError):
            return await self._quarantined(key, f"{entry.crashes} crashes in a row, the last one {exc!r}"), None
        pause_s = self._options.restart_backoff_s * 2 ** min(entry.crashes - 1, 16)
        why = "the conversation was interrupted"
        if isinstance(exc, StoreError):
            why = str(exc) if isinstance(exc, StoreFull) else "the server's storage does not answer"
        return self._unavailable(why), min(pause_s, self._options.restart_backoff_max_s)

    async def _quarantined(self, key: ConversationKey, reason: str) -> Quarantined:
        _log.error("conversation.quarantined", conversation=key.path, reason=reason)
        try:
            await self._parts.store.quarantine(key, reason=reason)
        except StoreError as exc:
            _log.error("quarantine.failed", conversation=key.path, why=str(exc))
        return Quarantined(key.conversation, reason=reason)

    async def _sweep(self) -> None:
        """Look after leases, idle actors and what is due, again and again; one look that fails is not the last."""
        while True:
            try:
                await self._renew()
                self._passivate()
                await self._claim()
            except StoreError as exc:
                _log.warning("sweep.failed", why=str(exc))
            except Exception as exc:  # noqa: BLE001  the sweep's edge: a bug in it must not end every conversation
                _log.error("sweep.failed", why=repr(exc), exc_info=exc)
            await anyio.sleep(self._options.sweep_s)

    async def _renew(self) -> None:
        if not self._has_lapsing_leases:
            return
        for entry in tuple(self._entries.values()):
            lease = entry.lease
            if lease is None or not lease.expires_us or not entry.holds(lease):
                continue
            try:
                now_us = self._parts.clock.now_us()
                renewed = await self._parts.store.renew(lease, ttl_s=self._options.lease_ttl_s, now_us=now_us)
            except Fenced:
                # Meanwhile it may have been given back, or replaced by that of the next incarnation.
                if entry.holds(lease) and entry.scope is not None:
                    entry.scope.cancel()
            else:
                entry.lease = renewed if entry.holds(lease) else entry.lease

    def _rested(self, actor: Actor) -> None:
        self._forget_rest(actor)
        self._resting[actor] = self._parts.clock.monotonic_s()

    def _forget_rest(self, actor: Actor) -> None:
        self._resting.pop(actor, None)
        self._packed.pop(actor, None)

    def _passivate(self) -> None:
        """Pack those that rest, then let them sleep; a look costs as much as there is to do."""
        now_s = self._parts.clock.monotonic_s()
        idle_timeout_s = self._options.idle_timeout_s
        for actor, since_s in _idle_until(now_s - min(self._options.pack_after_s, idle_timeout_s), self._resting):
            actor.pack()
            del self._resting[actor]
            self._packed[actor] = since_s
        for actor, _ in _idle_until(now_s - idle_timeout_s, self._packed):
            actor.mailbox.offer_last(PendingReply(Hibernate()))
            del self._packed[actor]

    async def _claim(self) -> None:
        """Wake what is due and has no actor here, whether or not a client asks for it."""
        batch = self._options.due_batch
        # At the first look everything that is due counts: the clock may have been set back since it was marked.
        now_us = self._parts.clock.now_us() if self._has_claimed else _ALWAYS_US
        self._has_claimed = True
        due = await self._parts.store.due(now_us=now_us, limit=batch + len(self._entries))
        for key in [key for key in due if key not in self._entries][:batch]:
            if not self._stopping.is_set():
                self.post(key, Wake())

    async def _stop(self) -> None:
        """Ask every actor to leave; those that run a turn are cut off after the deadline and go on at the next
        start."""
        self._stopping.set()
        for entry in self._entries.values():
            if not entry.actor.mailbox.is_closed:
                entry.actor.mailbox.offer_last(PendingReply(Hibernate(deadline_s=self._options.stop_deadline_s)))
        if self._entries:
            self._emptied = anyio.Event()
            with anyio.move_on_after(self._options.stop_deadline_s, shield=True):
                await self._emptied.wait()

    def _unavailable(self, why: str) -> Unavailable:
        return Unavailable(why, retry_after_s=self._options.unavailable_retry_after_s)


def _idle_until(moment_s: float, resting: Mapping[Actor, float]) -> list[tuple[Actor, float]]:
    """Those that came to rest at ``moment_s`` or before and have had nothing to do since; longest first."""
    long_enough = takewhile(lambda item: item[1] <= moment_s, resting.items())
    return [item for item in long_enough if item[0].state is ActorState.IDLE and not len(item[0].mailbox)]


def root_cause(exc: Exception) -> Exception:
    """Of the errors that ended an actor's tasks together, the one that decides: a fence first, then the store's."""
    if not isinstance(exc, ExceptionGroup):
        return exc
    leaves = [root_cause(inner) for inner in exc.exceptions]
    for kind in (Fenced, JournalCorrupt, StoreError):
        if (found := next((leaf for leaf in leaves if isinstance(leaf, kind)), None)) is not None:
            return found
    return leaves[0]
