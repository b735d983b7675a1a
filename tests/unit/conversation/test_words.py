"""Words that mean something, in the order in which they were said."""

import pytest

from torpor.conversation.words import any_of, words_of


def test_the_first_different_words_are_taken_in_their_order() -> None:
    assert words_of("late late LATE visit lost", words_max=2) == ["late", "visit"]
    assert words_of("late visit", words_max=9) == ["late", "visit"]


@pytest.mark.parametrize("text", ["", "_ _", "?!", "what is the", "Good morning, can you please", "🙂"])
def test_words_without_a_meaning_of_their_own_are_none(text: str) -> None:
    assert words_of(text, words_max=9) == []


def test_accents_are_composed_and_digits_are_words() -> None:
    assert words_of("cafe\u0301 24h, 7/7", words_max=9) == ["caf\u00e9", "24h", "7"]


def test_each_word_is_quoted() -> None:
    assert any_of(words_of('lost" OR (NEAR*', words_max=9)) == '"lost" OR "near"'
