"""Words of a text that mean something, and how a full-text index of SQLite is asked for them. Pure.

What people and models write is never query syntax: it is taken apart into words, and each is quoted. Words that carry
no meaning of their own are not looked for.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

TOKENIZER: Final = "porter unicode61 remove_diacritics 2"
"""Of the indexes that are asked so: words count in their English stem, without regard to case and accents."""
_WORD: Final = re.compile(r"[^\W_]+")
_EMPTY: Final = """
a about above after again all also am an and any anybody anyone anything are as at back be because been before being
below between both but by can come could did do does doing down during each else even ever every everybody everyone
everything few find for from further get give go goes going good got had has have having he hello help her here hers
hi him his how i if in into is it its itself just know let like long look made make may me might more most must my
name need no nobody nor not nothing now of off ok okay on once one only or other our ours out over own please s same
say shall she should so some somebody someone something such t take tell than thank thanks that the their them then
there these they thing things this those through time to today too under until up us very want was we were what when
where which while who whom why will with would yes you your yours
"""
_EMPTY_WORDS: Final = frozenset(_EMPTY.split())
"""English words that carry no meaning of their own."""
_GREETING: Final = re.compile(r"\bgood (?:morning|afternoon|evening|day|night)\b", re.IGNORECASE)
"""Says nothing of the time that is meant."""


def words_of(text: str, *, words_max: int) -> list[str]:
    """The first different words of ``text`` that mean something; letters and digits only."""
    words: dict[str, None] = {}
    for found in _WORD.finditer(_GREETING.sub(" ", unicodedata.normalize("NFC", text))):
        word = found[0].lower()
        if word not in _EMPTY_WORDS:
            words[word] = None
            if len(words) == words_max:
                break
    return list(words)


def any_of(words: Iterable[str]) -> str:
    """What finds, in FTS5, the rows that have at least one of ``words``; each must be as ``words_of`` gives it."""
    return " OR ".join(f'"{word}"' for word in words)
