"""What came from outside and is not what its type says, told in our words: TOML files, and what msgspec finds.

Above: settings, rehearsals, the options of models, the frames of clients. msgspec speaks of types as JSON has them, and
files are TOML. It names the value of an enum that it
does not know and not the values that it does; these are looked up here, in the type.
"""

import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from torpor.errors import ConfigError
from torpor.ordinary_files import read_ordinary, shown

TOML_BYTES_MAX: Final = 16_777_216
"""A larger file is not read."""
LEVELS_MAX: Final = 64
"""Parts of a dotted name; the reader takes time in the square of their number."""

_LEAST: Final = -(2**63)
_MOST: Final = 2**64 - 1
"""Of numbers; one bit more than TOML asks for."""
_PART: Final = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_NAME: Final = re.compile(
    rf"(?:^[ \t]*+|[\[{{,][ \t]*+){_PART}(?:\.[ \t]*+{_PART}){{{LEVELS_MAX}}}", re.MULTILINE | re.ASCII
)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([^\]]*)\]")
_PLACE: Final = " - at `"
_NO_CHOICE: Final = re.compile(r"Invalid (?:enum )?value ")

_PATTERN: Final = re.compile(r"Expected `str` matching regex '(.+)'")
_CHARACTERS: Final = re.compile(r"\^\[([^\]]+)\]\{(\d+),(\d+)\}(?:\\Z|\$)")
_KIND: Final = re.compile(r"\\w|[a-zA-Z0-9]-[a-zA-Z0-9]|.")
_SOMETHING: Final = r"\S"
_SHOWN_CHARS_MAX: Final = 120
_EXAMPLE_CHARS_MAX: Final = 40

_FORMS: Final = {
    "RFC3339 encoded date": "the like of '2026-11-30'",
    "RFC3339 encoded time": "the like of '09:30:00' or '09:30:00+01:00'",
    "RFC3339 encoded datetime": "the like of '2026-11-30T09:30:00+01:00'",
    "ISO8601 duration": "the like of 'PT1H30M'",
    "UUID": "the like of '123e4567-e89b-12d3-a456-426614174000'",
    "base64 encoded string": "base64",
}
"""How what msgspec only names is written."""

_TOML_KINDS: Final = {"array": "a list", "object": "a table"}
_KINDS: Final = re.compile(r"`([^`]*)`")
_INDEX: Final = re.compile(r"\[[^]]*\]")
_NAME_LAST: Final = re.compile(r"([\w-]+)\Z")


class Words(msgspec.Struct, frozen=True):
    """Stands in an error where a quoted value would mislead."""

    words: str

    def __repr__(self) -> str:
        return self.words


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of msgspec."""

    path: str
    """Where inside the value, like ``.model[0].name``; empty for the value itself."""
    found: str | Words
    """As msgspec names it; empty where it does not."""
    expected: str


def read_toml(path: Path, *, where: str) -> dict[str, Any]:
    """The tables of a file.

    Args: where: what the error calls it.
    Raises: FileNotFoundError. ConfigError: it cannot be read, or is not TOML.
    """
    where = shown(where)
    try:
        return parse_toml(read_ordinary(path, cap_bytes=TOML_BYTES_MAX).decode("utf-8"))
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise unreadable(exc, where=where) from exc
    except RecursionError as exc:
        found = Words("nested too deeply")
        raise ConfigError(where, key="content", found=found, expected="a few levels of tables and lists") from exc
    except ValueError as exc:  # of TOML and of UTF-8 alike
        raise ConfigError(where, key="content", found=Words(f"not TOML ({exc})"), expected="a TOML document") from exc


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML document.

    Raises: ValueError: it is none, or has a number beyond 64 bits or a name of too many parts. Of a number with
        thousands of digits, Python's reader raises no error of TOML, or makes what cannot be printed.
        RecursionError: it is nested too deeply.
    """
    if long := _LONG_NAME.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise ValueError(f"a name of more than {LEVELS_MAX} parts (at line {line}, column 1)")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as exc:  # thousands of digits
        raise ValueError("a number beyond 64 bits") from exc
    _refuse_vast(tables)
    return tables


def _refuse_vast(tables: dict[str, Any]) -> None:
    left: list[Any] = [tables]
    while left:
        match left.pop():
            case dict() as inner:
                left.extend(inner.values())
            case list() as inner:
                left.extend(inner)
            case int() as number if not _LEAST <= number <= _MOST:
                raise ValueError("a number beyond 64 bits")


