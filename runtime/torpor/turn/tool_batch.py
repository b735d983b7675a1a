"""The calls of one round: started together, settled one by one, each result committed as it ends.

A read may start while the commit that announces it is under way; a write waits for it. What a crash interrupted comes
back here as a call that has started: reads run again, writes are asked about, retried under their first key where the
tool keeps it, and otherwise reported as unknown.

A write that outlives its turn's cancellation goes on as a *stray*; its end is told at the next turn.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import anyio
import anyio.abc
import msgspec

from torpor.conversation.state import CallState, CallStatus, TurnState
from torpor.conversation.steps import RunTools
from torpor.errors import ToolRefused
from torpor.records.blocks import tool_result_block
from torpor.records.events import Progress
from torpor.records.ids import CallId, ConversationKey
from torpor.records.journal import (
    AttemptStarted,
    JournalRecord,
    SkillLoaded,
    SubagentFinished,
    ToolFinished,
    ToolStarted,
)
from torpor.records.terms import Effect, Outcome, StepKind
from torpor.toolhost.contract import EarlierAccess, FindingSink, Toolbox, ToolContext, ToolResult, ToolSpec
from torpor.toolhost.process import NotStarted
from torpor.turn import notes
from torpor.turn.contract import NO_SPAWNS, Journal, Spawns
from torpor.turn.permits import Permits
from torpor.turn.skills import TurnSkills


class Strays(Protocol):
    """Looks after calls that their turn did not wait for: writes, and reads that are slow to stop."""

    def left_running(self, call: CallState) -> None: ...

    def stopped(self, call: CallState) -> None:
        """A read that was left running has ended; nobody asks how."""
        ...

    def ended_late(self, call: CallState, result: ToolResult, *, of_turn: int) -> None: ...


class ToolBatch:
    """Performs one ``RunTools``."""

    def __init__(
        self,
        key: ConversationKey,
        turn: TurnState,
        *,
        toolbox: Toolbox,
        permits: Permits,
        permits_now: Callable[[], Permits],
        is_ending: Callable[[], bool],
        skills: TurnSkills,
        earlier: EarlierAccess,
        journal: Journal,
        tasks: anyio.abc.TaskGroup,
        strays: Strays,
        spawns: Spawns = NO_SPAWNS,
        collector: FindingSink | None = None,
        report: Callable[[Progress], None],
    ) -> None:
        """
        Args:
            permits_now: by which a call is judged again that had to wait for its server or its place.
            is_ending: whether somebody wants the turn to end.
        """
        self._key = key
        self._turn = turn
        self._toolbox = toolbox
        self._refusals = {call.id: permits.refusal(call.name) for call in turn.open_calls if not call.unusable}
        """Judged once, so that what is recorded and what is done agree."""
        self._permits_now = permits_now
        self._is_ending = is_ending
        self._skills = skills
        self._earlier = earlier
        self._journal = journal
        self._tasks = tasks
        self._strays = strays
        self._spawns = spawns
        self._collector = collector
        self._report = report
        self._running: dict[CallId, tuple[CallState, anyio.TaskHandle[None]]] = {}
        self._begun: set[CallId] = set()
        self._waiting: set[CallId] = set()
        """Those begun that have done nothing so far."""
        self._ended: list[ToolFinished | SkillLoaded | SubagentFinished] = []
        self._wakeup = anyio.Event()
        self._is_over = False
        """The turn ends: nothing begins any more."""

    async def run(self, step: RunTools) -> None:
        """Settle every open call. Cancellation: leaves the calls running; ``stop`` or ``abandon`` ends them."""
        calls = self._turn.open_calls
        known = [(call, spec) for call in calls if not call.unusable and (spec := self._spec(call)) is not None]
        if step.attempt > 1:
            self._journal.add(self._attempt_started(step))
        self._journal.add(
            *(self._tool_started(call, spec) for call, spec in known if call.status is CallStatus.INTENDED)
        )
        await self._journal.submit()
        if step.attempt == 1:
            self._start(call for call, spec in known if spec.effect is Effect.READ)
        await self._journal.flush()
        self._start(call for call in calls if call.id not in self._begun)
        await self._settle(len(calls))

    async def _settle(self, open_calls: int) -> None:
        """Commit results as they end; the last ones share the commit of what comes next."""
        while open_calls:
            await self._wakeup.wait()
            self._wakeup = anyio.Event()
            ended, self._ended = self._ended, []
            self._journal.add(*ended)
            open_calls -= sum(isinstance(record, ToolFinished) for record in ended)
            if open_calls:
                await self._journal.flush()

    async def stop(self, *, grace_s: float) -> None:
        """End what still runs: reads, and what only waits, at once, writes after ``grace_s``; every call then has its
        result. A server is told that its call was cancelled; a write of the home's own goes on.

        Shielded, and bounded by the grace.
        """
        self._is_over = True
        for call, task in self._running.values():
            if not self._may_change(call):
                task.cancel()
        with anyio.move_on_after(grace_s, shield=True):
            while any(self._may_change(call) for call, _ in self._running.values()):
                await self._wakeup.wait()
                self._wakeup = anyio.Event()
        for call, task in self._running.values():
            if self._is_served(call):
                task.cancel()
        self.abandon()

    def abandon(self) -> None:
        """Settle what is open as it stands, without waiting for anything."""
        ended, self._ended = self._ended, []
        self._journal.add(*ended)
        for call, _ in self._running.values():
            self._strays.left_running(call)
        self._running.clear()
        turn = self._journal.state.turn
        if turn is not None and turn.number == self._turn.number:
            acting = self._begun - self._waiting
            never = {call.id for call in self._turn.open_calls if call.status is CallStatus.INTENDED} - acting
            self._journal.add(
                *(
                    finished(turn.number, call, notes.never_started(call.name))
                    for call in turn.open_calls
                    if call.id in never
                ),
                *settled_as_they_stand(turn, why="the turn was ended while it ran", but=never),
            )

    def _start(self, calls: Iterable[CallState]) -> None:
        for call in calls:
            self._begun.add(call.id)
            self._running[call.id] = (call, self._tasks.start_soon(self._perform, call))

    async def _perform(self, call: CallState) -> None:
        has_ended = False
        try:
            result = await self._result_of(call)
            has_ended = True
        finally:
            # Also when it was cancelled: then nobody waits for it any longer, nor is it left running.
            was_waited_for = self._running.pop(call.id, None) is not None
            self._wakeup.set()
            if was_waited_for and has_ended:
                self._ended.extend(self._spawns.ended_by(call.id))
            else:
                self._journal.add(*self._spawns.ended_by(call.id))
            if not was_waited_for and (self._effect(call) is Effect.READ or not has_ended):
                self._strays.stopped(call)
        if was_waited_for:
            self._ended.append(finished(self._turn.number, call, result))
            loaded = self._skills.loaded_by(call.id)
            if loaded is not None and result.outcome is Outcome.SUCCEEDED:
                self._ended.append(loaded)
        elif self._effect(call) is Effect.WRITE:
            self._strays.ended_late(call, result, of_turn=self._turn.number)
            await self._journal.flush()

    async def _result_of(self, call: CallState) -> ToolResult:
        if call.unusable:
            return ToolResult(outcome=Outcome.FAILED, text=call.unusable)
        spec, refusal = self._spec(call), self._refusals[call.id]
        if refusal is not None and call.status is CallStatus.INTENDED:
            return refusal
        if spec is None and call.status is CallStatus.INTENDED:
            return notes.gone(call.name)
        if call.status is CallStatus.INTENDED or (spec is not None and call.effect is Effect.READ):
            return await self._toolbox.call(call.name, call.arguments, self._context(call))
        return await self._recovered(call, spec)

    async def _recovered(self, call: CallState, spec: ToolSpec | None) -> ToolResult:
        """What became of a call that a crash interrupted; never a silent repetition of a write, nor one that begins
        when the turn was ended while the tool was asked."""
        if call.effect is Effect.READ:
            return notes.interrupted(call.name)
        if spec is None:
            is_gone = self._toolbox.spec(call.name) is None
            return notes.unknown(call.name, why=f"the tool is no longer {'there to ask' if is_gone else 'to be used'}")
        if spec.has_probe:
            probed = await self._toolbox.probe(call.name, call.arguments, self._context(call))
            if probed is not None and (self._is_over or probed.outcome is not Outcome.NEVER_STARTED):
                return probed
            if probed is not None:
                return await self._toolbox.call(call.name, call.arguments, self._context(call))
        if spec.accepts_key and not self._is_over:
            retried = await self._toolbox.call(call.name, call.arguments, self._context(call))
            return _after_retry(call.name, retried)
        return notes.unknown(call.name, why="the process ended before its result was recorded")

    def _spec(self, call: CallState) -> ToolSpec | None:
        """Of the tool that is called; None when there is none, or it may not be used."""
        return self._toolbox.spec(call.name) if self._refusals.get(call.id) is None else None

    def waits(self, call: CallState) -> None:
        """See ``contract.Onset.wait``."""
        self._waiting.add(call.id)
        self._raise_if_ending(call)

    def acts(self, call: CallState) -> None:
        """See ``contract.Onset.begin``."""
        self._raise_if_ending(call)
        if (refusal := self._permits_now().refusal(call.name)) is not None:
            raise ToolRefused(refusal.text)
        self._waiting.discard(call.id)

    def _raise_if_ending(self, call: CallState) -> None:
        if self._is_over or self._is_ending():
            raise NotStarted(notes.never_started(call.name).text)

    def _may_change(self, call: CallState) -> bool:
        return self._effect(call) is Effect.WRITE and call.id not in self._waiting

    def _is_served(self, call: CallState) -> bool:
        spec = self._spec(call)
        return spec is not None and bool(spec.server)

    def _effect(self, call: CallState) -> Effect:
        spec = self._spec(call)
        return spec.effect if spec is not None and call.status is CallStatus.INTENDED else call.effect

    def _context(self, call: CallState) -> ToolContext:
        def report(text: str) -> None:
            self._report(Progress(call_id=call.id, name=call.name, text=text))

        return ToolContext(
            key=self._key,
            principal=self._turn.principal,
            turn=self._turn.number,
            call_id=call.id,
            idempotency_key=call.idempotency_key or self._new_key(call),
            report=report,
            skills=self._skills.of_call(call.id),
            earlier=self._earlier,
            collector=self._collector,
            spawner=self._spawns.of_call(
                call.id,
                turn=self._turn.number,
                principal=self._turn.principal,
                report=self._report,
            ),
            onset=_CallOnset(self, call),
        )

    def _attempt_started(self, step: RunTools) -> AttemptStarted:
        return AttemptStarted(turn=step.turn, step=StepKind.RUN_TOOLS, round=step.round, attempt=step.attempt)

    def _tool_started(self, call: CallState, spec: ToolSpec) -> ToolStarted:
        return ToolStarted(
            turn=self._turn.number,
            call_id=call.id,
            name=call.name,
            effect=spec.effect,
            idempotency_key=self._new_key(call),
        )

    def _new_key(self, call: CallState) -> str:
        born_us = self._journal.state.created_us
        return idempotency_key(self._key, self._turn, call.id, born_us=born_us)


class _CallOnset:
    """Implements ``contract.Onset`` for one call of a batch."""

    __slots__ = ("_batch", "_call")

    def __init__(self, batch: ToolBatch, call: CallState) -> None:
        self._batch = batch
        self._call = call

    def wait(self) -> None:
        self._batch.waits(self._call)

    def begin(self) -> None:
        self._batch.acts(self._call)


def _after_retry(name: str, result: ToolResult) -> ToolResult:
    """A retry that did not succeed says nothing of the attempt before it."""
    if result.outcome in {Outcome.SUCCEEDED, Outcome.UNKNOWN}:
        return result
    why = f"interrupted, and trying again under the same key ended as {result.outcome.value} ({result.text})"
    return msgspec.structs.replace(notes.unknown(name, why=why), handle=result.handle, cleaned=result.cleaned)


def idempotency_key(key: ConversationKey, turn: TurnState, call_id: CallId, *, born_us: int) -> str:
    """32 hex characters: the same for every attempt of one call, different for every other call.

    Names repeat where a journal is begun anew, or goes on from an older copy, while the tool's own ledger stays; so the
    journal's birth and the message that the turn answers are part of it.
    """
    named = (key.path, str(born_us), str(turn.number), turn.messages[0], call_id)
    return hashlib.sha256("\0".join(named).encode()).hexdigest()[:32]


def finished(turn: int, call: CallState, result: ToolResult) -> ToolFinished:
    """The record that settles ``call``."""
    return ToolFinished(
        turn=turn,
        call_id=call.id,
        name=call.name,
        outcome=result.outcome,
        block=tool_result_block(call.id, result.text, is_error=result.outcome is not Outcome.SUCCEEDED),
        handle=result.handle,
        cleaned=result.cleaned,
    )


def settled_as_they_stand(turn: TurnState, *, why: str, but: Collection[CallId] = ()) -> tuple[JournalRecord, ...]:
    """One honest result for each call still open, ``but`` these: never started, stopped while reading, or unknown."""
    open_calls = (call for call in turn.open_calls if call.id not in but)
    return tuple(finished(turn.number, call, _as_it_stands(call, why=why)) for call in open_calls)


def _as_it_stands(call: CallState, *, why: str) -> ToolResult:
    if call.status is CallStatus.INTENDED:
        return notes.never_started(call.name)
    if call.effect is Effect.READ:
        return notes.interrupted(call.name)
    return notes.unknown(call.name, why=why)
