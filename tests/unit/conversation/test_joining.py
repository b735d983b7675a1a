"""Messages that steer join a request in which they have room; they never make its turn fail."""

import msgspec
import pytest

from tests.support.turns_told import asked, plain, told, with_turn
from torpor.conversation.compaction import Window
from torpor.conversation.joining import joining
from torpor.conversation.state import ConversationState, QueuedMessage
from torpor.conversation.steps import CallModel, Compact, FinishTurn, Folding, Lane, Step, StepOptions, next_step
from torpor.records.blocks import text_block
from torpor.records.ids import MessageId
from torpor.records.terms import FoldReason, Usage, WhenBusy

WINDOW = Window(budget_tokens=500, reserve_tokens=100, has_summariser=True)
"""400 tokens fit, which is 1,600 bytes."""
SHORT = told(asked("a question"))


def steering(state: ConversationState, *sizes: int, **fields: object) -> ConversationState:
    """Messages of so many bytes wait to steer, named in order."""
    waiting = (
        QueuedMessage(
            id=MessageId(f"s{place}"),
            principal="ann",
            blocks=(text_block("s" * size),),
            when_busy=WhenBusy.STEER,
        )
        for place, size in enumerate(sizes, 1)
    )
    return msgspec.structs.replace(state, queued=tuple(waiting), **fields)


def next_of(state: ConversationState, *, window: Window = WINDOW) -> Step:
    return next_step(state, Lane.TURN, StepOptions(attempts_max=2), 0, folding=Folding(window=window))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((200,), ["s1"]),
        ((200, 200, 200), ["s1", "s2", "s3"]),
        ((200, 5_000), ["s1"]),
        ((5_000, 200), []),
        ((600, 600, 600), ["s1", "s2"]),
    ],
)
def test_those_that_fit_join_in_order_and_the_others_wait(sizes: tuple[int, ...], expected: list[str]) -> None:
    state = steering(SHORT, *sizes)
    assert [*joining(state, window=WINDOW)] == expected
    assert next_of(state) == CallModel(turn=1, round=1, attempt=1, joined=tuple(map(MessageId, expected)))


def test_without_a_budget_all_of_them_join() -> None:
    assert len(joining(steering(SHORT, 5_000, 5_000), window=Window())) == 2


def test_none_joins_a_request_that_is_asked_again() -> None:
    again = with_turn(steering(SHORT, 100), call="1-1-1", round=1, is_too_long=True)
    assert joining(again, window=WINDOW) == ()


def test_a_message_that_queues_is_passed_by() -> None:
    queued = QueuedMessage(
        id=MessageId("q"), principal="ann", blocks=(text_block("q" * 9_000),), when_busy=WhenBusy.QUEUE
    )
    state = steering(SHORT, 100)
    assert joining(msgspec.structs.replace(state, queued=(queued, *state.queued)), window=WINDOW) == ("s1",)


def test_what_the_host_counted_last_decides_whether_there_is_room() -> None:
    state = steering(SHORT, 200, last_usage=Usage(input_tokens=390, output_tokens=9), measured_bytes=60)
    assert joining(state, window=WINDOW) == ()


LATER = told(plain(1, text="x" * 400), plain(2), plain(3), plain(4))
"""About 1,400 bytes, of which 950 are older than the turns that stay."""


def test_older_turns_are_folded_for_the_sake_of_one_that_fits_then() -> None:
    state = steering(LATER, 650)
    step = next_of(state)
    assert isinstance(step, Compact)
    assert (step.reason, step.tokens > WINDOW.limit_tokens) == (FoldReason.SUMMARY, True)


def test_nothing_is_folded_for_one_that_does_not_fit_even_then() -> None:
    assert next_of(steering(LATER, 1_200)) == CallModel(turn=4, round=1, attempt=1)


def test_what_was_said_last_does_not_go_for_the_sake_of_one() -> None:
    state = told(plain(1, text="x" * 200), plain(2, text="x" * 200))
    assert next_of(steering(state, 700)) == CallModel(turn=2, round=1, attempt=1)


def test_nothing_is_folded_for_one_before_a_reply_has_measured_the_fold_before() -> None:
    assert next_of(steering(LATER, 650, is_measured=False)) == CallModel(turn=4, round=1, attempt=1)


def test_a_fold_that_keeps_crashing_for_one_is_given_up_without_it() -> None:
    window = msgspec.structs.replace(WINDOW, has_summariser=False)
    state = steering(LATER, 650)
    assert isinstance(next_of(with_turn(state, folds_begun=1), window=window), Compact)
    assert next_of(with_turn(state, folds_begun=2), window=window) == CallModel(turn=4, round=1, attempt=1)


def test_what_the_turn_needs_without_it_is_done_first() -> None:
    state = told(plain(1, text="x" * 700), plain(2, text="x" * 700))
    step = next_of(steering(state, 200))
    assert isinstance(step, Compact)
    assert step.reason is FoldReason.EVERYTHING


def test_a_turn_that_fails_alone_fails_with_one_that_waits() -> None:
    step = next_of(steering(told(asked("x" * 3_000)), 100))
    assert isinstance(step, FinishTurn)
    assert "the request has about 76" in step.detail
