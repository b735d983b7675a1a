"""The toy tokenizer."""

import base64
from typing import Any

import pytest

from tests.unit.fake_api.parts import image, png
from torpor_fake_api.models import MODELS
from torpor_fake_api.prompt.tokens import block_tokens, json_tokens, pieces, text_tokens

OLD, NEW = MODELS["toy-4k"], MODELS["claude-opus-5"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("one two", 2),
        ("extraordinary", 3),
        ("1234567", 3),
        ("a, b.", 4),
        ("a  b", 3),
        ("äöü", 3),
        ("😀", 1),
    ],
)
def test_text_is_counted_in_pieces(text: str, count: int) -> None:
    assert pieces(text) == count


def test_a_newer_tokenizer_makes_more_of_the_same_text() -> None:
    assert (text_tokens("one two three", OLD), text_tokens("one two three", NEW)) == (3, 4)


@pytest.mark.parametrize(
    ("block", "count"),
    [
        ({"type": "text", "text": "one two"}, 4),
        ({"type": "thinking", "thinking": "one", "signature": "x" * 100}, 3),
        ({"type": "redacted_thinking", "data": "x" * 80}, 12),
        ({"type": "tool_result", "tool_use_id": "a", "content": "one two"}, 4),
        ({"type": "tool_result", "tool_use_id": "a"}, 2),
        ({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one two"}]}, 6),
        (image(png(750, 100)), 102),
        (image(png(8000, 8000)), 1602),
        ({"type": "image", "source": {"type": "url", "url": "http://pictures/1"}}, 1336),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "one two"}}, 4),
    ],
)
def test_each_kind_of_block_has_its_tokens(block: dict[str, Any], count: int) -> None:
    assert block_tokens(block, OLD) == count


def test_a_pdf_is_counted_by_its_pages() -> None:
    data = base64.b64encode(b"%PDF /Type /Page /Type/Page /Type /Pages").decode()
    source = {"type": "base64", "media_type": "application/pdf", "data": data}

    assert block_tokens({"type": "document", "source": source}, OLD) == 3002


def test_a_tool_call_is_counted_by_its_name_and_input_and_not_by_its_id() -> None:
    call = {"type": "tool_use", "id": "x", "name": "look_up", "input": {"what": "it"}}

    assert block_tokens(call, OLD) == block_tokens(call | {"id": "y" * 50}, OLD)
    assert block_tokens(call, OLD) == json_tokens({"name": "look_up", "input": {"what": "it"}}, OLD) + 2
