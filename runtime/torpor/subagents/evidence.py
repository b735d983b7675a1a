"""The evidence of a home: digest entries in files, found by the words of any text.

Above: the search tool of sub-agents that look for evidence. Each file below ``EVIDENCE_FOLDER`` holds one JSON object a
line, and its name is the topic of its entries. The index lies in memory, is built once and never changed; a search is
synchronous and takes a few milliseconds among some hundred entries.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec

from torpor.conversation.graphemes import cut
from torpor.conversation.words import TOKENIZER, any_of, words_of
from torpor.errors import ConfigError
from torpor.misfits import Words, misfit, seen, unreadable
from torpor.ordinary_files import read_ordinary, shown
from torpor.records.bounds import Count

EVIDENCE_FOLDER: Final = "config/evidence"
EXCERPT_CHARS: Final = 240
"""Of what a search shows of an abstract."""
_FILE_BYTES_MAX: Final = 4_194_304
_QUERY_WORDS_MAX: Final = 24
"""Different words of a query that are looked for; the first ones count."""
_BEFORE_CHARS: Final = 40
"""Of an excerpt, before the first of the words that were found."""
_HIT: Final = "\x02"
_ENTRY: Final = "one JSON object with id, title, year, kind, strength and abstract"
_TABLE: Final = f"""
CREATE VIRTUAL TABLE entries USING fts5(title, topic, abstract, tokenize = "{TOKENIZER}")
"""
_SEARCH: Final = f"""
SELECT rowid, highlight(entries, 2, '{_HIT}', '')
FROM entries WHERE entries MATCH ? ORDER BY bm25(entries, 3.0, 2.0, 1.0), rowid
"""  # noqa: S608 - put together from its own constants


class Kind(StrEnum):
    """What an entry sums up."""

    GUIDELINE = "guideline"
    REVIEW = "review"
    TRIAL = "trial"
    COHORT = "cohort"
    CONSENSUS = "consensus"
    AUDIT = "audit"


class Strength(StrEnum):
    """How sure the writers of an entry are of it, the surest first."""

    HIGH = "high"
    MODERATE = "moderate"
    LOW = "low"
    VERY_LOW = "very_low"


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a file."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_-]{1,64}\Z")]
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    year: Annotated[int, msgspec.Meta(ge=1900, le=2199)]
    """Up to which its sources were looked at."""
    kind: Kind
    strength: Strength
    abstract: Annotated[str, msgspec.Meta(min_length=1, max_length=4_000)]


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """An entry and where it stands."""

    entry: Entry
    topic: str
    """The name of its file, without the ending."""
    line: int
    """From 1."""

    @property
    def locator(self) -> str:
        return f"{self.topic}.jsonl:{self.line}"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that fits a query."""

    id: str
    title: str
    locator: str
    """File and line, as in ``sleep.jsonl:4``."""
    excerpt: str
    """Of the abstract, around the first word that was found there."""
    year: int
    kind: Kind
    strength: Strength


def read_evidence(home: Path) -> tuple[Placed, ...]:
    """Every entry of ``home``, in order of the files' names and of their lines; none where there is no such folder.

    Raises: ConfigError: a file cannot be read, a line is no entry, or has the id of another one.
    """
    entries: dict[str, Placed] = {}
    for path in sorted((home / EVIDENCE_FOLDER).glob("*.jsonl")):
        where = f"{EVIDENCE_FOLDER}/{shown(path.name)}"
        for placed in _entries(_text(path, where=where), where=where, topic=shown(path.stem)):
            first = entries.setdefault(placed.entry.id, placed)
            if first is not placed:
                expected = f"another one, since {first.locator} has it already"
                raise ConfigError(where, key=f"line {placed.line}, id", found=placed.entry.id, expected=expected)
    return tuple(entries.values())


class EvidenceIndex:
    """Built once and never changed, so that one thread may build it and another one search it."""

    def __init__(self, entries: Iterable[Placed]) -> None:
        self._entries = tuple(entries)
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._database.execute(_TABLE)
        self._database.executemany(
            "INSERT INTO entries (rowid, title, topic, abstract) VALUES (?, ?, ?, ?)",
            [
                (row, placed.entry.title, placed.topic, placed.entry.abstract)
                for row, placed in enumerate(self._entries)
            ],
        )

    def search(
        self,
        query: str,
        *,
        limit: Count,
        kinds: frozenset[Kind] = frozenset(Kind),
        year_min: int = 0,
        strength_min: Strength = Strength.VERY_LOW,
    ) -> tuple[Found, ...]:
        """At most ``limit`` entries that share a word with ``query``, best first; of equal ones, in their order.

        Args: kinds, year_min, strength_min: of the entries that may be found.
        """
        words = words_of(query, words_max=_QUERY_WORDS_MAX)
        if not words:
            return ()
        sure = tuple(Strength)[: tuple(Strength).index(strength_min) + 1]
        found: list[Found] = []
        for row, marked in self._database.execute(_SEARCH, (any_of(words),)).fetchall():
            placed = self._entries[row]
            entry = placed.entry
            if entry.kind in kinds and entry.year >= year_min and entry.strength in sure:
                found.append(_found(placed, at=max(marked.find(_HIT), 0)))
                if len(found) == limit:
                    break
        return tuple(found)

    def close(self) -> None:
        self._database.close()

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<EvidenceIndex entries={len(self._entries)}>"


def excerpt_of(text: str, *, at: int, chars_max: int) -> str:
    """At most ``chars_max`` characters of ``text`` around the place ``at``, cut between words where it can be."""
    begin = len(cut(text[:at], chars_max=max(at - _BEFORE_CHARS, 0)))
    if begin:
        begin = text.find(" ", begin, at) + 1 or begin
    piece = cut(text[begin:], chars_max=chars_max)
    if begin + len(piece) == len(text):
        return f"…{piece}" if begin else piece
    head, blank, _ = piece.rpartition(" ")
    return f"{'…' if begin else ''}{head if blank else piece}…"


def _found(placed: Placed, *, at: int) -> Found:
    entry = placed.entry
    return Found(
        id=entry.id,
        title=entry.title,
        locator=placed.locator,
        excerpt=excerpt_of(entry.abstract, at=at, chars_max=EXCERPT_CHARS),
        year=entry.year,
        kind=entry.kind,
        strength=entry.strength,
    )


def _entries(text: str, *, where: str, topic: str) -> Iterator[Placed]:
    """Those of one file; a blank line is none."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield Placed(entry=_entry(line, where=where, key=f"line {number}"), topic=topic, line=number)


def _entry(line: str, *, where: str, key: str) -> Entry:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise ConfigError(where, key=key, found=Words("not JSON"), expected=_ENTRY) from exc
    try:
        return msgspec.convert(value, Entry)
    except msgspec.ValidationError as exc:
        found = misfit(exc, Entry)
        key += f", {found.path.removeprefix('.')}" if found.path else ""
        expected = found.expected if found.path else _ENTRY
        raise ConfigError(where, key=key, found=seen(found, value), expected=expected) from exc


def _text(path: Path, *, where: str) -> str:
    try:
        return read_ordinary(path, cap_bytes=_FILE_BYTES_MAX).decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigError(where, key="content", found=Words("not UTF-8"), expected="UTF-8") from exc
    except OSError as exc:
        raise unreadable(exc, where=where) from exc
