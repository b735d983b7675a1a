"""What a reply is counted as for the next request."""

from tests.unit.conversation.test_fold import after, asked, replied
from torpor.conversation.budget import next_request_tokens, tokens_of_bytes
from torpor.records.blocks import text_block
from torpor.records.journal import TurnFinished
from torpor.records.terms import Usage


def test_what_was_left_out_of_a_reply_is_not_counted_with_the_next_request() -> None:
    usage = Usage(input_tokens=30, output_tokens=5_000)
    state = after(asked(), replied(text_block("hello"), usage=usage, dropped=("tool_use",)))
    counted = state.preamble.size_bytes + state.view.size_bytes
    assert (state.last_usage, state.measured_bytes) == (Usage(input_tokens=30), counted)
    closed = after(state, TurnFinished(turn=1))
    tokens = next_request_tokens(closed, closed.view.size_bytes, bytes_per_token=4.0)
    assert tokens == 30 + tokens_of_bytes(closed.view.size_bytes - state.view.size_bytes)
