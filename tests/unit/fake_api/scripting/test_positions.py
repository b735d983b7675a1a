"""Places in a reply, written as words."""

import pytest

from torpor_fake_api.scripting.positions import Position, after_bytes, after_deltas, after_events, position


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("before_headers", Position("before_headers")),
        ("before_message_stop", Position("before_message_stop")),
        (after_events(0), Position("after_events", 0)),
        (after_deltas(12), Position("after_deltas", 12)),
        (after_bytes(1), Position("after_bytes", 1)),
    ],
)
def test_words_name_a_place(words: str, place: Position) -> None:
    assert position(words) == place


@pytest.mark.parametrize("words", ["", "somewhere", "after_deltas", "after_deltas:-1", "first_event:2"])
def test_other_words_name_none(words: str) -> None:
    with pytest.raises(ValueError, match="is no position in a reply, expected one of after_bytes:N, after_deltas:N"):
        position(words)
