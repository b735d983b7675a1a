"""The one next step of every kind of state."""

import msgspec
import pytest

from tests.support.turns_told import asked, plain, told, with_turn
from torpor.conversation.compaction import Window
from torpor.conversation.state import CallState, CallStatus, ConversationState, QueuedMessage, TurnState
from torpor.conversation.steps import (
    CallModel,
    Compact,
    FinishTurn,
    Folding,
    Lane,
    PrepareTurn,
    Rest,
    RunTools,
    Step,
    StepOptions,
    TurnEnd,
    next_step,
)
from torpor.records.blocks import text_block
from torpor.records.ids import CallId, MessageId
from torpor.records.terms import FoldReason, Outcome, WhenBusy

OPTIONS = StepOptions(step_limit=3, attempts_max=2)
ASKED = TurnState(number=1, messages=(MessageId("m_1"),), principal="ann", round=1, call="1-1-1", attempts=1)
REPLIED = msgspec.structs.replace(ASKED, call="", attempts=0, reply=(text_block("hello"),), stop_reason="end_turn")
INTENDED = CallState(id=CallId("a"), name="pay", arguments=msgspec.Raw(b"{}"))
STARTED = CallState(id=CallId("b"), name="look", arguments=msgspec.Raw(b"{}"), status=CallStatus.STARTED)
SETTLED = CallState(
    id=CallId("c"),
    name="pay",
    arguments=msgspec.Raw(b"{}"),
    status=CallStatus.SETTLED,
    outcome=Outcome.SUCCEEDED,
    result=text_block("paid"),
)


def waiting(name: str, when_busy: WhenBusy = WhenBusy.QUEUE) -> QueuedMessage:
    return QueuedMessage(id=MessageId(name), principal="ann", blocks=(text_block(name),), when_busy=when_busy)


def step_of(turn: TurnState | None, *queued: QueuedMessage) -> Step:
    return next_step(ConversationState(turns=1, turn=turn, queued=queued), Lane.TURN, OPTIONS, 0)


def with_calls(*calls: CallState, attempts: int = 0, round_: int = 1) -> TurnState:
    return msgspec.structs.replace(REPLIED, calls=calls, attempts=attempts, round=round_)


def test_nothing_waits_and_nothing_runs_so_it_rests() -> None:
    assert step_of(None) == Rest()


@pytest.mark.parametrize("when_busy", WhenBusy)
def test_the_first_message_that_waits_gets_a_turn_of_its_own(when_busy: WhenBusy) -> None:
    step = step_of(None, waiting("m_2", when_busy), waiting("m_3", WhenBusy.STEER))
    assert step == PrepareTurn(turn=2, messages=(MessageId("m_2"),))


def test_a_turn_begins_with_a_model_call_that_steering_messages_join() -> None:
    turn = TurnState(number=1, messages=(MessageId("m_1"),), principal="ann")
    step = step_of(turn, waiting("m_2", WhenBusy.STEER), waiting("m_3"), waiting("m_4", WhenBusy.STEER))
    assert step == CallModel(turn=1, round=1, attempt=1, joined=(MessageId("m_2"), MessageId("m_4")))


def test_a_model_call_without_a_reply_is_made_again_as_it_was() -> None:
    assert step_of(ASKED, waiting("m_2", WhenBusy.STEER)) == CallModel(turn=1, round=1, attempt=2)


def test_a_model_call_that_used_up_its_attempts_ends_the_turn() -> None:
    step = step_of(msgspec.structs.replace(ASKED, attempts=2))
    detail = "a model call of round 1 did not survive 2 attempts"
    assert step == FinishTurn(turn=1, end=TurnEnd.FAILED, code="crashed", detail=detail)


def test_a_reply_without_calls_ends_the_turn() -> None:
    assert step_of(REPLIED, waiting("m_2", WhenBusy.STEER)) == FinishTurn(turn=1, end=TurnEnd.FINISHED)


def test_an_empty_reply_ends_the_turn() -> None:
    assert step_of(msgspec.structs.replace(REPLIED, reply=())) == FinishTurn(turn=1, end=TurnEnd.FINISHED)


@pytest.mark.parametrize("stop_reason", ["end_turn", "stop_sequence", "tool_use", "max_tokens"])
def test_a_reply_that_says_something_is_the_answer_even_when_it_was_cut_short(stop_reason: str) -> None:
    step = step_of(msgspec.structs.replace(REPLIED, stop_reason=stop_reason))
    assert step == FinishTurn(turn=1, end=TurnEnd.FINISHED)


