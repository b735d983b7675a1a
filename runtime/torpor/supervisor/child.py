"""One sub-agent, from its task to its answer: a short-lived actor without a mailbox or clients.

Above: ``spawn``, which has it work for a tool call. Below: the same ``Interpreter`` over the same journal as any
conversation has, under a key of its own and the fence of the conversation that it works for.

    task ──▶ turn ──▶ a final text ──▶ its result type accepts it ──▶ the answer
              ▲                                  │ not
              └────────── what is wrong with it ─┘        a budget is over ──▶ what there is by then
"""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

import anyio
import anyio.abc
import msgspec

from torpor.actor.commit import Journal
from torpor.actor.interpreting import interpreter_of
from torpor.actor.parts import ActorParts
from torpor.conversation.budget import added, tokens_of
from torpor.conversation.compaction import Overflow
from torpor.conversation.markup import defused
from torpor.conversation.state import PAUSED, CallState, ConversationState, TurnState
from torpor.conversation.steps import (
    CUT_SHORT,
    CallModel,
    Compact,
    Lane,
    PrepareTurn,
    RunTools,
    Step,
    StepOptions,
    next_step,
)
from torpor.conversation.text import clean
from torpor.conversation.transcript import text_of_result
from torpor.errors import StoreError, ToolFailed
from torpor.provider_errors import ContextTooLong
from torpor.records.blocks import head_of, text_block
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import (
    ConversationCreated,
    JournalRecord,
    MessageReceived,
    ModelReplied,
    SubagentFinished,
    ToolFinished,
    TurnCancelled,
    TurnFailed,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import Outcome, Usage
from torpor.store.contract import Lease
from torpor.subagents.collector import Collector, Inlet
from torpor.subagents.definition import Subagent
from torpor.subagents.findings import Findings
from torpor.subagents.options import SubagentOptions
from torpor.subagents.results import Accepted, Unacceptable
from torpor.supervisor.remains import usage_of
from torpor.toolhost.contract import Toolbox, ToolResult
from torpor.toolhost.engine_tools import ENGINE_TOOL_NAMES
from torpor.toolhost.reserved import READ_INTERVENTION, SEARCH_EVIDENCE, SELECT_SOURCES
from torpor.turn import notes
from torpor.turn.contract import Observer, Spawns
from torpor.turn.interpret import Interpreter
from torpor.turn.tool_batch import settled_as_they_stand

STEPS: Final = "steps"
TOKENS: Final = "tokens"
SECONDS: Final = "seconds"
CONTEXT_TOO_LONG: Final = "context_too_long"
OUTPUT_LIMIT: Final = "output_limit"
_ITS_MODELS: Final = {
    Overflow.TURN: CONTEXT_TOO_LONG,
    ContextTooLong.code: CONTEXT_TOO_LONG,
    OUTPUT_LIMIT: OUTPUT_LIMIT,
}
"""Limits of its model that end its turn, by the code of that end: what was selected by then counts, if anything was."""
CANCELLED: Final = "cancelled"
CRASHED: Final = "crashed"
_ASKING_NOBODY: Final = ENGINE_TOOL_NAMES | {SELECT_SOURCES, READ_INTERVENTION}


def _unheard(record: ToolFinished) -> None:
    """Of a journal whose sub-agent is not there yet."""


class Spent:
    """Model calls and their tokens, of one sub-agent and of those below it, or of all that work for one turn."""

    def __init__(self, *, tokens_max: int, tokens_before: int = 0, above: "Spent | None" = None) -> None:
        """Args: tokens_max: 0 for no limit.  tokens_before: of it, used already.  above: what it counts towards as
        well."""
        self._tokens_max = tokens_max
        self._tokens_before = tokens_before
        self._above = above
        self.usage = Usage()
        self.rounds = 0
        """Calls that were answered, of itself alone."""

    def add(self, usage: Usage, *, is_round: bool = True) -> None:
        self.rounds += is_round
        self.usage = added(self.usage, usage)
        if self._above is not None:
            self._above.add(usage, is_round=False)

    @property
    def is_over(self) -> bool:
        """Whether its own limit is reached, or one above."""
        used = self._tokens_before + tokens_of(self.usage)
        return 0 < self._tokens_max <= used or (self._above is not None and self._above.is_over)


class ChildJournal(Journal):
    """That of a sub-agent, which keeps in mind what it costs and how its turns end."""

    def __init__(self, key: ConversationKey, *, lease: Lease, parts: ActorParts, spent: Spent) -> None:
        super().__init__(
            key,
            ConversationState(),
            lease=msgspec.structs.replace(lease, key=key),
            store=parts.store,
            bus=parts.bus,
            clock=parts.clock,
            ids=parts.ids,
            steps=parts.steps,
            observer=parts.observer,
        )
        self._spent = spent
        self.text = ""
        """Of the last reply, and of those before it that the host only paused."""
        self.cut_at_tokens = 0
        """Output tokens of the last reply, where a limit cut it off; 0 for one that is whole."""
        self._is_paused = False
        self.failure = ""
        """Code of what ended the last turn before it was answered."""
        self.heard: Callable[[ToolFinished], None] = _unheard
        """Told of each call that ends."""

    @property
    def head(self) -> tuple[int, str]:
        """The last record that is durable, and the last link of the view, hex, where nothing came after it."""
        return self._durable_seq, self.state.view.link.hex() if self._durable_seq == self.state.seq else ""

    def add(self, *drafts: JournalRecord) -> None:
        super().add(*drafts)
        for record in drafts:
            if (usage := usage_of(record)) is not None:
                self._spent.add(usage, is_round=isinstance(record, ModelReplied))
            if isinstance(record, ModelReplied):
                self._heard(record)
            if isinstance(record, ToolFinished):
                self.heard(record)
            if isinstance(record, TurnFailed | TurnRefused):
                self.failure = record.code if isinstance(record, TurnFailed) else "model_refused"

    def _heard(self, reply: ModelReplied) -> None:
        before = self.text if self._is_paused else ""
        self.text = before + "".join(head.text for head in map(head_of, reply.blocks) if head.type == "text")
        self.cut_at_tokens = max(reply.usage.output_tokens, 1) if reply.stop_reason in CUT_SHORT else 0
        self._is_paused = reply.stop_reason == PAUSED

    def whole_text(self) -> str:
        """What its turn said in the end. Raises: Unacceptable: a limit cut it off, so it is no answer."""
        if self.cut_at_tokens:
            raise Unacceptable(
                f"Your answer was cut off at {self.cut_at_tokens:,} tokens and does not count. Answer again, shorter."
            )
        return self.text


class Child:
    """Made for one task; ``work`` does it."""

    def __init__(
        self,
        name: str,
        subagent: Subagent,
        *,
        key: ConversationKey,
        journal: ChildJournal,
        parts: ActorParts,
        spawns: Spawns,
        spent: Spent,
        options: SubagentOptions,
        principal: str,
        report: Callable[[str], None],
    ) -> None:
        """Args: name: below the conversation that it works for.  report: tells who watches that one how it goes."""
        self.name = name
        self.journal = journal
        self.spent = spent
        self._key = key
        self._subagent = subagent
        self._parts = parts
        self._spawns = spawns
        self._collector = Collector(
            capacity=options.capacity, findings_max=options.findings_max, selected_max=options.selected_max
        )
        self._principal = principal
        self._report = report
        self._end_s = options.end_s
        self._interpreter: Interpreter | None = None
        journal.heard = self._heard
        self._messages = 0
        self.code = ""
        """The budget that is over, or the limit of its model; empty while none is."""

    async def work(self, task: str) -> Accepted:
        """The answer, or what there is of it when a budget is over.

        Cancellation: its journal says so, if that can be written within the bound; nothing of it goes on.
        Raises: ToolFailed: its turn failed. StoreError: its journal cannot be written.
        """
        definition = self._subagent.definition
        self.journal.add(ConversationCreated(agent=definition.name, budget=definition.budget))
        self._say(task)
        was_cancelled = False
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._collector.drain)
                tasks.start_soon(self._expire)
                self._interpreter = self._made(tasks)
                answer = await self._answered(self._interpreter)
                tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            was_cancelled = True
            raise
        finally:
            with anyio.move_on_after(self._end_s, shield=True):
                await self._leave(was_cancelled=was_cancelled)
        if isinstance(answer, ToolFailed):
            raise answer
        return answer

    def close(self) -> None:
        """Nothing is collected any more, and nothing of it is on its way to anybody."""
        self._collector.close()
        self._parts.bus.publish_gone(self._key)  # also of a reply whose end could not be recorded

    def left_running(self, call: CallState) -> None:
        """Implements ``turn.tool_batch.Strays``: its tools only read, and are cancelled with it."""

    def stopped(self, call: CallState) -> None:
        """Implements ``turn.tool_batch.Strays``."""

    def ended_late(self, call: CallState, result: ToolResult, *, of_turn: int) -> None:
        """Implements ``turn.tool_batch.Strays``; of a write, which it has none of."""

    def step(self, key: ConversationKey, step: Step, *, agent: str) -> AbstractContextManager[None]:
        """Implements ``turn.contract.Observer``: before each step it is asked whether there is a budget for it."""
        if isinstance(step, CallModel | Compact):
            if self.code:
                self._stop(self.code)  # it was over while no turn ran that could be ended
            elif self.spent.rounds >= self._subagent.definition.steps_max:
                self._stop(STEPS)
            elif self.spent.is_over:
                self._stop(TOKENS)
        if isinstance(step, RunTools) and (names := self._open_calls()):
            self._report(f"uses {', '.join(names)}")
        return self._observer.step(key, step, agent=agent)

    def _open_calls(self) -> list[str]:
        """Names of tools that there are: any other is the model's own words, which nobody is told."""
        turn, tools = self.journal.state.turn, self._tools
        names = {call.name for call in turn.open_calls} if turn is not None else set()
        return sorted(name for name in names if tools.spec(name) is not None)

    def _heard(self, record: ToolFinished) -> None:
        """Count what looks for something: whatever it was offered, but for the engine's tools and those that ask
        nobody. What was offered counts also when it is gone by now, as the tools of a server that was lost are."""
        offered = self._subagent.agent.offers.tools_of(self.journal.state.preamble)
        if record.name in _ASKING_NOBODY or record.name not in offered:
            return
        failure = None if record.outcome is Outcome.SUCCEEDED else text_of_result(record.block)
        self.findings.searched(failure=failure, of_evidence=record.name == SEARCH_EVIDENCE)

    def committed(self, key: ConversationKey, records: Sequence[JournalRecord], *, agent: str) -> None:
        """Implements ``turn.contract.Observer``."""
        self._observer.committed(key, records, agent=agent)

    def interrupted(self, key: ConversationKey) -> None:
        """Implements ``turn.contract.Observer``."""
        self._observer.interrupted(key)

    def unrecorded(self, key: ConversationKey, record: SubagentFinished) -> None:
        """Implements ``turn.contract.Observer``."""
        self._observer.unrecorded(key, record)

    @property
    def _tools(self) -> Toolbox:
        agent = self._subagent.agent
        return agent.tools_with(agent.lent(self._key, self._principal))

    @property
    def findings(self) -> Findings:
        """What its tools found so far."""
        return self._collector.findings

    @property
    def _steps(self) -> StepOptions:
        """Those of any turn, but that no more than its own budget bounds how many model calls it makes."""
        steps = self._parts.steps
        enough = self._subagent.definition.steps_max + 1  # it is stopped before the call that would be too many
        return msgspec.structs.replace(steps, step_limit=max(steps.step_limit, enough))

    @property
    def _observer(self) -> Observer:
        return self._parts.observer

    def _made(self, tasks: anyio.abc.TaskGroup) -> Interpreter:
        def land_soon() -> None:
            tasks.start_soon(self.journal.flush)

        return interpreter_of(
            self._key,
            self._parts,
            journal=self.journal,
            agent=self._subagent.agent,
            steps=self._steps,
            tasks=tasks,
            strays=self,
            land_soon=land_soon,
            spawns=self._spawns,
            collector=Inlet(self._collector.sink),
            observer=self,
        )

    async def _answered(self, interpreter: Interpreter) -> Accepted | ToolFailed:
        result, findings = self._subagent.result, self.findings
        while True:
            await interpreter.run()
            await self._collector.sink.select(())  # comes back when all that was found before has arrived
            if findings.selected:
                self.code = self.code or _ITS_MODELS.get(self.journal.failure, "")
            if self.code:
                return result.overrun(findings)
            if self.journal.failure:
                name = self._subagent.definition.name
                return ToolFailed(f"{name} failed, {self.journal.failure}: go on without it, or ask it again later")
            try:
                return result.accept(self.journal.whole_text(), findings)
            except Unacceptable as exc:
                self._say(exc.message)

    def _say(self, text: str) -> None:
        self._messages += 1
        id_, block = MessageId(f"task_{self._messages}"), text_block(defused(clean(text).text))
        self.journal.add(MessageReceived(message_id=id_, principal=self._principal, blocks=(block,)))

    async def _expire(self) -> None:
        await anyio.sleep(self._subagent.definition.seconds_max)
        self._stop(SECONDS)

    def _stop(self, code: str) -> None:
        """End its turn where it is; what there is counts."""
        self.code = self.code or code
        turn = self.journal.state.turn
        if self._interpreter is not None and turn is not None:
            self._interpreter.cancel(code, turn=turn.number)

    async def _leave(self, *, was_cancelled: bool) -> None:
        """Leave nothing open in its journal, and nothing unwritten if that can be written."""
        state = self.journal.state
        step = next_step(state, Lane.TURN, self._parts.steps, self._parts.clock.now_us())
        if isinstance(step, PrepareTurn):
            self.journal.add(TurnPrepared(turn=step.turn, messages=step.messages))
        if (turn := self.journal.state.turn) is not None:
            self.journal.add(*settled_as_they_stand(turn, why="what it was for was ended"))
            self.journal.add(_cancelled(turn) if was_cancelled else _crashed(turn))
        with contextlib.suppress(StoreError):  # it is gone either way, and its conversation says that it was ended
            await self.journal.flush()

    def __repr__(self) -> str:
        return f"<Child {self._key.path} {self._subagent.definition.name} rounds={self.spent.rounds}>"


def _cancelled(turn: TurnState) -> TurnCancelled:
    return TurnCancelled(turn=turn.number, reason=CANCELLED, note=notes.reply_cut(CANCELLED, had_text=False))


def _crashed(turn: TurnState) -> TurnFailed:
    return TurnFailed(turn=turn.number, code=CRASHED, detail="it ended in the middle", note=notes.turn_failed(CRASHED))
