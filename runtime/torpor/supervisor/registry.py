"""The supervisor: routes each command to the actor of its conversation, which is thawed on demand.

Above: the gateway, by contract. Below: ``lives``, the entries and their incarnations; ``closing``, what takes no
commands. A command is put into the mailbox of the conversation's actor at once, in order of calls; the actor is started
if none lives, and loads while commands wait, so concurrent thaws of one conversation are one. A hibernating actor takes
no more commands: they wait in the entry for the next incarnation.

Only so many actors live. For one more, the one that rested longest makes room, whether or not somebody watches it; one
that runs never does. Where nobody rests the command is answered as *busy* and nothing is recorded. A command that
cannot begin a conversation wants no room before its conversation is found to exist; where there is none it is refused,
and nothing of it stays.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import Final

import anyio
import structlog

from torpor.actor.lifecycle import ActorState
from torpor.actor.loop import BEGINNING
from torpor.actor.mailbox import PendingReply
from torpor.actor.parts import ActorParts
from torpor.errors import (
    ClientError,
    LeaseHeld,
    NotNow,
    Quarantined,
    StoreError,
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
from torpor.supervisor.leases import Leases
from torpor.supervisor.lives import Lives
from torpor.supervisor.memory import Memory, Unmeasured
from torpor.supervisor.options import SupervisorOptions
from torpor.supervisor.quarantine import lift, mark
from torpor.supervisor.statistics import Counts, SupervisorStatistics, shown
from torpor.supervisor.turns import running_turns

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
        self._parts = parts
        self._holder = holder
        self._options = options
        self._counts = Counts()
        self._leases = Leases(parts.store, clock=parts.clock, holder=holder, options=options)
        self._lives = Lives(
            parts,
            options=options,
            leases=self._leases,
            memory=memory or Unmeasured(),
            chance=chance,
            on_gone=on_gone,
            counts=self._counts,
        )
        self._closing = Closing()
        self._is_cut_off = False
        self._has_ended = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Supervisor"]:
        """Claim what is due, sweep, and at the end let every actor leave within the stop deadline, unless that was done
        before."""
        async with anyio.create_task_group() as tasks:
            self._lives.live_in(tasks)
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
        return not self._lives.are_leaving

    def post(self, key: ConversationKey, command: Command) -> PendingReply:
        """See the contract. Raises: Busy, Unavailable, Quarantined."""
        if self._has_ended or (self._lives.are_leaving and not isinstance(command, _TAKEN_TO_THE_END)):
            raise self._lives.unavailable("the server is stopping")
        if (verdict := self._closing.verdict(key)) is not None:
            raise verdict
        entry = self._lives.get(key)
        if entry is None:
            return self._lives.begin(key, command, is_guest=isinstance(command, _OF_A_CLIENT))
        if entry.is_guest and isinstance(command, BEGINNING):
            self._lives.seat(entry)
        return self._lives.offer(entry, command)

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
        if (entry := self._lives.get(key)) is None:
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
        entry = self._lives.get(key)
        if entry is not None and entry.takes_commands:
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
            raise self._lives.unavailable("another server holds the conversation") from exc
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
            if (entry := self._lives.get(key)) is not None:
                is_free = entry.lease is not None and entry.holds(entry.lease) and entry.actor.state is ActorState.IDLE
                yield entry.lease if is_free else None
                return
            try:
                lease = await self._leases.acquire(key)
            except LeaseHeld as exc:
                raise self._lives.unavailable("another server holds the conversation") from exc
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
            raise self._lives.unavailable("something else is being done with the conversation") from None

    async def release(self, key: ConversationKey) -> None:
        """See the contract."""
        row = await self._parts.store.describe(key)
        if row is None or not row.quarantine:
            return
        is_due = await lift(key, self._parts)
        self._lives.forgive(key)
        self._counts.releases += 1
        if is_due:
            with suppress(ClientError):  # without room now, a later look finds what is due
                self.post(key, Wake())

    def stop_taking(self) -> None:
        """From now on no turn and no step of one begins, and every actor leaves as soon as it may. Again is once."""
        self._lives.leave()

    async def emptied(self) -> None:
        """Return once nobody lives; to be waited for by one task."""
        await self._lives.emptied()

    def cut_off(self) -> int:
        """End whoever is still there. Returns: how many turns that cut off; they go on at the next start."""
        self._is_cut_off = True
        cut = len(self.turns())
        self._lives.cut_off(self._lives.unavailable("the server is stopping"))
        return cut

    def turns(self) -> tuple[RunningTurn, ...]:
        """Those that run now, the oldest first."""
        return running_turns((entry.actor for entry in self._lives.entries()), agents=self._parts.agents)

    def statistics(self) -> SupervisorStatistics:
        """Costs a look at each live conversation."""
        return self._lives.statistics()

    def __repr__(self) -> str:
        return f"<Supervisor {self._holder} live={len(self._lives.entries())} stopping={self._lives.are_leaving}>"

    async def _ended(self, key: ConversationKey, verdict: ClientError) -> None:
        """Cut off the actor, if one lives, and wait until it has gone. Raises: Unavailable: it did not go in time."""
        if (entry := self._lives.get(key)) is None:
            return
        entry.end(verdict)
        with anyio.move_on_after(self._options.cut_deadline_s):
            await entry.gone()
        if self._lives.get(key) is entry:
            raise self._lives.unavailable(f"the actor did not end within {self._options.cut_deadline_s:g} s")

    async def _sweep(self) -> None:
        """Look after leases, idle actors and what is due, again and again; one look that fails is not the last."""
        while True:
            try:
                await self._leases.renew(self._lives.entries())
                self._lives.look()
                await self._claim()
            except StoreError as exc:
                _log.warning("sweep.failed", why=str(exc))
            except Exception as exc:  # noqa: BLE001  the sweep's edge: a bug in it must not end every conversation
                _log.error("sweep.failed", why=repr(exc), exc_info=exc)
            await anyio.sleep(self._options.sweep_s)

    async def _claim(self) -> None:
        """Wake what is due and has no actor here, whether or not a client asks for it."""
        batch = self._options.due_batch
        due = await self._parts.store.due(now_us=_ALWAYS_US, limit=batch + len(self._lives.entries()))
        asleep = [key for key in due if self._lives.get(key) is None and self._closing.verdict(key) is None]
        for key in asleep[:batch]:
            if not self._lives.wake(key):
                return  # what found no room is still due at the next look

    async def _stop(self) -> None:
        """Those that are still there after the deadline are cut off with their tasks, and go on at the next start."""
        if not self._is_cut_off:
            self.stop_taking()
            with anyio.move_on_after(self._options.stop_deadline_s, shield=True):
                await self.emptied()
