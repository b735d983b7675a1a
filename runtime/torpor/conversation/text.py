"""Text from outside, made storable and sendable, once, at the boundary.

Lone surrogates cannot be encoded and NUL and its kin break request bodies and databases. They are replaced by something
visible and counted, never dropped in silence.
"""

import re
import unicodedata
from typing import Final

import msgspec

_REPLACEMENTS: Final = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"} | {
    0x7F: 0x2421,
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),
}
_UNSAFE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_INVISIBLE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})


class CleanText(msgspec.Struct, frozen=True):
    """Text that every store and every request can hold."""

    text: str
    replaced: int
    """How many characters were replaced."""


def clean(text: str) -> CleanText:
    """Replace what cannot be stored or sent: lone surrogates by U+FFFD, controls by their pictures (NUL becomes
    U+2400).

    Surrogates that form a pair are joined, not replaced: they are one character written by a UTF-16 client.
    """
    if _UNSAFE.search(text) is None:
        return CleanText(text, 0)
    joined = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return CleanText(joined.translate(_REPLACEMENTS), len(_UNSAFE.findall(joined)))


def is_blank(text: str) -> bool:
    """Whether nothing of it is visible: blanks, controls, zero-width and other format characters only."""
    return all(unicodedata.category(char) in _INVISIBLE_CATEGORIES for char in text)
