"""Estimated tokens by section of a request."""

import pytest

from torpor.conversation.budget import preamble_sections, request_sections, tokens_of_bytes
from torpor.conversation.view import View
from torpor.records.blocks import canonical, text_block


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
