"""All that keeps a JSON value from being of a type; msgspec tells the first fault only. Pure.

Above: answers of a model, which can mend in one go what it is told at once.

Types are structs, tuples of one type with a greatest length, and texts, whole numbers and choices with their bounds.
"""

import typing
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import msgspec

from torpor.conversation.graphemes import cut

_SHOWN_CHARS_MAX: Final = 60
_KEY_CHARS_MAX: Final = 40
_NUMBER_MAX: Final = 10**15


class Fault(msgspec.Struct, frozen=True):
    """One of them."""

    path: str
    """Like ``goals[0].text``; empty for the value itself."""
    found: str
    """As it is told."""
    expected: str

    def __str__(self) -> str:
        return f"{self.path or 'the answer'} is {self.found}, expected {self.expected}"


def faults_of(value: Any, type_: Any, *, path: str = "") -> Iterator[Fault]:
    """What does not fit, in the order of the type; nothing for what can be converted.

    Args: value: as JSON is decoded.  type_: see above.
    """
    bounds = msgspec.Meta()
    if typing.get_origin(type_) is Annotated:
        type_, bounds = typing.get_args(type_)
    if typing.get_origin(type_) is tuple:
        yield from _of_list(value, typing.get_args(type_)[0], bounds=bounds, path=path)
    elif isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        yield from _of_struct(value, type_, path=path)
    else:
        try:
            msgspec.convert(value, Annotated[type_, bounds])
        except msgspec.ValidationError:
            yield Fault(path, shown(value), _expected(type_, bounds))


def _of_list(value: Any, type_: Any, *, bounds: msgspec.Meta, path: str) -> Iterator[Fault]:
    if not isinstance(value, list) or not (bounds.min_length or 0) <= len(value) <= (bounds.max_length or 0):
        yield Fault(path, shown(value), _list_of(bounds))
    else:
        for index, item in enumerate(value):
            yield from faults_of(item, type_, path=f"{path}[{index}]")


def _of_struct(value: Any, type_: type[msgspec.Struct], *, path: str) -> Iterator[Fault]:
    fields = msgspec.structs.fields(type_)
    names = [field.encode_name for field in fields]
    if not isinstance(value, dict):
        yield Fault(path, shown(value), f"an object with {', '.join(names)}")
        return
    for field in fields:
        inner = _joined(path, field.encode_name)
        if field.encode_name in value:
            yield from faults_of(value[field.encode_name], field.type, path=inner)
        elif field.required:
            yield Fault(inner, "missing", _wanted(field.type))
    for key in value:
        if key not in names:
            yield Fault(_joined(path, cut(key, chars_max=_KEY_CHARS_MAX)), "unknown", f"one of {', '.join(names)}")


def _wanted(type_: Any) -> str:
    """What should stand where nothing does."""
    bounds = msgspec.Meta()
    if typing.get_origin(type_) is Annotated:
        type_, bounds = typing.get_args(type_)
    if typing.get_origin(type_) is tuple:
        return _list_of(bounds)
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return f"an object with {', '.join(field.encode_name for field in msgspec.structs.fields(type_))}"
    return _expected(type_, bounds)


def _list_of(bounds: msgspec.Meta) -> str:
    return f"a list of {f'{bounds.min_length} to' if bounds.min_length else 'at most'} {bounds.max_length}"


def _expected(type_: Any, bounds: msgspec.Meta) -> str:
    if bounds.description:
        return bounds.description
    if typing.get_origin(type_) is Literal:
        return f"one of {', '.join(map(repr, typing.get_args(type_)))}"
    if type_ is int:
        return f"a whole number from {bounds.ge} to {bounds.le}"
    if bounds.min_length:
        return f"text of {bounds.min_length} to {bounds.max_length} characters"
    return f"text of at most {bounds.max_length} characters"


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def shown(value: Any) -> str:
    """A JSON value, short enough to be told."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str() if len(value) > _SHOWN_CHARS_MAX:
            return f"{cut(value, chars_max=_SHOWN_CHARS_MAX)!r}… ({len(value)} characters)"
        case str():
            return repr(value)
        case int() | float():
            return f"the number {value}" if abs(value) < _NUMBER_MAX else "a huge number"
        case list():
            return f"a list of {len(value)}"
        case _:
            return "an object"
