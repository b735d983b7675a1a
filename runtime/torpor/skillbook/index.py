"""The index of skills in a system prompt, within its budget, and the search for what it left out. PURE."""

import heapq
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from torpor.conversation.budget import tokens_of_bytes
from torpor.conversation.graphemes import cut
from torpor.conversation.markup import element, escaped, group
from torpor.skillbook.parse import Skill

INDEX_TAG: Final = "available_skills"
FIRST_SENTENCE_CHARS_MAX: Final = 160
SHORT_CHARS_MAX: Final = 80
QUERY_WORDS_MAX: Final = 24
"""Different words of a search that count, the first ones."""
QUERY_CHARS_MAX: Final = 2_048

_FRAME_BYTES: Final = len(f"<{INDEX_TAG}>\n</{INDEX_TAG}>")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])")
_WORD: Final = re.compile(r"\w+")


class IndexText(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the system prompt."""

    text: str
    """Empty when there is no skill to tell of; the same bytes for the same skills."""
    listed: tuple[str, ...]
    """Keys, sorted."""
    left_out: tuple[str, ...]
    """Keys of skills that the budget had no room for, sorted; only a search finds them."""

    @property
    def tokens(self) -> int:
        """Estimated."""
        return tokens_of_bytes(len(self.text.encode()))


def index_text(skills: Sequence[Skill], *, budget_tokens: int) -> IndexText:
    """One line for each skill that a model may load, sorted by key.

    Over budget, the descriptions of all are shortened: to their first sentence of at most 160 characters, then to 80,
    then to nothing. If the keys alone are still too many, those last in the alphabet are left out, and a closing line
    tells how many and how they are found. That line stands there even where the budget has no room for it.
    """
    offered = sorted((skill for skill in skills if skill.model_invocable), key=lambda skill: skill.key)
    if not offered:
        return IndexText(text="", listed=(), left_out=())
    keys = tuple(skill.key for skill in offered)
    for shorten in (_whole, _first_sentence, _short, _nothing):
        lines = _fitting(offered, shorten, bytes_before=_FRAME_BYTES, budget_tokens=budget_tokens)
        if len(lines) == len(offered):
            return IndexText(text=group(INDEX_TAG, lines), listed=keys, left_out=())
    note_bytes = len(_note(len(offered)).encode()) + 1
    lines = _fitting(offered, _nothing, bytes_before=_FRAME_BYTES + note_bytes, budget_tokens=budget_tokens)
    text = group(INDEX_TAG, [*lines, _note(len(offered) - len(lines))])
    return IndexText(text=text, listed=keys[: len(lines)], left_out=keys[len(lines) :])


def line_tokens(skill: Skill) -> int:
    """Estimated cost of a skill's whole line in an index."""
    return tokens_of_bytes(len(_line(skill, _whole).encode()) + 1)


class Finder:
    """The words of some skills, taken apart once; may be made in another thread than it is asked in."""

    def __init__(self, skills: Iterable[Skill]) -> None:
        self._skills = tuple(skill for skill in skills if skill.model_invocable)
        self._headings = _where([f"{skill.key} {skill.name}" for skill in self._skills])
        self._descriptions = _where([skill.description for skill in self._skills])

    def search(self, query: str, *, limit: int, among: Container[str] | None = None) -> tuple[Skill, ...]:
        """The skills that have words of ``query`` in key, name or description, best first; ties in the order of keys.

        Having more of the words counts most; a word counts more in a key or name than in a description, and more whole
        than as a part of another. Args: among: keys; None for all.
        """
        had: Counter[int] = Counter()
        scores: Counter[int] = Counter()
        for word in itertools.islice(dict.fromkeys(_words(query[:QUERY_CHARS_MAX])), QUERY_WORDS_MAX):
            worth = _worth(word, self._descriptions, whole=3)
            for number, match in _worth(word, self._headings, whole=4).items():
                worth[number] = worth.get(number, 0) + 3 * match
            had.update(worth.keys())
            scores.update(worth)
        found = (number for number in had if among is None or self._skills[number].key in among)
        best = heapq.nsmallest(
            limit, found, key=lambda number: (-had[number], -scores[number], self._skills[number].key)
        )
        return tuple(self._skills[number] for number in best)


def search(skills: Sequence[Skill], query: str, *, limit: int) -> tuple[Skill, ...]:
    """As ``Finder`` does, once."""
    return Finder(skills).search(query, limit=limit)


def _where(texts: Iterable[str]) -> dict[str, list[int]]:
    """By word, the numbers of the texts that have it."""
    where: dict[str, list[int]] = {}
    for number, text in enumerate(texts):
        for word in set(_words(text)):
            where.setdefault(word, []).append(number)
    return where


def _worth(word: str, where: Mapping[str, Sequence[int]], *, whole: int) -> dict[int, int]:
    """What ``word`` counts in each text that has it."""
    # Scripts without blanks have a sentence for a word.
    is_long = len(word) >= 3 or not word.isascii()
    worth: dict[int, int] = {}
    for other in (other for other in where if word in other) if is_long else ():
        worth.update(dict.fromkeys(where[other], 1))
    return worth | dict.fromkeys(where.get(word, ()), whole)


def _line(skill: Skill, shorten: Callable[[str], str]) -> str:
    return element("skill", escaped(shorten(skill.description)), attributes={"name": skill.key})


def _fitting(
    skills: Sequence[Skill], shorten: Callable[[str], str], *, bytes_before: int, budget_tokens: int
) -> list[str]:
    """Lines of the first skills, as many as fit; the work is that of what fits, not of all."""
    lines = []
    size_bytes = bytes_before
    for skill in skills:
        line = _line(skill, shorten)
        size_bytes += len(line.encode()) + 1
        if tokens_of_bytes(size_bytes) > budget_tokens:
            break
        lines.append(line)
    return lines


def _note(left_out: int) -> str:
    skills = "1 more skill is" if left_out == 1 else f"{left_out} more skills are"
    return element("note", f"{skills} not listed here; search_skills finds them")


def _whole(description: str) -> str:
    return description


def _first_sentence(description: str) -> str:
    return _ended(_SENTENCE_END.split(description, maxsplit=1)[0], description, chars_max=FIRST_SENTENCE_CHARS_MAX)


def _short(description: str) -> str:
    return _ended(_SENTENCE_END.split(description, maxsplit=1)[0], description, chars_max=SHORT_CHARS_MAX)


def _nothing(_: str) -> str:
    return ""


def _ended(text: str, whole: str, *, chars_max: int) -> str:
    """``text``, with an ellipsis where it was cut in the middle of a sentence."""
    if len(text) <= chars_max:
        return text
    return cut(text, chars_max=chars_max - 1).rstrip() + "…"


def _words(text: str) -> list[str]:
    return _WORD.findall(_folded(text))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().replace("_", " ")