def unreadable(exc: OSError, *, where: str, expected: str = "a file that this user may read") -> ConfigError:
    """``exc`` as the fault of the file or folder ``where``."""
    where = shown(where)
    found = Words(f"unreadable ({(exc.strerror or type(exc).__name__).lower()})")
    return ConfigError(where, key="folder" if "folder" in expected else "file", found=found, expected=expected)


def misfit(exc: msgspec.ValidationError, type_: Any) -> Misfit:
    """Why a value is no ``type_``, which is what it was converted to."""
    said, _, place = str(exc).partition(_PLACE)
    path = place.rstrip("`").removeprefix("$")
    if choices := _choices(exc, type_):
        return Misfit(path=path, found=said.partition(" value ")[2].strip("'"), expected=choices)
    if (pattern := _PATTERN.fullmatch(said)) and (spelt := _spelt_as(pattern)):
        return Misfit(path=path, found="", expected=spelt)
    said = said.replace("`", "")
    if unknown := re.fullmatch(r"Object contains unknown field (.+)", said):
        return Misfit(path=f"{path}.{unknown[1]}", found=Words("unknown"), expected=_known(path, type_))
    if missing := re.fullmatch(r"Object missing required field (.+)", said):
        return Misfit(path=f"{path}.{missing[1]}", found=Words("missing"), expected="a value, since it has no default")
    expected, _, found = said.removeprefix("Expected ").partition(", got ")
    return Misfit(path=path, found=found, expected=expected)


def misfit_in_toml(exc: msgspec.ValidationError, type_: Any, *, key: str = "", value: Any = None) -> Misfit:
    """As ``misfit``, in words of TOML, and of a list or a table with how it is written.

    Args: key: where the value stands, such as ``model``; empty for a whole file.  value: what was converted, as far as
        it may be shown.
    """
    why = misfit(exc, type_)
    expected = _of_toml(why.expected)
    if not isinstance(why.found, Words) and expected.startswith(tuple(_TOML_KINDS.values())):
        found = seen(why, value)
        expected += _as_in(key + why.path, list(_parts(why.path, type_)), found if isinstance(found, str) else "")
    return msgspec.structs.replace(why, expected=expected)


def in_toml_words(said: str) -> str:
    """What msgspec says, or ``with_choices``, in words of TOML."""
    said = said.replace("Object missing required field", "It lacks the field", 1)
    said = said.replace("Object contains unknown field", "It has the unknown field", 1)
    return _KINDS.sub(lambda kinds: f"`{_of_toml(kinds[1])}`", said)


def _of_toml(kinds: str) -> str:
    """Args: kinds: as msgspec names them, like ``array | null``."""
    told = []
    for kind in kinds.split(" | "):
        name, blank, rest = kind.partition(" ")
        told.append(f"{_TOML_KINDS.get(name, name)}{blank}{rest}")
    return " or ".join(kind for kind in told if kind != "null") or kinds


def _as_in(place: str, parts: list[Any], found: str) -> str:
    """How a list or a table is written there. Args: found: a text that stands there in its place."""
    name = _NAME_LAST.search(place)
    if name is None:
        return ""
    for part in parts:
        match part:
            case inspect.VarTupleType() | inspect.ListType():
                items = list(_alternatives(part.item_type))
                if any(isinstance(item, inspect.StructType) for item in items):
                    return f", as in [[{_INDEX.sub('', place).strip('.')}]]"
                if any(isinstance(item, inspect.StrType) for item in items):
                    return f', as in {name[1]} = ["{found if _is_plain(found) else "..."}"]'
            case inspect.StructType():
                fields = [field for field in part.fields if field.required] or list(part.fields[:1])
                inner = [f'{each.encode_name} = "..."' for each in fields if _is_text(each.type)]
                if inner and len(inner) == len(fields):
                    return f", as in {name[1]} = {{ {', '.join(inner)} }}"
            case inspect.DictType():
                return f', as in {name[1]} = {{ NAME = "..." }}' if _is_text(part.value_type) else ""
    return ""


def _is_plain(text: str) -> bool:
    return 0 < len(text) <= _EXAMPLE_CHARS_MAX and text.isprintable() and not set(text) & set('"\\')


