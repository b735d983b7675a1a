"""``{placeholders}`` in the texts and arguments of a rehearsal.

``{day}`` or ``{1}`` is a group of the expression that matched, ``{0}`` all that matched; ``{result.opening_hours}`` is
what that tool answered last, ``{result.2}`` what the second call did. As the whole of an argument, ``{amount:number}``
and ``{count:int}`` give a number, ``{day:lower}`` small letters, and a group that took no part leaves the argument out.
``{result.search_evidence:ids}`` is a list of what its lines begin with, up to the first ``|``; in a text, as JSON.
Other braces stand for themselves. Pure.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

CONVERSIONS: Final = ("number", "int", "lower", "ids")

_NAME: Final = r"result\.[\w-]+|\w+"
_PLACEHOLDER: Final = re.compile(rf"\{{({_NAME})(?::({'|'.join(CONVERSIONS)}))?\}}")
_CONVERTED: Final = re.compile(rf"\{{({_NAME}):(\w+)\}}")
_LEFT_OUT: Final = object()


class Values:
    """What the placeholders of one step stand for."""

    def __init__(self, match: re.Match[str] | None, results: Sequence[tuple[str, str]]) -> None:
        """Args: results: name and text of each call so far, in order."""
        self._known: dict[str, str | None] = {}
        if match is not None:
            groups = {str(number): match[number] for number in range(len(match.groups()) + 1)}
            self._known.update(groups, **match.groupdict())
        for number, (name, text) in enumerate(results, start=1):
            self._known[f"result.{number}"] = self._known[f"result.{name}"] = text

    def text(self, template: str) -> str:
        """``template`` with each placeholder replaced; one that has no value by nothing."""
        return _PLACEHOLDER.sub(lambda found: self._said(found[1], found[2]), template)

    def arguments(self, templates: Mapping[str, Any]) -> dict[str, Any]:
        """``templates`` with each string in it filled, at any depth."""
        filled = {name: self._filled(value) for name, value in templates.items()}
        return {name: value for name, value in filled.items() if value is not _LEFT_OUT}

    def _said(self, name: str, type_: str | None) -> str:
        value = self._known.get(name) or ""
        return json.dumps(_ids(value)) if type_ == "ids" else value

    def _filled(self, value: Any) -> Any:
        match value:
            case str():
                whole = _PLACEHOLDER.fullmatch(value)
                return self.text(value) if whole is None else self._typed(whole[1], whole[2])
            case dict():
                return self.arguments(value)
            case list():
                return [self._filled(inner) for inner in value]
            case _:
                return value

    def _typed(self, name: str, type_: str | None) -> Any:
        value = self._known.get(name)
        if value is None:
            return _LEFT_OUT
        try:
            return _AS[type_](value)
        except ValueError:
            return value  # the tool says better than we what is wrong with it


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def _ids(text: str) -> list[str]:
    """Each once, in their order."""
    begun = (line.partition(" | ") for line in text.splitlines())
    return list(dict.fromkeys(id_ for id_, mark, _ in begun if mark))


_AS: Final[dict[str | None, Callable[[str], Any]]] = {
    "number": _number,
    "int": int,
    "lower": str.lower,
    "ids": _ids,
    None: str,
}


def placeholders(template: Any) -> Iterator[str]:
    """The names of all placeholders in a text, or in arguments at any depth."""
    yield from (found[1] for text in _texts(template) for found in _PLACEHOLDER.finditer(text))


def conversions(template: Any) -> Iterator[tuple[str, str]]:
    """Name and conversion of all that looks like a placeholder with one, whether or not there is such a conversion."""
    yield from ((found[1], found[2]) for text in _texts(template) for found in _CONVERTED.finditer(text))


def _texts(template: Any) -> Iterator[str]:
    match template:
        case str():
            yield template
        case dict():
            for value in template.values():
                yield from _texts(value)
        case list() | tuple():
            for value in template:
                yield from _texts(value)
        case _:
            pass
