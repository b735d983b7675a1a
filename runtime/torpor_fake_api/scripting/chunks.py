"""Cuts a text into the pieces in which it is streamed, some of them where a reader least expects a cut."""

import re
from itertools import pairwise
from typing import Final, Literal

Chunks = int | Literal["words", "whole", "escapes"]
"""``words``: with the space behind them; ``escapes``: inside every JSON escape; a number: so many characters each."""

_WORD: Final = re.compile(r"\s*\S+\s?|\s+")
_ESCAPE: Final = re.compile(r"\\u[0-9a-fA-F]{4}|\\.")


def cut(text: str, chunks: Chunks) -> tuple[str, ...]:
    """``text`` in pieces that join to it again; none for an empty text.

    Raises: ValueError: pieces of less than one character.
    """
    match chunks:
        case _ if not text:
            return ()
        case "whole":
            return (text,)
        case "words":
            return tuple(_WORD.findall(text))
        case "escapes":
            return _inside_escapes(text)
        case int(size) if size > 0:
            return tuple(text[at : at + size] for at in range(0, len(text), size))
        case _:
            raise ValueError(f"pieces of {chunks!r} characters cannot be, expected at least 1")


def _inside_escapes(text: str) -> tuple[str, ...]:
    """Cut behind the backslash of each escape and, of ``\\u`` escapes, once more between the digits."""
    places = {0, len(text)}
    for escape in _ESCAPE.finditer(text):
        places |= {escape.start() + 1, min(escape.start() + 3, escape.end())}
    ordered = sorted(places)
    return tuple(text[start:end] for start, end in pairwise(ordered))
