"""The actor: one task that owns one conversation from thaw to hibernation.

    thaw -> [ idle: wait for commands ] <-> [ awake: turns run, commands are served beside them ] -> hibernate

It is the only writer of its journal. While turns run, the mailbox is served by a second task of the same actor; both
write through the one ``Journal``. Whatever goes wrong ends the actor, never a sibling; the supervisor decides what
comes next.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, assert_never

import anyio
import msgspec
import structlog

from torpor.actor.commit import Journal
from torpor.actor.interpreting import interpreter_of
from torpor.actor.lifecycle import ActorState, Signal, next_state
from torpor.actor.mailbox import Answer, Mailbox, PendingReply
from torpor.actor.parts import ActorParts
from torpor.actor.recorder import Recorder
from torpor.actor.thaw import thaw
from torpor.conversation.snapshot import SNAPSHOT_VERSION, encode_snapshot
from torpor.conversation.state import CallState, ConversationState
from torpor.conversation.steps import Lane, Rest, next_step
from torpor.conversation.view import View
from torpor.errors import (
    Fenced,
    NothingToCancel,
    NotNow,
    StoreError,
    TooManyConversations,
    TorporError,
    Unavailable,
)
from torpor.records.commands import (
    ArchiveConversation,
    CancelTurn,
    CreateConversation,
    Hibernate,
    RefreshLiveContext,
    RenameConversation,
    RetractMessage,
    SendMessage,
    TellContext,
    TellLiveContext,
    Wake,
)
from torpor.records.ids import ConversationKey
from torpor.records.journal import LateResult
from torpor.records.terms import Outcome, WhenBusy
from torpor.store.contract import Lease, Snapshot
from torpor.toolhost.contract import ToolResult
from torpor.turn import notes
from torpor.turn.contract import NO_SPAWNS
from torpor.turn.interpret import Doing, Interpreter

_log = structlog.get_logger()


class Actor:
    """One incarnation of one conversation."""

    __slots__ = (
        "_changed",
        "_hibernations",
        "_interpreter",
        "_is_leaving",
        "_is_resting",
        "_journal",
        "_on_rest",
        "_parts",
        "_recovers",
        "_snapshot",
        "_stray_count",
        "_unanswered",
        "key",
        "mailbox",
        "state",
    )

    def __init__(self, key: ConversationKey, parts: ActorParts, *, on_rest: Callable[["Actor"], None]) -> None:
        """Args: on_rest: is told whenever the actor has nothing left to do."""
        self.key = key
        self.mailbox = Mailbox(capacity=parts.actor.mailbox_capacity, retry_after_s=parts.actor.busy_retry_after_s)
        self.state = ActorState.THAWING
        self._parts = parts
        self._on_rest = on_rest
        self._journal: Journal | None = None
        self._interpreter: Interpreter | None = None
        self._snapshot = ConversationState()
        self._hibernations: list[PendingReply] = []
        self._unanswered: list[PendingReply] = []
        self._stray_count = 0
        self._changed: anyio.Event | None = None
        self._is_leaving = False
        self._is_resting = True
        self._recovers = False

    @property
    def doing(self) -> Doing | None:
        """The step of its turn that is under way."""
        return self._interpreter.doing if self._interpreter is not None else None

    @property
    def has_commands(self) -> bool:
        """Whether any command waits for it or for its answer."""
        return len(self.mailbox) > 0 or any(not reply.is_done for reply in self._unanswered)

    @property
    def journal(self) -> Journal | None:
        """None until the conversation is loaded."""
        return self._journal

    async def run(self, lease: Lease) -> None:
        """Thaw, serve until hibernation, release the lease.

        Raises: JournalCorrupt: nothing was served. Fenced: another writer took over; nothing was written since. Any
        other exception is a crash; commands without an answer are still to be failed with ``abandon``.
        """
        journal = await self._thawed(lease)
        self._rest(Signal.LOADED)
        self._recovers = self._has_work(journal)
        while True:
            while self._has_work(journal):  # again: a command may be taken while the last turn comes to rest
                try:
                    await self._awake(journal)
                except BaseException:
                    self._parts.observer.interrupted(self.key)  # a turn that is over may have left something running
                    raise
            await self._snapshot_if_due(journal)
            if self._may_leave(journal) and self.mailbox.close_if_empty():
                break
            await self._serve(journal, await self.mailbox.receive())
            if not self._has_work(journal):
                await journal.flush()  # what no turn follows is committed for its own sake
        self._signal(Signal.MAILBOX_CLOSED)
        await self._parts.store.release(journal.lease)
        self._signal(Signal.RELEASED)
        for reply in self._hibernations:
            reply.resolve(_DONE)

    def leave(self) -> None:
        """End at the next step's boundary, as if it hibernated; a turn that is not over stays due.

        What waits in the mailbox is recorded and answered before; of it no turn begins.
        """
        self._is_leaving = True
        if self._interpreter is not None:
            self._interpreter.pause()
        self.mailbox.wake()

    def abandon(self, error: TorporError) -> None:
        """Answer every command that has no answer with ``error``; the actor has ended."""
        self.state = next_state(self.state, Signal.ENDED)
        self._parts.creations.settle(self.key)
        for reply in (*self._unanswered, *self._hibernations, *self.mailbox.take()):
            reply.fail(error)

    def pack(self) -> None:
        """Hold an idle history as one piece of memory."""
        if self.state is ActorState.IDLE and self._journal is not None:
            state = self._journal.state
            if (view := state.view.packed()) is not state.view:
                self._journal.replace_view(msgspec.structs.replace(state, view=view))

    def left_running(self, call: CallState) -> None:
        """Implements ``turn.tool_batch.Strays``."""
        self._stray_count += 1

    def stopped(self, call: CallState) -> None:
        """Implements ``turn.tool_batch.Strays``."""
        self._stray_count -= 1
        self._look_again()

    def ended_late(self, call: CallState, result: ToolResult, *, of_turn: int) -> None:
        """Implements ``turn.tool_batch.Strays``: the note waits for the next turn; an end that is unknown as well is
        no news."""
        self._stray_count -= 1
        journal, is_news = self._journal, result.outcome is not Outcome.UNKNOWN
        if is_news and journal is not None and call.id in journal.state.lost_calls:
            note = notes.late_result(call.name, result, of_turn=of_turn)
            journal.add(LateResult(call_id=call.id, name=call.name, of_turn=of_turn, outcome=result.outcome, note=note))
        self._look_again()

    async def _thawed(self, lease: Lease) -> Journal:
        parts = self._parts
        thawed = await thaw(parts.store, self.key)
        state = thawed.state
        if (agent := parts.agents.get(state.agent)) is not None:
            used, *before = map(agent.interned, (state.preamble, *state.preambles))
            state = msgspec.structs.replace(state, preamble=used, preambles=tuple(before))
        if thawed.snapshot is not None:
            self._snapshot = _marks(thawed.snapshot)
        self._journal = Journal(
            self.key,
            state,
            lease=lease,
            store=parts.store,
            bus=parts.bus,
            clock=parts.clock,
            ids=parts.ids,
            steps=parts.steps,
            jobs_added=parts.jobs_added,
            observer=parts.observer,
        )
        return self._journal

    async def _awake(self, journal: Journal) -> None:
        """Run turns until there is nothing to do, and serve commands beside them."""
        parts = self._parts
        self._signal(Signal.WORK_FOUND)
        self._is_resting = False
        async with anyio.create_task_group() as tasks:
            self._interpreter = interpreter_of(
                self.key,
                parts,
                journal=journal,
                agent=parts.agents.get(journal.state.agent),
                steps=parts.steps,
                tasks=tasks,
                strays=self,
                land_soon=self.mailbox.wake,
                recovers=self._recovers,
                spawns=NO_SPAWNS if parts.spawns is None else parts.spawns(self.key, journal, parts),
                observer=parts.observer,
            )
            self._recovers = False
            if self._is_leaving:
                self._interpreter.pause()
            tasks.start_soon(self._serve_beside, journal)
            await self._interpreter.run()
            while self._stray_count:
                self._changed = anyio.Event()
                await self._changed.wait()
                await self._interpreter.run()
            self._is_resting = True
            self.mailbox.wake()
        self._interpreter = None
        self._rest(Signal.RESTED)

    async def _serve_beside(self, journal: Journal) -> None:
        """Take commands while turns run, and see every commit land that nobody else waits for."""
        while not self._is_resting:
            await self._serve(journal, await self.mailbox.receive())
            await journal.flush()
            self._look_again()

    async def _serve(self, journal: Journal, replies: list[PendingReply]) -> None:
        """Take commands in order; those that arrived together share the next commit."""
        self._unanswered = [reply for reply in self._unanswered if not reply.is_done]
        self._unanswered.extend(replies)
        for reply in replies:
            command = reply.command
            if isinstance(command, BEGINNING) and not journal.state.seq and not await self._may_begin(reply):
                continue
            match command:
                case SendMessage():
                    await self._receive(journal, reply, command)
                case CreateConversation() | RenameConversation() | ArchiveConversation() | RetractMessage():
                    self._manage(journal, reply, command)
                case TellContext() | TellLiveContext() | RefreshLiveContext():
                    self._record(journal, reply, command)
                case CancelTurn():
                    self._cancel(journal, reply, command)
                case Hibernate():
                    self._hibernate(journal, reply, command)
                case Wake():
                    reply.resolve(_DONE)
                case _:
                    assert_never(command)
            if isinstance(command, BEGINNING):
                journal.after_commit(partial(self._parts.creations.settle, self.key))

    async def _may_begin(self, reply: PendingReply) -> bool:
        """Whether the owner may have one more conversation; the sender is told when not."""
        try:
            await self._parts.creations.admit(self.key, counts=self._parts.store)
        except TooManyConversations as refusal:
            reply.fail(refusal)
            return False
        return True

    async def _receive(self, journal: Journal, reply: PendingReply, command: SendMessage) -> None:
        """Record a message once; a resend gets the first receipt again."""
        receipt = journal.pending_receipt(command.message_id)
        if receipt is None and journal.state.seq:
            if (known := await self._parts.store.receipt(self.key, command.message_id)) is not None:
                reply.resolve(known)
                return
            receipt = journal.pending_receipt(command.message_id)
        if receipt is None:
            running = journal.state.turn
            try:
                receipt = Recorder(self.key, self._parts, journal=journal).message(command)
            except TorporError as refusal:
                reply.fail(refusal)
                return
            if command.when_busy is WhenBusy.INTERRUPT and running is not None and self._interpreter is not None:
                journal.after_commit(partial(self._interpreter.cancel, "interrupt", turn=running.number))
        journal.after_commit(partial(reply.resolve, receipt))

    def _manage(
        self,
        journal: Journal,
        reply: PendingReply,
        command: CreateConversation | RenameConversation | ArchiveConversation | RetractMessage,
    ) -> None:
        """Commands that concern no turn."""
        recorder = Recorder(self.key, self._parts, journal=journal)
        try:
            match command:
                case CreateConversation():
                    recorder.create(command)
                case RenameConversation():
                    recorder.rename(command)
                case ArchiveConversation():
                    recorder.archive(command)
                case RetractMessage():
                    recorder.retract(command)
                case _:
                    assert_never(command)
        except TorporError as refusal:
            reply.fail(refusal)
            return
        journal.after_commit(partial(reply.resolve, _DONE))

    def _record(
        self, journal: Journal, reply: PendingReply, command: TellContext | TellLiveContext | RefreshLiveContext
    ) -> None:
        """Commands that change what turns are told, and answer at once when they change nothing."""
        recorder = Recorder(self.key, self._parts, journal=journal)
        try:
            match command:
                case TellContext():
                    answer: Answer = recorder.context(command)
                case TellLiveContext():
                    recorder.live_context(command)
                    answer = _DONE
                case RefreshLiveContext():
                    answer = recorder.refresh(command)
                case _:
                    assert_never(command)
        except TorporError as refusal:
            journal.after_commit(partial(reply.fail, refusal))
            return
        journal.after_commit(partial(reply.resolve, answer))

    def _cancel(self, journal: Journal, reply: PendingReply, command: CancelTurn) -> None:
        running, interpreter = journal.state.turn, self._interpreter
        opening = interpreter.opening if interpreter is not None else None
        turn = running.number if running is not None else opening
        if turn is None or (interpreter is None and not self._is_leaving):
            reply.fail(NothingToCancel())
            return
        if interpreter is None or self._is_resting:
            retry_after_s = self._parts.actor.busy_retry_after_s
            reply.fail(Unavailable("the turn goes on when the server has started again", retry_after_s=retry_after_s))
            return
        interpreter.cancel(command.reason, turn=turn, ended=partial(reply.resolve, turn))

    def _hibernate(self, journal: Journal, reply: PendingReply, command: Hibernate) -> None:
        turn = journal.state.turn
        if turn is not None and command.deadline_s <= 0:
            reply.fail(NotNow(turn=turn.number, deadline_s=command.deadline_s))
            return
        self._hibernations.append(reply)

    def _is_asked_to_leave(self) -> bool:
        """Somebody still waits for it: one whose deadline passed has been told so and wants it no more."""
        self._hibernations = [reply for reply in self._hibernations if not reply.is_done]
        return bool(self._hibernations) or self._is_leaving

    def _may_leave(self, journal: Journal) -> bool:
        """Whether it need not stay; one without a journal has nothing to stay for, whatever it was asked."""
        return not journal.state.seq or self._is_asked_to_leave()

    async def _snapshot_if_due(self, journal: Journal) -> None:
        """Its cost is amortised: what was written since the last one must outweigh a share of it."""
        state, last, bounds = journal.state, self._snapshot, self._parts.actor
        tail_bytes = state.view.size_bytes - last.view.size_bytes + RECORD_BYTES * (state.seq - last.seq)
        due_bytes = max(bounds.snapshot_min_bytes, bounds.snapshot_share * last.view.size_bytes)
        if tail_bytes < (bounds.hibernation_share if self._is_asked_to_leave() else 1.0) * due_bytes:
            return
        if not state.seq or not self._is_at_rest(journal):
            return  # there is nothing to save, or it leaves in the middle of a turn, or before one
        snapshot = Snapshot(seq=state.seq, version=SNAPSHOT_VERSION, data=encode_snapshot(state))
        try:
            await self._parts.store.put_snapshot(self.key, fence=journal.lease.fence, snapshot=snapshot)
        except Fenced:
            raise
        except StoreError as exc:
            _log.warning("snapshot.failed", conversation=self.key.path, seq=state.seq, why=str(exc))
            return
        self._snapshot = _marks(state)

    def _has_work(self, journal: Journal) -> bool:
        return not self._is_leaving and not self._is_at_rest(journal)

    def _is_at_rest(self, journal: Journal) -> bool:
        step = next_step(journal.state, Lane.TURN, self._parts.steps, self._parts.clock.now_us())
        return isinstance(step, Rest)

    def _look_again(self) -> None:
        if self._changed is not None:
            self._changed.set()

    def _rest(self, signal: Signal) -> None:
        self._signal(signal)
        self._on_rest(self)

    def _signal(self, signal: Signal) -> None:
        self.state = next_state(self.state, signal)

    def __repr__(self) -> str:
        return f"<Actor {self.key.path} {self.state.value} mailbox={len(self.mailbox)}>"


_DONE: Final = True
BEGINNING: Final = (SendMessage, TellContext, CreateConversation)
"""Commands that begin a conversation where there is none."""
RECORD_BYTES: Final = 256
"""What a record costs in the journal beside its text, about; only the choice of moments for snapshots rests on it."""


def _marks(state: ConversationState) -> ConversationState:
    """Of a state that was saved, the numbers that tell when the next one is due; not its text."""
    return ConversationState(seq=state.seq, view=View(size_bytes=state.view.size_bytes))
