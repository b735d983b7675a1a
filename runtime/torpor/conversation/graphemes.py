"""Characters as people see them: where text may be cut. Pure.

A grapheme cluster (Unicode Standard Annex 29) is what a reader takes for one character: a letter and its accents, a
family of emoji, a flag, a syllable of Hangul, CRLF. Whether one is complete is told only by what comes after it.
"""

from typing import Final

import regex

OPEN_TAIL_MAX: Final = 128
"""In code points: letters under heaps of accents end, but nobody who waits for that must have to keep them all."""
_UP_TO_LAST: Final = regex.compile(r"\X*(\X)\Z")


def open_tail(text: str) -> int:
    """Where the last cluster begins that further text could belong to; ``len(text)`` when nothing can join the end.

    A cluster of more than ``OPEN_TAIL_MAX`` code points counts as complete.
    """
    last = text[-1:]
    if last < "\x80":
        if last < " " and last != "\r":
            return len(text)
        if text[-2:-1] < "\x80":
            return len(text) - 1
    start = _last_cluster(text)
    return start if len(text) - start <= OPEN_TAIL_MAX else len(text)


def cut(text: str, *, chars_max: int) -> str:
    """The longest prefix of whole clusters that has at most ``chars_max`` code points.

    Empty when the first cluster is longer than that.
    """
    if len(text) <= chars_max:
        return text
    if chars_max > 0:
        before, after = text[chars_max - 1], text[chars_max]
        if before < "\x80" and after < "\x80" and (before, after) != ("\r", "\n"):
            return text[:chars_max]
    return text[: _last_cluster(text[: chars_max + 1])]


def _last_cluster(text: str) -> int:
    """Where the last cluster of a text that is not empty begins."""
    found = _UP_TO_LAST.match(text)
    assert found is not None, "any text that is not empty ends with a cluster"
    return found.start(1)