def _is_text(type_: Any) -> bool:
    return any(isinstance(part, inspect.StrType) for part in _alternatives(type_))


def seen(why: Misfit, value: Any) -> object:
    """What an error shows of what was converted: the value at the place of ``why``, words where it is long or a table.

    Args: value: what ``why`` is about, as TOML and JSON are read.
    """
    if isinstance(why.found, Words):
        return why.found
    for name, index in _STEP.findall(why.path):
        match value:
            case dict() if name in value:
                value = value[name]
            case list() if index.isdigit() and int(index) < len(value):
                value = value[int(index)]
            case _:
                return Words("unusable")
    if isinstance(value, dict):
        return Words("a table")
    return value if len(repr(value)) <= _SHOWN_CHARS_MAX else Words("unusable")


def with_choices(exc: msgspec.ValidationError, type_: Any) -> str:
    """What msgspec says, and what it does not: which values and keys there are, how a date is written, and what of a
    regular expression is plain to say."""
    said, place, path = str(exc).partition(_PLACE)
    if (pattern := _PATTERN.fullmatch(said)) and (spelt := _spelt_as(pattern)):
        return f"Expected {spelt}{place}{path}"
    choices = _choices(exc, type_)
    if said.startswith("Object contains unknown field"):
        choices = _known(path.rstrip("`").removeprefix("$"), type_)
    else:
        choices = choices or next((form for name, form in _FORMS.items() if said == f"Invalid {name}"), "")
    return f"{said}, expected {choices}{place}{path}" if choices else str(exc)


def _spelt_as(said: re.Match[str]) -> str:
    """In words, how many of which characters match; empty for a pattern that says more."""
    pattern = said[1].replace("\\\\", "\\")
    if pattern == _SOMETHING:
        return "a word or more"
    parts = _CHARACTERS.fullmatch(pattern)
    if parts is None:
        return ""
    kinds = {r"\w": "letters, digits, '_'"}
    named = [kinds.get(kind) or (kind if len(kind) > 1 else repr(kind)) for kind in _KIND.findall(parts[1])]
    return f"{parts[2]} to {parts[3]} characters among {', '.join(named)}"


def _choices(exc: msgspec.ValidationError, type_: Any) -> str:
    said, _, place = str(exc).partition(_PLACE)
    if not _NO_CHOICE.match(said):
        return ""
    values = sorted({str(value) for part in _parts(place.rstrip("`"), type_) for value in _values(part)} - {""})
    return f"one of {', '.join(map(repr, values))}" if values else ""


def _known(path: str, type_: Any) -> str:
    names = sorted({field.encode_name for part in _parts(path, type_) for field in getattr(part, "fields", ())})
    return f"one of {', '.join(names)}" if names else "a key that is known here"


class _Tag(msgspec.Struct, frozen=True):
    """The place of a union that says which of its types follows."""

    value: str | int


def _parts(path: str, type_: Any) -> list[Any]:
    """Every type that may stand at ``path``, unions and annotations taken apart."""
    parts = list(_alternatives(_described(type_)))
    for name, _ in _STEP.findall(path):
        parts = [below for part in parts for below in _below(part, name)]
    return parts


def _below(part: Any, name: str) -> Iterator[Any]:
    """What may stand under the key ``name`` of ``part``, or in it as a list where the name is empty."""
    match part:
        case inspect.StructType():
            if name == part.tag_field and part.tag is not None:
                yield _Tag(part.tag)
            for field in part.fields:
                if field.encode_name == name:
                    yield from _alternatives(field.type)
        case inspect.DictType():
            yield from _alternatives(part.value_type)
        case inspect.VarTupleType() | inspect.ListType():
            yield from _alternatives(part.item_type)


def _alternatives(part: Any) -> Iterator[Any]:
    match part:
        case inspect.Metadata():
            yield from _alternatives(part.type)
        case inspect.UnionType():
            for alternative in part.types:
                yield from _alternatives(alternative)
        case _:
            yield part


def _values(part: Any) -> Iterator[Any]:
    match part:
        case inspect.EnumType():
            yield from (member.value for member in part.cls)
        case inspect.LiteralType():
            yield from part.values
        case _Tag():
            yield part.value


@functools.cache
def _described(type_: Any) -> Any:
    return inspect.type_info(type_)
