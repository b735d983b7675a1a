"""Excerpts in a full-text index in memory, found by the words of any text.

What people write is never query syntax. A word is looked for in its English stem, without regard to case and accents;
words that carry no meaning of their own are not looked for. An excerpt that shares none of the rest is not found.
"""

import sqlite3
from collections.abc import Iterable
from typing import Final

import msgspec

from torpor.conversation.words import TOKENIZER, any_of, words_of
from torpor.policies.parse import Excerpt, PolicyFile

_TABLE: Final = f"""
CREATE VIRTUAL TABLE excerpts USING fts5(
    policy UNINDEXED, version UNINDEXED, title, heading, body, tokenize = "{TOKENIZER}"
)
"""
_SEARCH: Final = """
SELECT rowid, -bm25(excerpts, 0, 0, 2.0, 4.0, 1.0) AS score
FROM excerpts WHERE excerpts MATCH ? ORDER BY score DESC, rowid LIMIT ?
"""
_SCORE_MIN: Final = 0.001
"""BM25 gives nearly nothing to a word that is in half of all excerpts or more, and tells none of them apart."""
_MANY: Final = 10
"""Among fewer excerpts, half of them is no measure, and every shared word counts."""


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
        rows = self._database.execute(_SEARCH, (any_of(words), len(self._excerpts))).fetchall()
        score_min = _SCORE_MIN if len(self._excerpts) >= _MANY else 0.0
        found = (Found(excerpt=self._excerpts[row], score=score) for row, score in rows if score >= score_min)
        return [each for each in found if ids is None or each.excerpt.id in ids]

    def close(self) -> None:
        self._database.close()

    def __len__(self) -> int:
        return len(self._excerpts)
