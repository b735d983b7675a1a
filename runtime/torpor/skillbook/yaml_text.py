"""YAML as nested maps and lists of text: no scalar is guessed to be a number, a date, a truth or nothing. PURE.

Tags are ignored, so no object is ever made; aliases are refused, so no document unfolds into more than was read.
"""

from typing import Any, Final, NamedTuple

import yaml

DEPTH_MAX: Final = 16
NODES_MAX: Final = 10_000

# The parser in C is ten times as fast; a build of the library without it has the other.
_LOADER: Final[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class YamlFault(Exception):
    """The text is no YAML of the kind that is read here."""

    def __init__(self, reason: str, *, line: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        """From 1, in the text given."""


class Repeated(NamedTuple):
    """A key that a map of the top level has twice."""

    key: str
    line: int


class Mapping(NamedTuple):
    """A map at the top level."""

    values: dict[str, Any]
    """Text, lists and maps of them; the last of equal keys counts."""
    lines: dict[str, int]
    """Where each key of the top level stands."""
    repeated: tuple[Repeated, ...]
    """Equal keys, at any level."""


def read_mapping(text: str) -> Mapping:
    """The map that ``text`` is; an empty one for an empty text.

    Raises: YamlFault: it is malformed, something else, or larger or deeper than the bounds.
    """
    try:
        return _Building().of(text)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        raise YamlFault(exc.problem or "malformed", line=mark.line + 1 if mark else 1) from exc
    except (yaml.YAMLError, ValueError, OverflowError) as exc:  # the last two: escapes beyond Unicode
        raise YamlFault("malformed", line=1) from exc


class _Building:
    """Builds without recursion, from the parser's events."""

    def __init__(self) -> None:
        self._repeated: list[Repeated] = []
        self._lines: dict[str, int] = {}
        self._stack: list[_Open] = []
        self._result: Any = None
        self._documents = 0

    def of(self, text: str) -> Mapping:
        for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
            line = event.start_mark.line + 1 if event.start_mark else 1
            if count > NODES_MAX or len(self._stack) > DEPTH_MAX:
                raise YamlFault(f"more than {NODES_MAX:,} parts or deeper than {DEPTH_MAX} levels", line=line)
            self._take(event, line=line)
        if self._result is None or self._result == "":
            return Mapping({}, {}, ())
        if not isinstance(self._result, dict):
            raise YamlFault("expected lines of the form `key: value`", line=1)
        return Mapping(self._result, self._lines, tuple(self._repeated))

    def _take(self, event: Any, *, line: int) -> None:
        match event:
            case yaml.AliasEvent():
                raise YamlFault(f"the alias *{event.anchor} is not supported", line=line)
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise YamlFault("expected one document", line=line)
            case yaml.ScalarEvent():
                self._put(event.value, line=line)
            case yaml.MappingStartEvent():
                self._stack.append(_Open({}, line=line))
            case yaml.SequenceStartEvent():
                self._stack.append(_Open([], line=line))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._stack.pop()
                self._put(done.value, line=done.line)

    def _put(self, value: Any, *, line: int) -> None:
        if not self._stack:
            self._result = value
            return
        inner = self._stack[-1]
        if isinstance(inner.value, list):
            inner.value.append(value)
        elif inner.key is None:
            inner.key = value if isinstance(value, str) else repr(value)
            if inner.key in inner.value:
                self._repeated.append(Repeated(inner.key, line))
            if len(self._stack) == 1:
                self._lines[inner.key] = line
        else:
            inner.value[inner.key] = value
            inner.key = None


class _Open:
    """A list or map that is being read."""

    __slots__ = ("key", "line", "value")

    def __init__(self, value: list[Any] | dict[str, Any], *, line: int) -> None:
        self.value: Any = value
        self.line = line
        self.key: str | None = None
        """Read, and waiting for its value."""
