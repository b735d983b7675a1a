"""What a fold leaves of a conversation: its view, and everything that counts by places in it."""

from typing import Any

import msgspec
import pytest

from tests.unit.conversation.test_fold import (
    CHANGED,
    CREATED,
    NOTE,
    after,
    ended,
    ids,
    message,
    prepared,
    replied,
    requested,
    said,
    use,
)
from torpor.conversation.segments import rebuilt, shortening
from torpor.conversation.state import BadHistory, ConversationState, LoadedSkill
from torpor.provider_errors import ContextTooLong
from torpor.records.blocks import Block, text_block, tool_result_block
from torpor.records.ids import CallId
from torpor.records.journal import (
    AttemptStarted,
    CompactionFailed,
    ContextReplaced,
    JournalRecord,
    ModelFailed,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import FoldReason, StepKind, Usage

BEGUN = AttemptStarted(turn=5, step=StepKind.COMPACT, round=1, attempt=2)
SUMMARY = text_block("[Summary]")


def talked(turns: int) -> ConversationState:
    """So many turns have been answered."""
    state = after(ConversationState(), CREATED, CHANGED)
    for number in range(1, turns + 1):
        state = after(state, message(number), prepared(number, number))
        state = after(state, requested(state))
        state = after(state, replied(text_block(f"answer {number}"), turn=number), TurnFinished(turn=number))
    return state


def folding(*beginning: JournalRecord, told: TurnPrepared | None = None) -> ConversationState:
    """Turn 5 runs, with what was begun in it."""
    return after(talked(4), message(5), told or prepared(5, 5), *beginning)


def folded(state: ConversationState, **fields: Any) -> ContextReplaced:
    """Turns 1 and 2 are a summary now."""
    head: tuple[Block, ...] = fields.pop("head", (SUMMARY,))
    change = shortening(fields.get("shortened", {}))
    kept_from = fields.get("kept_from", 3)
    starts = tuple(start for start in state.starts if start.turn >= kept_from)
    view, _ = rebuilt(state.view, starts, head=head, change=change)
    record = ContextReplaced(
        turn=5, reason=FoldReason.SUMMARY, generation=1, kept_from=3, head=head, link=view.link.hex(), turns=(1, 2)
    )
    return msgspec.structs.replace(record, seqs=(1, 9), **fields)


def test_a_fold_leaves_its_head_and_the_turns_that_stay() -> None:
    state = after(folding(BEGUN), folded(folding()))
    kept = [("user", ["message 4"]), ("assistant", ["answer 4"]), ("user", ["message 5"])]
    assert said(state) == [("user", ["[Summary]", "message 3"]), ("assistant", ["answer 3"]), *kept]
    assert [start.turn for start in state.starts] == [3, 4, 5]
    assert (state.generation, state.covered, state.messages) == (1, (2, 9), 5)
    assert (state.is_measured, state.last_usage, state.measured_bytes) == (False, Usage(), 0)
    assert state.turn is not None
    assert (state.turn.folds_begun, state.turn.attempts, state.turn.last_resort) == (0, 0, None)


def test_an_attempt_at_a_fold_is_counted_by_itself() -> None:
    turn = folding(BEGUN).turn
    assert turn is not None
    assert (turn.folds_begun, turn.attempts) == (2, 0)


def test_a_turn_refused_after_a_fold_goes_back_to_what_was_folded() -> None:
    state = after(folding(), folded(folding()), TurnRefused(turn=5, detail="no", note=NOTE))
    kept = [("user", ["message 4"]), ("assistant", ["answer 4"])]
    assert said(state) == [("user", ["[Summary]", "message 3"]), ("assistant", ["answer 3"]), *kept]
    assert ([start.turn for start in state.starts], state.messages) == ([3, 4], 4)
    assert state.generation == 1


def test_what_is_for_the_turn_alone_stays_through_a_fold_and_leaves_with_the_turn() -> None:
    told = TurnPrepared(turn=5, messages=ids(5), turn_only=(text_block("<policies/>"),))
    state = after(folding(told=told), folded(folding(told=told)))
    assert said(state)[-1] == ("user", ["message 5", "<policies/>"])
    assert state.turn is not None
    assert state.view.text()[state.turn.lasting_bytes :].startswith(b',{"text":"<policies/>')
    state = after(state, requested(state))
    state = after(state, replied(text_block("answer 5"), turn=5), TurnFinished(turn=5))
    assert said(state)[-2:] == [("user", ["message 5"]), ("assistant", ["answer 5"])]


def test_long_results_of_the_open_round_are_replaced_as_well() -> None:
    state = folding()
    state = after(state, requested(state), replied(use("a"), turn=5))
    state = after(state, msgspec.structs.replace(ended("a"), turn=5))
    short = tool_result_block("a", "p", is_error=False)
    record = folded(state, reason=FoldReason.SHORTENED, kept_from=1, head=(), shortened={"a": short})
    state = after(state, record)
    assert state.turn is not None
    assert state.turn.calls[0].result == short
    assert state.turn.last_resort is FoldReason.SHORTENED
    state = after(state, requested(state))
    assert said(state)[-1] == ("user", ["p"])
    state = after(state, replied(text_block("so"), turn=5, round=2))
    assert state.turn is not None
    assert state.turn.last_resort is None


def test_a_request_that_was_too_long_is_asked_again_once_it_is_shorter() -> None:
    state = folding()
    state = after(state, requested(state))
    again = ModelFailed(turn=5, call="call", round=1, code=ContextTooLong.code, retry_at_us=1)
    state = after(state, again)
    assert state.turn is not None
    assert (state.turn.is_too_long, state.turn.was_too_long) == (True, False)
    state = after(state, folded(state))
    assert state.turn is not None
    assert (state.turn.is_too_long, state.turn.was_too_long) == (False, True)
    state = after(state, requested(state), replied(text_block("so"), turn=5))
    assert state.turn is not None
    assert state.turn.was_too_long is False


def test_a_skill_goes_where_its_text_goes() -> None:
    state = folding()
    skills = (
        LoadedSkill(key="kept", digest="d", call_id=CallId("a")),
        LoadedSkill(key="head", digest="d", call_id=CallId("gone")),
        LoadedSkill(key="lost", digest="d", call_id=CallId("gone too")),
    )
    state = after(state, requested(state), replied(use("a"), turn=5))
    state = msgspec.structs.replace(state, skills=skills)
    text = text_block("[Skill head]")
    record = folded(state, head=(SUMMARY, text), skills=("head",), forgotten=("lost",))
    replaced = after(state, record)
    assert replaced.skills == (skills[0], msgspec.structs.replace(skills[1], head=(text,)))


def test_a_fold_that_was_cut_says_nothing_against_the_summariser() -> None:
    state = after(folding(BEGUN), CompactionFailed(turn=5, code="cancelled", detail="user", calls=1))
    assert state.turn is not None
    assert (state.turn.folds_begun, state.turn.has_fold_failed) == (0, True)
    assert (state.fold_failures, state.fold_failed_us) == (0, 0)


def test_a_summary_that_failed_is_counted_until_one_succeeds() -> None:
    failure = CompactionFailed(turn=5, code="deadline", detail="")
    state = after(folding(BEGUN), failure)
    assert state.turn is not None
    assert (state.turn.folds_begun, state.turn.has_fold_failed) == (0, True)
    assert (state.fold_failures, state.fold_failed_us) == (1, 1)
    assert state.view == folding().view
    mechanical = after(state, folded(folding(), reason=FoldReason.MECHANICAL))
    assert mechanical.fold_failures == 1
    assert after(state, folded(folding())).fold_failures == 0


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kept_from": 6}, "keeps the view from turn 6, which does not begin in it"),
        ({"kept_from": 0}, "keeps the view from turn 0, which does not begin in it"),
        ({"link": "ab"}, "leaves link ab, the view has "),
    ],
)
def test_a_fold_of_something_else_cannot_follow(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(BadHistory, match=why):
        after(folding(), folded(folding(), **fields))


def test_a_fold_belongs_to_a_running_turn() -> None:
    with pytest.raises(BadHistory, match="running is none"):
        after(talked(4), msgspec.structs.replace(folded(folding()), turn=5))
