"""Compact XML for what the engine tells the model beside the user's words. Pure.

Text from users, records and files is escaped, so it can neither close a tag nor begin one; what a user writes is
searched for the engine's own tags, and those are defused.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

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
_HIDDEN: Final = "\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
"""Characters that nobody sees, as a class: a tag with some of them in it still looks like one."""
_BLANKS: Final = rf"[\s{_HIDDEN}]*+"
_NAMES: Final = "|".join(f"[{_HIDDEN}]*+".join(tag) for tag in TAGS)
# Possessive, since blanks that two repetitions can share would cost the square of their number.
_FORGED: Final = re.compile(rf"<(?={_BLANKS}/?+{_BLANKS}(?:{_NAMES})(?![\w-]))", re.IGNORECASE)


def _spread(words: str) -> str:
    return _BLANKS.join(f"[{_HIDDEN}]*+".join(word) for word in words.split())


_SUMMARY: Final = rf"{_spread('Summary of earlier conversation')}{_BLANKS}:"
_SKILL: Final = rf"{_spread('Skill')}[^,\[\]]{{1,100}}+,{_BLANKS}{_spread('version')}"
_BRACKETED: Final = re.compile(rf"\[(?={_BLANKS}(?:{_SUMMARY}|{_SKILL}))", re.IGNORECASE)

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
    return _BRACKETED.sub("&#91;", _FORGED.sub("&lt;", text))


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
