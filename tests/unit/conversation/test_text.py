"""Text from outside is cleaned once, visibly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.conversation.text import CleanText, clean, is_blank
from torpor.records.blocks import text_block

ANY_TEXT = st.text(st.characters())
"""Lone surrogates and controls included."""


@pytest.mark.parametrize(
    ("text", "cleaned", "replaced"),
    [
        ("plain text", "plain text", 0),
        ("tab\tline\nreturn\r", "tab\tline\nreturn\r", 0),
        ("nul\x00", "nul\u2400", 1),
        ("bell\x07 escape\x1b", "bell\u2407 escape\u241b", 2),
        ("delete\x7f", "delete\u2421", 1),
        ("\ud83d", "\ufffd", 1),
        ("a\ude00b", "a\ufffdb", 1),
        ("\ude00\ud83d", "\ufffd\ufffd", 2),
        ("\ud83d\ude00", "\U0001f600", 0),
        ("\ud83d\ud83d\ude00\ude00", "\ufffd\U0001f600\ufffd", 2),
        ("\ud83d\ude00\x00", "\U0001f600\u2400", 1),
        ("\U0001f469\u200d\U0001f467", "\U0001f469\u200d\U0001f467", 0),
        ("", "", 0),
    ],
)
def test_what_cannot_be_stored_is_replaced_visibly_and_counted(text: str, cleaned: str, replaced: int) -> None:
    assert clean(text) == CleanText(cleaned, replaced)


@given(ANY_TEXT)
def test_clean_text_can_be_stored_and_sent(text: str) -> None:
    cleaned = clean(text).text
    assert b"\\u0000" not in bytes(text_block(cleaned))
    assert cleaned.encode().decode() == cleaned


@given(ANY_TEXT)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    assert clean(clean(text).text) == CleanText(clean(text).text, 0)


@given(st.text())
def test_text_without_controls_is_left_alone(text: str) -> None:
    harmless = "".join(char for char in text if char in "\t\n\r" or not ("\x00" <= char <= "\x1f" or char == "\x7f"))
    assert clean(harmless) == CleanText(harmless, 0)


@pytest.mark.parametrize(
    "text", ["", " ", "\n\t\r", "\u200b\u200d\ufeff", "\u00a0\u2003\u3000", "\x00", "\u2028\u2029"]
)
def test_text_of_which_nothing_is_visible_is_blank(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", " .", "\u200b0", "\ufffd", "\u2400", "\U0001f469\u200d\U0001f467"])
def test_one_visible_character_is_enough(text: str) -> None:
    assert not is_blank(text)


@given(st.text())
def test_what_is_not_blank_is_accepted_as_a_text_block(text: str) -> None:
    assert is_blank(text) or text.strip()