@pytest.mark.parametrize("stop_reason", ["max_tokens", "model_context_window_exceeded"])
def test_a_reply_that_was_cut_short_before_it_said_anything_fails_the_turn(stop_reason: str) -> None:
    step = step_of(msgspec.structs.replace(REPLIED, stop_reason=stop_reason, reply=()))
    detail = f"the reply was cut off ({stop_reason}) before it said anything"
    assert step == FinishTurn(turn=1, end=TurnEnd.FAILED, code="output_limit", detail=detail)


def test_a_reason_to_stop_that_is_not_known_fails_the_turn() -> None:
    step = step_of(msgspec.structs.replace(REPLIED, stop_reason="bored"))
    detail = "the host stopped for 'bored', which is not known"
    assert step == FinishTurn(turn=1, end=TurnEnd.FAILED, code="unknown_stop_reason", detail=detail)


def test_it_does_so_also_where_calls_were_cut_off() -> None:
    turn = msgspec.structs.replace(REPLIED, stop_reason="bored", note=(text_block("[cut]"),), cuts=1)
    step = step_of(turn)
    assert isinstance(step, FinishTurn)
    assert step.code == "unknown_stop_reason"


def test_a_refusal_ends_the_turn_as_refused() -> None:
    step = step_of(msgspec.structs.replace(REPLIED, stop_reason="refusal", reply=()))
    assert step == FinishTurn(turn=1, end=TurnEnd.REFUSED, code="refused")


def test_the_model_is_asked_again_after_a_pause_until_it_paused_too_often() -> None:
    paused = msgspec.structs.replace(REPLIED, stop_reason="pause_turn", pauses=OPTIONS.pauses_max)
    assert step_of(paused) == CallModel(turn=1, round=2, attempt=1)
    detail = "the host paused 9 times, the limit is 8"
    failed = FinishTurn(turn=1, end=TurnEnd.FAILED, code="paused_too_often", detail=detail)
    assert step_of(msgspec.structs.replace(paused, pauses=9)) == failed


def test_the_model_is_asked_again_after_its_calls_were_cut_off_until_that_happened_too_often() -> None:
    cut = msgspec.structs.replace(REPLIED, stop_reason="max_tokens", note=(text_block("[cut]"),), cuts=OPTIONS.cuts_max)
    assert step_of(cut) == CallModel(turn=1, round=2, attempt=1)
    detail = "3 replies were cut off in the middle of a tool call"
    failed = FinishTurn(turn=1, end=TurnEnd.FAILED, code="output_limit", detail=detail)
    assert step_of(msgspec.structs.replace(cut, cuts=3)) == failed


def test_a_model_call_that_failed_is_made_again_when_its_time_has_come() -> None:
    step = step_of(msgspec.structs.replace(ASKED, attempts=0, retry_at_us=7))
    assert step == CallModel(turn=1, round=1, attempt=1, not_before_us=7)


def test_open_calls_are_run_in_the_models_order() -> None:
    step = step_of(with_calls(INTENDED, SETTLED, STARTED))
    assert step == RunTools(turn=1, round=1, attempt=1, calls=(INTENDED.id, STARTED.id))


def test_calls_that_were_begun_before_are_run_again_as_another_attempt() -> None:
    step = step_of(with_calls(STARTED, attempts=1))
    assert step == RunTools(turn=1, round=1, attempt=2, calls=(STARTED.id,))


def test_calls_that_used_up_their_attempts_end_the_turn_and_are_named() -> None:
    step = step_of(with_calls(INTENDED, STARTED, SETTLED, attempts=2))
    detail = "tools look, pay of round 1 did not survive 2 attempts"
    assert step == FinishTurn(turn=1, end=TurnEnd.FAILED, code="crashed", detail=detail)


def test_settled_calls_go_back_to_the_model_and_steering_messages_join() -> None:
    step = step_of(with_calls(SETTLED), waiting("m_2"), waiting("m_3", WhenBusy.STEER))
    assert step == CallModel(turn=1, round=2, attempt=1, joined=(MessageId("m_3"),))


def test_the_step_limit_ends_the_turn() -> None:
    step = step_of(with_calls(SETTLED, round_=3))
    detail = "3 model calls in one turn, the limit is 3"
    assert step == FinishTurn(turn=1, end=TurnEnd.FAILED, code="step_limit", detail=detail)


@pytest.mark.parametrize("turn", [ASKED, REPLIED, with_calls(STARTED), with_calls(SETTLED)])
def test_a_message_that_interrupts_ends_the_turn_wherever_it_stands(turn: TurnState) -> None:
    step = step_of(turn, waiting("m_2"), waiting("m_3", WhenBusy.INTERRUPT))
    assert step == FinishTurn(turn=1, end=TurnEnd.INTERRUPTED)


