"""Compact XML for what the engine tells the model beside the user's words. Pure.

Text from users, records and files is escaped, so it can neither close a tag nor begin one; what a user writes is
searched for the engine's own tags, and those are defused.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import regex

from torpor.conversation.graphemes import cut

TAGS: Final = (
    "available_skills",
    "context",
    "live_context",
    "lookback",
    "memories",
    "policies",
    "skill",
    "workflow",
)
"""Outermost tags that only the engine may write."""

_ESCAPES: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&#39;"}
_INNER: Final = ("excerpt", "exchange", "note", "record", "role")
"""Tags within those; a model that is shown one alone might take it for one of ours."""
_ALIKE: Final = (
    *(range(0xFE30, 0xFE70), range(0xFF01, 0xFF5F), range(0x2070, 0x20A0)),
    *(range(0x2100, 0x2150), range(0x2460, 0x2500), range(0x1D2C, 0x1D80), range(0x02B0, 0x0300)),
    *(range(0x1D400, 0x1D800), range(0x1F110, 0x1F170)),
)
"""Where characters stand that Unicode counts as another look of ASCII ones."""


def _looks() -> dict[str, str]:
    """For each ASCII character, itself and its other looks."""
    looks: dict[str, str] = {}
    for codes in _ALIKE:
        for char in map(chr, codes):
            plain = unicodedata.normalize("NFKC", char).lower().strip("()")
            if len(plain) == 1 and plain.isascii():
                looks[plain] = looks.get(plain, "") + char
    return looks


_LOOKS: Final = _looks()
_BLANKS: Final = r"[\s\p{Default_Ignorable_Code_Point}\p{Cf}]*+"
"""What nobody sees, or sees as nothing: a tag with some of it inside still looks like one."""


def _any_look(char: str) -> str:
    return f"[{regex.escape(char + _LOOKS.get(char.lower(), ''))}]"


def _spread(words: str) -> str:
    """A pattern for ``words`` in whatever look, with whatever between their letters."""
    letters = (r"[_\-\uff3f\uff0d]*+" if char == "_" else _any_look(char) for char in words if char != " ")
    return _BLANKS.join(letters)


_OPENING: Final = re.compile("|".join(map(_any_look, "<[")))
"""What every forgery begins with."""


@cache
def _forgeries() -> tuple[regex.Pattern[str], regex.Pattern[str]]:
    """Patterns for the opening of a tag, and of a summary or a skill; made when first needed, since that takes 50 ms,
    which most starts of a command have no use for.

    Possessive, since blanks that two repetitions can share would cost the square of their number.
    """
    wanted = (*TAGS, *_INNER)
    names = "|".join(map(_spread, wanted))
    # Looked at before the names are tried one by one.
    first = f"[{''.join(_any_look(char)[1:-1] for char in sorted({name[0] for name in wanted}))}]"
    end = r"(?![\p{L}\p{N}_-])"
    tag = rf"{_any_look('<')}(?={_BLANKS}{_any_look('/')}?+{_BLANKS}(?={first})(?:{names}){end})"
    summary = _spread("Summary of earlier conversation:")
    skill = rf"{_spread('Skill')}[^,\uff0c\[\]]{{1,100}}+{_any_look(',')}{_BLANKS}{_spread('version')}"
    bracketed = rf"{_any_look('[')}(?={_BLANKS}(?:{summary}|{skill}))"
    return regex.compile(tag, regex.IGNORECASE), regex.compile(bracketed, regex.IGNORECASE)


_TOLD: Final = re.compile(
    rf"<(?:{'|'.join(TAGS)})[ >]|\[Summary of earlier conversation: |\[Skill [a-z0-9:-]+, version "
)


def escaped(text: str) -> str:
    """``text`` on one line, with nothing in it that markup could mean; runs of blanks become one."""
    return " ".join(text.split()).translate(_ESCAPES)


def escaped_lines(text: str) -> str:
    """``text`` as it is laid out, with nothing in it that markup could mean."""
    return text.strip().translate(_ESCAPES)


def defused(text: str) -> str:
    """``text`` as a user wrote it, with the brackets escaped that open the engine's own tags, a summary or a skill."""
    if not _OPENING.search(text):
        return text
    tag, bracketed = _forgeries()
    return bracketed.sub(_entity, tag.sub(_entity, text))


def _entity(bracket: regex.Match[str]) -> str:
    return "&lt;" if bracket[0] == "<" else f"&#{ord(bracket[0])};"


def is_told(text: str) -> bool:
    """Whether a text block is something that the engine told, and no user said."""
    return _TOLD.match(text) is not None


def element(name: str, content: str, *, attributes: Mapping[str, str] = {}) -> str:
    """One element. Args: content: escaped already, or elements.  attributes: not escaped yet; empty ones are left
    out."""
    head = "".join((name, *(f' {key}="{escaped(value)}"' for key, value in attributes.items() if value)))
    return f"<{head}>{content}</{name}>" if content else f"<{head}/>"


def group(name: str, elements: Iterable[str], *, attributes: Mapping[str, str] = {}) -> str:
    """Elements within one, each on a line of its own; empty when there are none."""
    lines = tuple(elements)
    return element(name, "\n" + "\n".join(lines) + "\n", attributes=attributes) if lines else ""


def capped(text: str, *, bytes_max: int) -> tuple[str, bool]:
    """``text`` escaped, in at most ``bytes_max`` bytes of UTF-8 and cut between graphemes; whether it was cut."""
    whole = escaped(text)
    if len(whole.encode()) <= bytes_max:
        return whole, False
    plain = " ".join(text.split())
    kept, dropped = 0, min(len(plain), bytes_max) + 1
    while dropped - kept > 1:  # a longer piece never takes fewer bytes, so halving finds the longest
        middle = (kept + dropped) // 2
        if len(cut(plain, chars_max=middle).translate(_ESCAPES).encode()) <= bytes_max:
            kept = middle
        else:
            dropped = middle
    return cut(plain, chars_max=kept).translate(_ESCAPES), True
