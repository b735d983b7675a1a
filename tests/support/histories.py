"""Journals of conversations in which anything may happen, made by driving the real ``next_step``.

A ``Teller`` does what an actor does, without one: it performs the step that the state asks for and lets messages,
contexts, cancels, crashes, failures and late results come between any two records. Every choice is a byte of the
caller's, so a property test can shrink a history. What it knows beside the journal is kept for comparison.
"""

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from tests.support.history_folds import COMPACTION, compaction_failed, has_older, reasons, replaced
from torpor.conversation.compaction import can_shrink
from torpor.conversation.fold import fold, version_of
from torpor.conversation.lately import preamble_record
from torpor.conversation.live_context import live_block
from torpor.conversation.number import numbered
from torpor.conversation.retracting import view_before
from torpor.conversation.state import PAUSED, CallState, CallStatus, ConversationState, TurnState
from torpor.conversation.steps import (
    CallModel,
    FinishTurn,
    Lane,
    PrepareTurn,
    Rest,
    RunTools,
    Step,
    StepOptions,
    TurnEnd,
    next_step,
)
from torpor.conversation.turn_folds import digest_of, requested_view
from torpor.conversation.view import Preamble, View, preamble_of, request_body
from torpor.provider_errors import ContextTooLong, ProviderUnavailable
from torpor.records.blocks import Block, canonical, text_block, tool_result_block
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext
from torpor.records.flag_decision import FlagDecision
from torpor.records.ids import MessageId
from torpor.records.journal import (
    AttemptStarted,
    ContextChanged,
    ConversationArchived,
    ConversationCreated,
    ConversationForked,
    ConversationRenamed,
    ConversationUnarchived,
    FlagsPinned,
    FlagsReturned,
    JournalRecord,
    LateResult,
    LiveContextFailed,
    LiveContextOrdered,
    LiveContextReplaced,
    MessageReceived,
    MessageRetracted,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    SkillLoaded,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import Effect, LiveReason, Outcome, StepKind, Usage, WhenBusy
from torpor.records.told import ToldAs

_T = TypeVar("_T")

OPTIONS = StepOptions(step_limit=4, attempts_max=3)
TOOLS = ("look", "pay")
PREAMBLES = tuple(
    preamble_of(
        {
            "model": "played",
            "max_tokens": 100,
            "system": [{"type": "text", "text": system}],
            "tools": [{"name": name, "description": name, "input_schema": {"type": "object"}} for name in TOOLS],
        }
    )
    for system in ("You are a clerk.", "You are another clerk.")
)
WISHES = (*[WhenBusy.QUEUE] * 4, *[WhenBusy.STEER] * 3, WhenBusy.INTERRUPT)
SAYINGS = ("yes", 'quo"te\\', "naïve \U0001f600", "two\nlines", "[,]")
CONTEXTS = (
    WorkingContext(record=SelectedRecord(type="patient", id="7")),
    WorkingContext(record=SelectedRecord(type="patient", id="7", text="Ann"), screen=ContextPart(text="calendar")),
    WorkingContext(record=SelectedRecord(type="visit", id="7")),
    WorkingContext(),
)
SKILLS = ("refunds", "visits", "chatter")
CHILDREN_MAX = 3
CHILD_ENDS = (
    (Outcome.SUCCEEDED, ""),
    (Outcome.SUCCEEDED, "steps"),
    (Outcome.FAILED, "failed"),
    (Outcome.INTERRUPTED, "cancelled"),
    (Outcome.FAILED, "lost"),
)
LONG = "é\U0001f600 long, " * 20
LIVE_EVERY = 3
"""Records between two moments at which something may come of the live context; else histories are of little more."""
RETRACTED_EVERY = 3
MANAGED_EVERY = 7
"""Likewise for what people do with the conversation as a whole."""
THINKING = canonical({"type": "thinking", "thinking": "hm", "signature": "c2ln"})


class Request:
    """One model call as it was asked."""

    def __init__(
        self, state: ConversationState, *, turn: int, after_pause: bool, preamble: Preamble, view: View, folds: int
    ) -> None:
        """Args: state: after the record of it.  folds: how often the view was replaced before."""
        self.seq = state.seq
        self.turn = turn
        self.turns = tuple(start.turn for start in state.starts)
        """Those that were in the view, in order."""
        self.folds = folds
        self.after_pause = after_pause
        self.text = view.text()
        running = state.turn
        live = running.live if running is not None else None
        self.body: dict[str, Any] = json.loads(request_body(preamble, view, live=live))


class Message(NamedTuple):
    """One message received."""

    id: MessageId
    text: str
    """Like no other's."""
    when_busy: WhenBusy


class Beside(NamedTuple):
    """What a turn was told beside its messages; texts like no others."""

    signal: tuple[str, ...] = ()
    turn_only: tuple[str, ...] = ()


class Teller:
    """Tells one history; ``go_on`` makes the next thing happen.

    Args: choices: one byte a choice; the first option once they are used up.
    """

    def __init__(self, choices: bytes) -> None:
        self._choices = [*reversed(choices)]
        self.state = ConversationState()
        self.journal: list[JournalRecord] = []
        self.requests: list[Request] = []
        self.messages: list[Message] = []
        self.refused: set[int] = set()
        """Turns."""
        self.retracted: set[int] = set()
        """Turns."""
        self.taken_out: set[MessageId] = set()
        """Messages that went with them."""
        self.beside: dict[int, Beside] = {}
        """By turn."""
        self.folds = 0
        """How often the view was replaced."""
        self._is_asking = False
        self._is_folding = False
        self._is_running = False
        self._counter = 0

    def go_on(self) -> None:
        """One thing that may happen now."""
        step = next_step(self.state, Lane.TURN, OPTIONS, 0)
        happenings: list[Callable[[], None]] = []
        if len(self.state.queued) < 4:
            happenings.append(self._receive)
        if self.state.seq and not len(self.journal) % MANAGED_EVERY:
            happenings.append(self._manage)
        if self.state.lost_calls:
            happenings.append(self._end_late)
        if self.state.children:
            happenings.append(self._end_child)
        if not len(self.journal) % RETRACTED_EVERY and (self.state.queued or self._can_take_back()):
            happenings.append(self._retract)
        if self.state.seq and not len(self.journal) % LIVE_EVERY:
            happenings.append(self._go_on_with_live_context)
        if self._is_asking:
            happenings += [
                self._reply,
                self._reply,
                self._reply_oddly,
                self._fail_model,
                self._cancel_call,
                self._crash,
            ]
        elif self._is_folding:
            happenings += [self._end_fold, self._end_fold, self._fail_fold, self._cut, self._crash]
        elif self._is_running:
            happenings += [self._finish_call, self._finish_call, self._cancel_tools, self._crash]
            if len(self.state.children) < CHILDREN_MAX and self._working:
                happenings.append(self._start_child)
        elif not isinstance(step, Rest):
            happenings += [lambda: self._perform(step)] * 3
        self._pick(happenings)()

    def rest(self) -> None:
        """Go on quietly until nothing is left to do."""
        self._crash()
        while not isinstance(step := next_step(self.state, Lane.TURN, OPTIONS, 0), Rest):
            self._perform(step)
            if self._is_folding:
                self._end_fold()
            if self._is_asking:
                self._add(self._replied(text_block("done")))
                self._is_asking = False
            while self._is_running:
                self._finish_call()
        while self.state.children:
            self._end_child()

    @property
    def has_choices(self) -> bool:
        return bool(self._choices)

    def fork(self, choices: bytes) -> "Teller":
        """Another teller at the same point of the same history, who will choose otherwise."""
        other = copy.copy(self)
        other._choices = [*reversed(choices)]
        other.journal, other.requests, other.messages = [*self.journal], [*self.requests], [*self.messages]
        other.refused, other.taken_out = {*self.refused}, {*self.taken_out}
        other.retracted = {*self.retracted}
        other.beside = {**self.beside}
        return other

    @property
    def is_at_rest(self) -> bool:
        return self.state.turn is None and not self.state.queued

    def _pick(self, options: Sequence[_T]) -> _T:
        choice = self._choices.pop() if self._choices and len(options) > 1 else 0
        return options[choice % len(options)]

    def _add(self, *drafts: JournalRecord) -> None:
        records = numbered(self.state, drafts, at_us=len(self.journal))
        self.state = fold(self.state, records)
        self.journal.extend(records)

    def _number(self) -> int:
        self._counter += 1
        return self._counter

    @property
    def _turn(self) -> TurnState:
        assert self.state.turn is not None
        return self.state.turn

    def _receive(self) -> None:
        if self._pick((False, False, True)):
            self._tell_context()
        number = self._number()
        when_busy = self._pick(WISHES)
        message = Message(MessageId(f"m_{number}"), f"<message {number}>{self._pick(SAYINGS)}", when_busy)
        self.messages.append(message)
        blocks = (text_block(message.text),)
        if not self.state.seq:
            self._add(ConversationCreated(agent="clerk"))
        self._add(MessageReceived(message_id=message.id, principal="ann", blocks=blocks, when_busy=when_busy))

    def _manage(self) -> None:
        """What concerns no turn; between any two records."""
        if self.state.turn is None and self._pick((False, True)):
            dropped = tuple(message.id for message in self.state.queued)
            before = MessageId("m_0")
            self._add(ConversationForked(source="c_0", before=before, messages=dropped, principal="ann"))
            self.taken_out.update(dropped)
        elif self._pick((False, True)):
            self._add(ConversationRenamed(title=f"errand {self._number()}", principal="ann"))
        elif self.state.is_archived:
            self._add(ConversationUnarchived(principal="ann"))
        else:
            self._add(ConversationArchived(principal="ann"))

    def _can_take_back(self) -> bool:
        return self.state.turn is None and self.state.ended is not None

    def _retract(self) -> None:
        """One that waits, or the last turn."""
        state, ended = self.state, self.state.ended
        if self._can_take_back() and ended is not None and (not state.queued or self._pick((True, False))):
            link = view_before(state, ended).link.hex()
            note = (text_block("[retracted]"),) if ended.executed else ()
            self._add(
                MessageRetracted(turn=ended.number, messages=ended.messages, principal="ann", link=link, note=note)
            )
            self.retracted.add(ended.number)
            self.taken_out.update(ended.messages)
        else:
            id_ = self._pick(state.queued).id
            self._add(MessageRetracted(messages=(id_,), principal="ann"))
            self.taken_out.add(id_)

    def _end_late(self) -> None:
        call_id = self._pick(self.state.lost_calls)
        note = text_block(f"[{call_id} has ended]")
        self._add(LateResult(call_id=call_id, name="pay", of_turn=1, outcome=Outcome.SUCCEEDED, note=note))

    @property
    def _working(self) -> tuple[CallState, ...]:
        """Calls that run, of the running turn."""
        return tuple(call for call in self._turn.open_calls if call.status is CallStatus.STARTED)

    def _start_child(self) -> None:
        call, number = self._pick(self._working), self._number()
        told_as = ToldAs.RESEARCH if number % 2 else ToldAs.SUBAGENT
        begun = SubagentStarted(turn=self._turn.number, call_id=call.id, name="digger", child=f"child_{number}")
        self._add(msgspec.structs.replace(begun, told_as=told_as))

    def _end_child(self) -> None:
        """While its call runs, after that, or after its turn."""
        child = self._pick(self.state.children)
        outcome, code = self._pick(CHILD_ENDS)
        record = SubagentFinished(
            turn=child.turn,
            call_id=child.call_id,
            name=child.name,
            child=child.child,
            told_as=child.told_as,
            outcome=outcome,
            code=code,
            rounds=2,
            usage=Usage(input_tokens=self._number(), output_tokens=1),
        )
        if outcome is Outcome.SUCCEEDED:
            found = {"findings": 3, "dropped": ("nobody-found-this",), "child_seq": 9, "link": "c" * 64}
            record = msgspec.structs.replace(record, **found)
        self._add(record)

    def _go_on_with_live_context(self) -> None:
        """Order one, or tell what came of it; between any two records."""
        job, said = self.state.live.ordered, self.state.said
        if not job or self._pick((False, False, False, True)):
            reason = self._pick(tuple(LiveReason))
            self._add(LiveContextOrdered(job=f"live-{self.state.live.orders + 1}", reason=reason, messages=said))
        elif self._pick((True, True, False)):
            words = f"<live {self._number()}>{self._pick(SAYINGS)}"
            self._add(LiveContextReplaced(job=job, words=words, block=live_block(words), messages=said))
        else:
            self._add(LiveContextFailed(job=job, code="deadline", detail=""))

    def _tell_context(self) -> None:
        context = self._pick(CONTEXTS)
        if not self.state.seq:
            self._add(ConversationCreated(agent="clerk"))
        self._add(ContextChanged(context=context, version=version_of(self.state, context), principal="ann"))

    def _crash(self) -> None:
        self._is_asking = self._is_folding = self._is_running = False

    def _perform(self, step: Step) -> None:
        match step:
            case PrepareTurn():
                self._prepare(step)
            case CallModel() if self._folds_first():
                self._begin_fold(step)
            case CallModel():
                self._ask(step)
            case RunTools():
                self._start(step)
            case FinishTurn(end=TurnEnd.FINISHED):
                self._add(TurnFinished(turn=step.turn))
            case FinishTurn(end=TurnEnd.INTERRUPTED):
                self._cut()
            case FinishTurn(end=TurnEnd.FAILED):
                self._fail(step.code)
            case FinishTurn(end=TurnEnd.REFUSED):
                self._refuse()
            case _:
                raise AssertionError(step)

    def _prepare(self, step: PrepareTurn) -> None:
        is_on = self._pick((True, False))
        if self.state.flags_digest != str(is_on):
            decision = FlagDecision(key="tool.pay", value=is_on)
            is_known = str(is_on) in self.state.flags
            digest = str(is_on)
            self._add(FlagsReturned(digest=digest) if is_known else FlagsPinned(digest=digest, decisions=(decision,)))
        preamble = self._pick(PREAMBLES)
        if preamble.digest != self.state.preamble.digest:
            self._add(preamble_record(self.state, preamble))
        signal = tuple(f"<signal {self._number()}>" for _ in range(self._pick((0, 1))))
        turn_only = tuple(f"<turn only {self._number()}>" for _ in range(self._pick((0, 1, 2))))
        self.beside[step.turn] = Beside(signal=signal, turn_only=turn_only)
        self._add(
            TurnPrepared(
                turn=step.turn,
                messages=step.messages,
                signal=tuple(map(text_block, signal)),
                turn_only=tuple(map(text_block, turn_only)),
                sections={"envelope": 4} if signal else {},
                live=self.state.live.seq if self._pick((True, True, False)) else 0,
            )
        )

    def _folds_first(self) -> bool:
        turn = self._turn
        if turn.is_too_long:
            return True
        return not turn.call and bool(reasons(self.state)) and self._pick((False, False, True))

    def _begin_fold(self, step: CallModel) -> None:
        self._add(
            AttemptStarted(turn=step.turn, step=StepKind.COMPACT, round=step.round, attempt=self._turn.folds_begun + 1)
        )
        self._is_folding = True

    def _end_fold(self) -> None:
        reason = self._pick(reasons(self.state))
        self._add(replaced(self.state, reason, pick=self._pick, skills=SKILLS))
        self._is_folding = False
        self.folds += 1

    def _fail_fold(self) -> None:
        """Only a summariser fails, and once a turn."""
        if self._turn.has_fold_failed or not has_older(self.state):
            self._end_fold()
            return
        self._add(compaction_failed(self.state, pick=self._pick))
        self._is_folding = False

    def _ask(self, step: CallModel) -> None:
        turn, view = self._turn, requested_view(self.state, step.joined)
        after_pause = turn.stop_reason == PAUSED or (bool(turn.call) and self.requests[-1].after_pause)
        if step.attempt > 1:
            self._again(step, StepKind.CALL_MODEL)
        self._add(
            ModelRequested(
                turn=step.turn,
                call=f"{step.turn}-{step.round}-{turn.asked + 1 if turn.call else 1}",
                round=step.round,
                preamble=self.state.preamble.digest,
                link=view.link.hex(),
                sections={},
                joined=step.joined,
                model=turn.model,
                live=digest_of(turn.live),
            )
        )
        preamble = self.state.preamble
        self.requests.append(
            Request(self.state, turn=step.turn, after_pause=after_pause, preamble=preamble, view=view, folds=self.folds)
        )
        self._is_asking = True

    def _again(self, step: CallModel | RunTools, kind: StepKind) -> None:
        self._add(AttemptStarted(turn=step.turn, step=kind, round=step.round, attempt=step.attempt))

    def _reply(self) -> None:
        said = text_block(self._pick(SAYINGS))
        calls = tuple(self._call() for _ in range(self._pick((0, 0, 1, 2, 3))))
        blocks = self._pick(((said, *calls), (THINKING, said, *calls), calls))
        self._add(self._replied(*blocks, stop_reason="tool_use" if calls else "end_turn"))
        self._is_asking = False

    def _reply_oddly(self) -> None:
        """As it is recorded once it was made storable: calls that were not stopped for are left out."""
        said, cut = text_block(self._pick(SAYINGS)), (text_block("[cut]"),)
        record = self._pick(
            (
                self._replied(stop_reason="refusal"),
                self._replied(said, stop_reason=PAUSED),
                self._replied(THINKING, said, stop_reason=PAUSED),
                self._replied(stop_reason=PAUSED),
                self._replied(said, stop_reason="max_tokens", note=cut),
                self._replied(stop_reason="max_tokens", note=cut),
                self._replied(stop_reason="max_tokens"),
                self._replied(said, stop_reason="bored"),
            )
        )
        self._add(record)
        self._is_asking = False

    def _replied(self, *blocks: Block, stop_reason: str = "end_turn", note: tuple[Block, ...] = ()) -> ModelReplied:
        turn = self._turn
        usage = Usage(input_tokens=self._number(), output_tokens=1)
        return ModelReplied(
            turn=turn.number,
            call=turn.call,
            round=turn.round,
            blocks=blocks,
            stop_reason=stop_reason,
            usage=usage,
            note=note,
        )

    def _call(self) -> Block:
        fields = {"name": self._pick(TOOLS), "input": self._pick(({}, {"to": 'a"]}'}))}
        return canonical({"type": "tool_use", "id": f"call_{self._number()}"} | fields)

    def _fail_model(self) -> None:
        turn, code = self._turn, ProviderUnavailable.code
        if not turn.was_too_long and can_shrink(self.state, COMPACTION):
            code = self._pick((code, code, ContextTooLong.code))
        failed = ModelFailed(turn=turn.number, call=turn.call, round=turn.round, code=code)
        is_once = code == ContextTooLong.code
        if is_once or (turn.failures < 3 and self._pick((True, True, False))):
            other = "" if is_once else self._pick(("", "", "other"))
            self._add(msgspec.structs.replace(failed, retry_at_us=self._number(), next_model=other))
            self._is_asking = False
            return
        self._add(failed)
        self._fail(code, partial=self._partial())

    def _cancel_call(self) -> None:
        self._cut(partial=self._partial())

    def _partial(self) -> tuple[Block, ...]:
        said = text_block(self._pick(SAYINGS))
        partial: tuple[Block, ...] = self._pick(((), (said,), (THINKING, said)))
        return partial

    def _start(self, step: RunTools) -> None:
        if step.attempt > 1:
            self._again(step, StepKind.RUN_TOOLS)
        for call in self._turn.open_calls:
            if call.status is CallStatus.INTENDED and self._pick((True, True, False)):
                effect = Effect.WRITE if call.name == "pay" else Effect.READ
                key = f"key {call.id}"
                self._add(
                    ToolStarted(turn=step.turn, call_id=call.id, name=call.name, effect=effect, idempotency_key=key)
                )
        self._is_running = True

    def _finish_call(self) -> None:
        call = self._pick(self._turn.open_calls)
        outcome = self._pick((Outcome.SUCCEEDED, Outcome.FAILED, Outcome.DENIED, Outcome.UNKNOWN))
        self._settle(call, outcome)
        if outcome is Outcome.SUCCEEDED and self._pick((False, True)):
            skill = self._pick(SKILLS)
            digest = f"digest {self._number()}"
            self._add(SkillLoaded(turn=self._turn.number, call_id=call.id, skill=skill, digest=digest))
        self._is_running = bool(self._turn.open_calls)

    def _cancel_tools(self) -> None:
        self._cut()

    def _settle(self, call: CallState, outcome: Outcome) -> None:
        block = tool_result_block(call.id, self._pick(("", "fine", LONG)), is_error=outcome is not Outcome.SUCCEEDED)
        turn = self._turn.number
        self._add(ToolFinished(turn=turn, call_id=call.id, name=call.name, outcome=outcome, block=block))

    def _settle_all(self) -> None:
        for call in self._turn.open_calls:
            started = call.status is CallStatus.STARTED
            self._settle(call, Outcome.UNKNOWN if started else Outcome.NEVER_STARTED)
        self._crash()

    def _cut(self, *, partial: tuple[Block, ...] = ()) -> None:
        self._settle_all()
        note = text_block("[cut]")
        self._add(TurnCancelled(turn=self._turn.number, reason="client", note=note, partial=partial))

    def _fail(self, code: str, *, partial: tuple[Block, ...] = ()) -> None:
        self._settle_all()
        note = text_block("[failed]")
        self._add(TurnFailed(turn=self._turn.number, code=code, detail="", note=note, partial=partial))

    def _refuse(self) -> None:
        turn = self._turn
        self.refused.add(turn.number)
        self.taken_out.update(turn.messages)
        self._add(TurnRefused(turn=turn.number, detail="no", note=text_block("[refused]")))


def told(choices: bytes) -> Teller:
    """A history that goes on while there are choices."""
    teller = Teller(choices)
    while teller.has_choices:
        teller.go_on()
    return teller