def test_a_turn_that_needs_no_more_attempts_is_not_ended_by_their_count() -> None:
    assert step_of(msgspec.structs.replace(REPLIED, attempts=9)) == FinishTurn(turn=1, end=TurnEnd.FINISHED)


SMALL = Folding(window=Window(budget_tokens=100, has_summariser=True))
MANY = told(*(plain(number, text="x" * 100) for number in range(1, 6)))
"""About 410 tokens."""
ALONE = told(plain(1, text="x" * 400))


def folded_first(state: ConversationState, *, folding: Folding = SMALL) -> Step:
    return next_step(state, Lane.TURN, OPTIONS, 0, folding=folding)


def test_older_turns_are_folded_before_the_model_is_asked() -> None:
    assert folded_first(MANY) == Compact(turn=5, round=1, attempt=1, reason=FoldReason.SUMMARY, tokens=412)
    assert folded_first(with_turn(MANY, folds_begun=2)) == Compact(
        turn=5, round=1, attempt=3, reason=FoldReason.SUMMARY, tokens=412
    )


def test_without_a_window_nothing_is_folded() -> None:
    assert folded_first(MANY, folding=Folding()) == CallModel(turn=5, round=1, attempt=1)


def test_nothing_is_folded_before_tools_run_or_a_turn_ends() -> None:
    over = next_step(with_turn(MANY, reply=(text_block("so"),), stop_reason="end_turn"), Lane.TURN, OPTIONS, 0)
    assert folded_first(with_turn(MANY, reply=(text_block("so"),), stop_reason="end_turn")) == over
    assert isinstance(folded_first(with_turn(MANY, reply=(), calls=(INTENDED,), round=1)), RunTools)
    assert isinstance(folded_first(msgspec.structs.replace(MANY, turn=None)), Rest)


def test_messages_that_join_and_results_that_wait_are_counted() -> None:
    few = told(plain(1, text="x" * 150), plain(2), plain(3), plain(4), plain(5))
    roomy = Folding(window=Window(budget_tokens=330, has_summariser=True))
    assert isinstance(folded_first(few, folding=roomy), CallModel)
    joined = msgspec.structs.replace(few, queued=(waiting("m" * 200, WhenBusy.STEER),))
    assert isinstance(folded_first(joined, folding=roomy), Compact)
    queued = msgspec.structs.replace(few, queued=(waiting("m" * 200),))
    assert isinstance(folded_first(queued, folding=roomy), CallModel)
    result = msgspec.structs.replace(SETTLED, result=text_block("r" * 200))
    pending = with_turn(few, reply=(text_block("so"),), calls=(result,), stop_reason="tool_use", round=1)
    assert isinstance(folded_first(pending, folding=roomy), Compact)


def test_a_call_that_was_lost_is_asked_again_as_it_was_unless_its_host_found_it_too_long() -> None:
    lost = with_turn(MANY, call="5-1-1", round=1, attempts=1)
    assert folded_first(lost) == CallModel(turn=5, round=1, attempt=2)
    too_long = with_turn(lost, is_too_long=True, attempts=0)
    assert folded_first(too_long) == Compact(turn=5, round=1, attempt=1, reason=FoldReason.SUMMARY, tokens=412)


def test_a_request_that_cannot_be_made_to_fit_ends_the_turn() -> None:
    assert folded_first(ALONE) == FinishTurn(
        turn=1,
        end=TurnEnd.FAILED,
        code="context_too_long",
        detail="the request has about 231 tokens, 100 fit; of them "
        "3 for prompt, tools and index of skills, 0 for what stands for folded turns",
    )


def test_nothing_is_folded_for_a_turn_that_does_not_fit_even_alone() -> None:
    before = [plain(number, text="x" * 100) for number in range(1, 6)]
    step = folded_first(told(*before, asked("y" * 500)))
    assert isinstance(step, FinishTurn)
    assert (step.turn, step.code) == (6, "context_too_long")
    assert isinstance(folded_first(told(*before, asked("y" * 300))), Compact)


def test_a_fold_that_keeps_crashing_is_given_up() -> None:
    """A summary by what asks for it, which goes on without one; others have no other way."""
    tried = with_turn(MANY, folds_begun=2)
    assert isinstance(folded_first(tried), Compact)
    without = Folding(window=Window(budget_tokens=100))
    assert folded_first(with_turn(MANY, folds_begun=1), folding=without) == Compact(
        turn=5, round=1, attempt=2, reason=FoldReason.MECHANICAL, tokens=412
    )
    assert folded_first(tried, folding=without) == FinishTurn(
        turn=5, end=TurnEnd.FAILED, code="crashed", detail="folding older turns did not survive 2 attempts"
    )
