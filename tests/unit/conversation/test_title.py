"""Titles: one line that every list can show."""

import pytest

from torpor.conversation.title import TITLE_CHARS_MAX, titled


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Errands", "Errands"),
        ("  two \n lines\tand more ", "two lines and more"),
        ("nul\x00 and half \ud83d", "nul\u2400 and half \ufffd"),
        (" \u200b\u00a0 ", ""),
        ("", ""),
    ],
)
def test_a_title_is_one_line_of_what_can_be_stored(text: str, title: str) -> None:
    assert titled(text) == title


def test_a_long_title_ends_between_characters_as_people_see_them() -> None:
    family = "\U0001f469\u200d\U0001f469\u200d\U0001f467"

    assert titled("x" * 500) == "x" * TITLE_CHARS_MAX
    assert titled("x" * (TITLE_CHARS_MAX - 2) + family) == "x" * (TITLE_CHARS_MAX - 2)
