"""How a text is cut for streaming."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor_fake_api.scripting.chunks import Chunks, cut


@pytest.mark.parametrize(
    ("text", "chunks", "pieces"),
    [
        ("one two  three", "words", ("one ", "two ", " three")),
        ("  ", "words", ("  ",)),
        ("one two", "whole", ("one two",)),
        ("abcde", 2, ("ab", "cd", "e")),
        ("👍🏽", 1, ("👍", "🏽")),
        (r"a\u00e9b\n", "escapes", ("a\\", "u0", "0e9b\\", "n")),
        (r"\ud83d\ude00", "escapes", ("\\", "ud", "83d\\", "ud", "e00")),
        ("", "words", ()),
        ("", 3, ()),
    ],
)
def test_a_text_is_cut_as_asked(text: str, chunks: Chunks, pieces: tuple[str, ...]) -> None:
    assert cut(text, chunks) == pieces


@given(text=st.text(), chunks=st.sampled_from(["words", "whole", "escapes", 1, 7]))
def test_pieces_join_to_the_text(text: str, chunks: Chunks) -> None:
    pieces = cut(text, chunks)

    assert "".join(pieces) == text
    assert "" not in pieces


@pytest.mark.parametrize("size", [0, -1])
def test_pieces_of_nothing_are_an_error(size: int) -> None:
    with pytest.raises(ValueError, match=f"pieces of {size} characters cannot be"):
        cut("text", size)
