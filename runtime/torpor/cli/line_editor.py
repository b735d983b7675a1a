"""What is typed on a terminal, as a line that grows and ends; knows no terminal.

The terminal itself would show each key where the cursor happens to be, in the middle of a reply that streams. So the
chat takes the keys one by one, and its screen shows the line where it belongs. Keys that move the cursor do nothing.
"""

import codecs
import unicodedata
from collections.abc import Iterator
from enum import Enum
from typing import Final

_ENTER: Final = "\r\n"
_BACKSPACE: Final = "\x7f\x08"
_END_OF_INPUT: Final = "\x04"
_CLEAR: Final = "\x15"
_CUT_WORD: Final = "\x17"
_ESCAPE: Final = "\x1b"


class _Key(Enum):
    """How far a key of several characters has come."""

    NONE = 0
    ESCAPED = 1
    SEQUENCE = 2


class LineEditor:
    """``text`` is the line so far; ``has_ended`` once Ctrl-D came on an empty one."""

    def __init__(self) -> None:
        self.text = ""
        self.has_ended = False
        self._key = _Key.NONE
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def typed(self, keys: bytes) -> Iterator[str]:
        """Take keys; each line that they end is yielded while ``text`` is what follows it."""
        for char in self._decoder.decode(keys):
            if self._is_part_of_a_key(char):
                continue
            if char in _ENTER:
                line, self.text = self.text, ""
                yield line
            elif char == _END_OF_INPUT and not self.text:
                self.has_ended = True
                return
            else:
                self.text = _edited(self.text, char)

    def _is_part_of_a_key(self, char: str) -> bool:
        """Arrows and their kin come as ESC [ … letter, or as ESC and one character."""
        match self._key:
            case _Key.NONE:
                self._key = _Key.ESCAPED if char == _ESCAPE else _Key.NONE
                return char == _ESCAPE
            case _Key.ESCAPED:
                self._key = _Key.SEQUENCE if char in "[O" else _Key.NONE
            case _Key.SEQUENCE:
                self._key = _Key.NONE if "@" <= char <= "~" else _Key.SEQUENCE
        return True


def _edited(text: str, char: str) -> str:
    if char in _BACKSPACE:
        return _without_last(text)
    if char == _CLEAR:
        return ""
    if char == _CUT_WORD:
        return text.rstrip()[: len(text.rstrip()) - len((text.split() or [""])[-1])]
    if char == "\t":
        return text + " "
    return text if unicodedata.category(char) == "Cc" else text + char


def _without_last(text: str) -> str:
    """Without the last character and the marks that stand on it."""
    end = len(text) - 1
    while end > 0 and width(text[end]) == 0:
        end -= 1
    return text[: max(end, 0)]


def width(text: str) -> int:
    """Columns that ``text`` takes on a terminal."""
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
