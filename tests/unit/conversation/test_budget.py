"""Estimated tokens by section of a request."""

import pytest

from torpor.conversation.budget import (
    input_tokens,
    next_request_tokens,
    preamble_sections,
    request_sections,
    tokens_of_bytes,
)
from torpor.conversation.state import ConversationState
from torpor.conversation.view import View, preamble_of
from torpor.records.blocks import canonical, text_block
from torpor.records.journal import Usage


@pytest.mark.parametrize(("size_bytes", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (4_000, 1_000)])
def test_a_token_is_four_bytes_rounded_up(size_bytes: int, tokens: int) -> None:
    assert tokens_of_bytes(size_bytes) == tokens


def test_instructions_and_tools_are_counted_as_they_are_sent() -> None:
    fields = {"system": [{"type": "text", "text": "naïve"}], "tools": [{"name": "look"}], "model": "m"}
    assert preamble_sections(fields) == {
        "instructions": tokens_of_bytes(len(canonical(fields["system"]))),
        "tools": tokens_of_bytes(len(canonical(fields["tools"]))),
    }


@pytest.mark.parametrize("fields", [{}, {"system": [], "tools": []}])
def test_what_is_not_sent_costs_nothing(fields: dict[str, object]) -> None:
    assert preamble_sections(fields) == {"instructions": 0, "tools": 0}


def test_a_request_is_its_fixed_parts_and_the_history() -> None:
    view = View().extended("user", [text_block("hello")])
    assert request_sections({"tools": 3}, view) == {"tools": 3, "history": tokens_of_bytes(view.size_bytes)}


CACHED = Usage(input_tokens=10, cache_creation_input_tokens=200, cache_read_input_tokens=3_000, output_tokens=90)


def test_what_a_cache_had_counts_like_everything_else() -> None:
    assert input_tokens(CACHED) == 3_210


def test_the_next_request_is_what_was_counted_with_the_reply_and_an_estimate_of_what_is_new() -> None:
    before = View().extended("user", [text_block("hello")]).extended("assistant", [text_block("hi")])
    state = ConversationState(last_usage=CACHED, measured_bytes=2 + before.size_bytes, view=before)
    assert next_request_tokens(state, before, bytes_per_token=4.0) == 3_300
    after = before.extended("user", [text_block("x" * 400)])
    new_bytes = after.size_bytes - before.size_bytes
    assert next_request_tokens(state, after, bytes_per_token=4.0) == 3_300 + -(-new_bytes // 4)
    assert next_request_tokens(state, after, bytes_per_token=2.0) == 3_300 + -(-new_bytes // 2)


def test_what_left_the_view_or_the_preamble_is_taken_off_again() -> None:
    state = ConversationState(last_usage=Usage(input_tokens=100), measured_bytes=402)
    assert next_request_tokens(state, View(), bytes_per_token=4.0) == 0
    larger = ConversationState(
        last_usage=Usage(input_tokens=100), measured_bytes=2, preamble=preamble_of({"a": "b" * 395})
    )
    assert next_request_tokens(larger, View(), bytes_per_token=4.0) == 201


def test_a_host_that_counts_nothing_leaves_it_to_the_estimate() -> None:
    view = View().extended("user", [text_block("hello")])
    assert next_request_tokens(ConversationState(), view, bytes_per_token=4.0) == tokens_of_bytes(2 + view.size_bytes)
