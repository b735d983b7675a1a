"""What a summariser answered, read leniently: the JSON object that it was asked for, wherever it stands in its words,
or plain words. Pure.

Every string is made storable and loses the engine's own marks after it is read, since JSON can write any character as
an escape.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from torpor.conversation.budget import tokens_of_bytes
from torpor.conversation.markup import defused
from torpor.conversation.summary import LINE_BYTES, LISTS, CompactionOptions, Proposal, told_bytes
from torpor.conversation.text import clean, is_blank
from torpor.records.summary import Closing, ItemKind, Summary


class BadSummary(ValueError):
    """The summariser's answer is no summary; the text says why."""


FIELDS: Final = frozenset({*LISTS, "open", "closed"})
OBJECTS_MAX: Final = 16
"""Braces in an answer at which an object is looked for."""
_FENCE: Final = re.compile(r"^[ \t]*+```\w*+[ \t]*+$", re.MULTILINE)
_JSON_LIKE: Final = re.compile(
    rf"\A\s*(?:\{{|\[\s*[\[{{\"'\d\]])|[\"'](?:{'|'.join(sorted(FIELDS))})[\"']\s*:", re.IGNORECASE
)
# Whatever stands in quotes is passed over whole, with or without its end, so that a text is gone through once.
_SPARE_COMMA: Final = re.compile(r'("(?:[^"\\]|\\.)*+"?)|,(?=\s*+[}\]])', re.DOTALL)
_DECODER: Final = json.JSONDecoder(strict=False)


def read_proposal(text: str, *, options: CompactionOptions) -> Proposal:
    """A summariser's answer: the JSON object that it was asked for, or plain words, which are facts.

    Raises: BadSummary: it says nothing, or more than the cap, or is JSON of another form or that cannot be read.
    """
    text = _FENCE.sub("", text)
    if is_blank(text):
        raise BadSummary("the summariser said nothing")
    fields = _object(text)
    if fields is None:
        proposal = Proposal(summary=Summary(facts=_texts(text.splitlines())))
    else:
        proposal = Proposal(
            summary=Summary(**{name: _texts(fields.get(name)) for name in LISTS}),
            opened=tuple(_opened(fields.get("open"))),
            closed=tuple(_closed(fields.get("closed"))),
        )
    summary = proposal.summary
    if not (summary.facts or summary.decisions or summary.entities or proposal.opened):
        raise BadSummary("the summariser's answer holds no fact, decision, entity or open item")
    if (tokens := _tokens(summary)) > options.summary_tokens:
        raise BadSummary(f"the summary has about {tokens} tokens, expected at most {options.summary_tokens}")
    return proposal


def _object(text: str) -> dict[str, object] | None:
    """The one object of the asked form in ``text``; None when it is plain words.

    Raises: BadSummary: there are several, or what looks like JSON is not.
    """
    found = list(_objects(text)) or list(_objects(_SPARE_COMMA.sub(r"\1", text)))
    if len(found) > 1:
        raise BadSummary(f"the summariser's answer holds {len(found)} JSON objects, expected one")
    if found:
        return found[0]
    if _JSON_LIKE.search(text):
        raise BadSummary("the summariser's answer looks like JSON and cannot be read as the object it was asked for")
    return None


def _objects(text: str) -> Iterator[dict[str, object]]:
    place = -1
    for _ in range(OBJECTS_MAX):
        if (place := text.find("{", place + 1)) < 0:
            return
        try:
            value, end = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            continue
        for each in (value, *value.values()):  # some wrap it in an object of their own
            if isinstance(each, dict) and FIELDS & each.keys():
                yield each
                break
        else:
            if not value and not text[:place].strip() and not text[end:].strip():
                yield value
        place = end - 1


def _texts(value: object) -> tuple[str, ...]:
    lines = (_line(text) for text in (value if isinstance(value, list) else []) if isinstance(text, str))
    return tuple(line for line in lines if line)


def _line(text: str) -> str:
    """On one line, storable, without the engine's own marks; empty for what nobody sees."""
    line = defused(" ".join(clean(text).text.split()))
    return "" if is_blank(line) else line


def _tokens(summary: Summary) -> int:
    return tokens_of_bytes(sum(told_bytes(text) + LINE_BYTES for name in LISTS for text in getattr(summary, name)))


def _opened(value: object) -> Iterable[tuple[ItemKind, str, int]]:
    for each in value if isinstance(value, list) else []:
        kind, text = (each.get("kind"), each.get("text")) if isinstance(each, dict) else (None, None)
        if kind in tuple(ItemKind) and isinstance(text, str) and (line := _line(text)):
            yield ItemKind(kind), line, _number(each.get("turn"))


def _closed(value: object) -> Iterable[Closing]:
    for each in value if isinstance(value, list) else []:
        if isinstance(each, dict) and isinstance(each.get("id"), str):
            yield Closing(id=each["id"], turn=_number(each.get("turn")))


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
