"""What a fold comes to is told as it will be: with what joins, and with what is offered then."""

import math

import msgspec

from tests.support.turns_told import called, plain, told
from torpor.conversation.budget import NEXT_BYTES, pending_bytes
from torpor.conversation.compaction import Window
from torpor.conversation.folding import carried_so_far, folded, plan_of, shortened
from torpor.conversation.reckoning import follows, has_room, reckoned
from torpor.conversation.state import ConversationState, QueuedMessage
from torpor.conversation.summary import CompactionOptions
from torpor.conversation.view import preamble_of
from torpor.records.blocks import text_block
from torpor.records.ids import MessageId
from torpor.records.journal import ContextReplaced
from torpor.records.terms import FoldReason, Usage, WhenBusy

OPTIONS = CompactionOptions(result_bytes=30)
WINDOW = Window(budget_tokens=1_000, reserve_tokens=100)
LONG = told(*(plain(number, text="x" * 300) for number in range(1, 6)))


def mechanical(state: ConversationState) -> ContextReplaced:
    return folded(
        state,
        plan_of(state, FoldReason.MECHANICAL),
        reason=FoldReason.MECHANICAL,
        summary=None,
        carried=carried_so_far(state),
        skills=frozenset(),
        options=OPTIONS,
    )


def steered(state: ConversationState, size_bytes: int) -> ConversationState:
    block = text_block("s" * size_bytes)
    message = QueuedMessage(id=MessageId("s"), principal="ann", blocks=(block,), when_busy=WhenBusy.STEER)
    return msgspec.structs.replace(state, queued=(message,))


def test_a_message_that_joins_is_counted_before_and_after() -> None:
    record = mechanical(LONG)
    alone = reckoned(LONG, record, preamble=LONG.preamble, window=WINDOW)
    joined = reckoned(steered(LONG, 400), record, preamble=LONG.preamble, window=WINDOW)
    assert 0 < alone.after_tokens < alone.before_tokens
    block_tokens = math.ceil((400 + len('{"text":"","type":"text"}') + NEXT_BYTES + 1) / 4)
    for name in ("before_tokens", "after_tokens"):
        assert 0 <= block_tokens - (getattr(joined, name) - getattr(alone, name)) <= 1


def test_one_that_has_no_room_is_counted_in_neither() -> None:
    record = mechanical(LONG)
    alone = reckoned(LONG, record, preamble=LONG.preamble, window=WINDOW)
    assert reckoned(steered(LONG, 9_000), record, preamble=LONG.preamble, window=WINDOW) == alone


def test_what_is_offered_then_is_counted_after() -> None:
    larger = preamble_of({"system": "x" * 400})
    record = mechanical(LONG)
    as_it_was = reckoned(LONG, record, preamble=LONG.preamble, window=WINDOW)
    with_more = reckoned(LONG, record, preamble=larger, window=WINDOW)
    grown = (larger.size_bytes - LONG.preamble.size_bytes) / 4
    assert with_more.before_tokens == as_it_was.before_tokens
    assert abs(with_more.after_tokens - as_it_was.after_tokens - grown) < 1


def test_results_of_the_open_round_are_counted_as_they_will_be() -> None:
    state = told(called(1, result="m" * 900), plain(2), pending={"a": "r" * 900})
    record = reckoned(state, shortened(state, options=OPTIONS), preamble=state.preamble, window=WINDOW)
    after = follows(state, record, preamble=state.preamble)
    bytes_after = after.preamble.size_bytes + after.view.size_bytes + pending_bytes(after, ())
    assert record.after_tokens == math.ceil(bytes_after / 4)
    assert record.before_tokens - record.after_tokens > 300


def test_tokens_are_counted_by_what_the_host_counts() -> None:
    by_two = msgspec.structs.replace(WINDOW, bytes_per_token=2.0, budget_tokens=4_000)
    record = mechanical(LONG)
    one = reckoned(LONG, record, preamble=LONG.preamble, window=WINDOW)
    two = reckoned(LONG, record, preamble=LONG.preamble, window=by_two)
    assert two.after_tokens in {2 * one.after_tokens - 1, 2 * one.after_tokens}


def test_before_and_after_are_told_by_one_measure() -> None:
    """What the host counted last says nothing of the view after it was replaced."""
    record = mechanical(LONG)
    measured = msgspec.structs.replace(LONG, last_usage=Usage(input_tokens=50), measured_bytes=LONG.view.size_bytes)
    one = reckoned(LONG, record, preamble=LONG.preamble, window=WINDOW)
    assert reckoned(measured, record, preamble=LONG.preamble, window=WINDOW) == one


def test_a_request_has_room_up_to_the_limit() -> None:
    assert has_room(LONG, window=Window())
    assert has_room(LONG, window=Window(budget_tokens=1_200))
    assert not has_room(LONG, window=Window(budget_tokens=200))
