"""Excerpts in a full-text index in memory, found by the words of any text.

What people write is never query syntax: it is taken apart into words, and each is quoted. A word is looked for in its
English stem, without regard to case and accents; words that carry no meaning of their own are not looked for. An
excerpt that shares none of the rest is not found.
"""

import re
import sqlite3
import unicodedata
from collections.abc import Iterable
from typing import Final

import msgspec

from torpor.policies.parse import Excerpt, PolicyFile

_TABLE: Final = """
CREATE VIRTUAL TABLE excerpts USING fts5(
    policy UNINDEXED, version UNINDEXED, title, heading, body, tokenize = "porter unicode61 remove_diacritics 2"
)
"""
_SEARCH: Final = """
SELECT rowid, -bm25(excerpts, 0, 0, 2.0, 4.0, 1.0) AS score
FROM excerpts WHERE excerpts MATCH ? ORDER BY score DESC, rowid LIMIT ?
"""
_WORD: Final = re.compile(r"[^\W_]+")
_SCORE_MIN: Final = 0.001
"""BM25 gives nearly nothing to a word that is in half of all excerpts or more, and tells none of them apart."""
_MANY: Final = 10
"""Among fewer excerpts, half of them is no measure, and every shared word counts."""
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


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One excerpt and how well it fits; scores of one search compare, those of two do not."""

    excerpt: Excerpt
    score: float


class PolicyIndex:
    """Built once and never changed, so that one thread may build it and another one search it."""

    def __init__(self, policies: Iterable[PolicyFile]) -> None:
        self._excerpts = tuple(excerpt for policy in policies for excerpt in policy.excerpts)
        titles = [policy.title for policy in policies for _ in policy.excerpts]
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._database.execute(_TABLE)
        self._database.executemany(
            "INSERT INTO excerpts (rowid, policy, version, title, heading, body) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (row, excerpt.id, excerpt.version, title, excerpt.heading, excerpt.text)
                for row, (excerpt, title) in enumerate(zip(self._excerpts, titles, strict=True))
            ],
        )

    def search(self, text: str, *, words_max: int, ids: frozenset[str] | None = None) -> list[Found]:
        """Every excerpt that shares a word with ``text``, best first; of equal ones, in the order of the files.

        Args: ids: of the policies that may be found; None for all.
        """
        words = words_of(text, words_max=words_max)
        if not words:
            return []
        query = " OR ".join(f'"{word}"' for word in words)
        rows = self._database.execute(_SEARCH, (query, len(self._excerpts))).fetchall()
        score_min = _SCORE_MIN if len(self._excerpts) >= _MANY else 0.0
        found = (Found(excerpt=self._excerpts[row], score=score) for row, score in rows if score >= score_min)
        return [each for each in found if ids is None or each.excerpt.id in ids]

    def close(self) -> None:
        self._database.close()

    def __len__(self) -> int:
        return len(self._excerpts)


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
