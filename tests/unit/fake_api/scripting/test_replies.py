"""Replies as a test writes them."""

import pytest

from torpor_fake_api.scripting.replies import Raw, RedactedThinking, Text, Thinking, ToolUse, deltas_of, says, shortened


def test_a_string_is_a_text_block() -> None:
    assert says("hello", ToolUse("look_up")).content == (Text("hello"), ToolUse("look_up"))


@pytest.mark.parametrize(
    ("block", "pieces"),
    [
        (Text("one two"), ("one ", "two")),
        (Text("", pieces=("o", "ne")), ("o", "ne")),
        (Thinking("one two", chunks="whole"), ("one two",)),
        (ToolUse("look_up"), ()),
        (ToolUse("look_up", {"a": 1}), ('{"a":1}',)),
        (ToolUse("look_up", ["a"], chunks=3), ('["a', '"]')),
        (ToolUse("look_up", json="{oops"), ("{oops",)),
        (ToolUse("look_up", pieces=("{", "}")), ("{", "}")),
        (RedactedThinking(), ()),
        (Raw({"type": "scent"}), ()),
    ],
)
def test_a_block_is_streamed_in_pieces(block: Text | Thinking | ToolUse | Raw, pieces: tuple[str, ...]) -> None:
    assert deltas_of(block) == pieces


@pytest.mark.parametrize(
    ("deltas", "kept"),
    [
        (0, ()),
        (1, (Thinking("hm"),)),
        (2, (Thinking("hm"), Text("one two three", pieces=("one ",)))),
        (4, (Thinking("hm"), Text("one two three"))),
        (5, (Thinking("hm"), Text("one two three"), ToolUse("look_up", {"a": 1}, chunks=4, pieces=('{"a"',)))),
        (9, (Thinking("hm"), Text("one two three"), ToolUse("look_up", {"a": 1}, chunks=4))),
    ],
)
def test_a_reply_is_cut_short_by_deltas(deltas: int, kept: tuple[object, ...]) -> None:
    content = (Thinking("hm"), Text("one two three"), ToolUse("look_up", {"a": 1}, chunks=4))

    assert shortened(content, deltas) == kept
