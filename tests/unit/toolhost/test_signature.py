from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from torpor.errors import ConfigError, ToolInputInvalid
from torpor.toolhost.contract import ToolContext
from torpor.toolhost.signature import Parameters, Routine, read_signature


class Slot(msgspec.Struct):
    """When."""

    day: str
    minutes: Annotated[int, msgspec.Meta(ge=5, le=120)] = 30


class Room(Enum):
    BLUE = "blue"
    RED = "red"


class ByHour(msgspec.Struct, tag="hour"):
    hour: int


class ByName(msgspec.Struct, tag="name"):
    name: str
    within: "ByHour | ByName | None" = None


async def book(
    patient: str,
    slots: list[Slot],
    *,
    context: ToolContext,
    room: Room = Room.BLUE,
    kind: Literal["first", "follow-up"] = "first",
    note: str | None = None,
    tags: Annotated[list[str], msgspec.Meta(max_length=2)] = [],  # noqa: B006  # never mutated, as msgspec copies it
) -> str:
    return ""


async def find(by: ByHour | ByName, on: date, *, within: dict[str, list[int]]) -> str:
    return ""


async def moments(
    at: datetime | None = None,
    since: time | None = None,
    lasting: timedelta | None = None,
    id_: UUID | None = None,
    scan: bytes | None = None,
) -> str:
    return ""


async def nothing() -> str:
    return ""


def read(function: Callable[..., Any], **descriptions: str) -> tuple[Routine, Parameters]:
    return read_signature(function, tool="t", descriptions=descriptions)


def subschemas(schema: object) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for each in inner:
        yield from subschemas(each)


@pytest.mark.parametrize("function", [book, find, nothing])
def test_a_schema_has_its_object_at_the_root_and_resolves_what_it_refers_to(function: Callable[..., Any]) -> None:
    schema = read(function)[1].schema
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert not schema.keys() & {"oneOf", "anyOf", "allOf", "$ref"}
    for part in subschemas(schema):
        if "$ref" in part:
            assert part["$ref"].removeprefix("#/$defs/") in schema["$defs"]


def test_the_schema_promises_what_the_annotations_say() -> None:
    properties = read(book, patient="Who comes.")[1].schema["properties"]
    assert list(properties) == ["patient", "slots", "room", "kind", "note", "tags"]
    assert properties["patient"] == {"type": "string", "description": "Who comes."}
    assert properties["kind"] == {"enum": ["first", "follow-up"], "default": "first"}
    assert properties["tags"]["maxItems"] == 2


def test_a_parameter_of_a_named_type_is_described_beside_its_reference() -> None:
    properties = read(book, room="Where.")[1].schema["properties"]
    assert properties["room"] == {"$ref": "#/$defs/Room", "default": "blue", "description": "Where."}


def test_the_context_is_no_part_of_the_schema() -> None:
    routine, parameters = read(book, context="Filled in.")
    assert routine.context_name == "context"
    assert "context" not in parameters.schema["properties"]


def test_decoded_arguments_carry_their_types_and_their_defaults() -> None:
    given = read(book)[1].decode(msgspec.Raw(b'{"patient":"Ada","slots":[{"day":"Monday"}],"room":"red"}'))
    assert given == {
        "patient": "Ada",
        "slots": [Slot(day="Monday", minutes=30)],
        "room": Room.RED,
        "kind": "first",
        "note": None,
        "tags": [],
    }


def test_defaults_are_not_shared_between_calls() -> None:
    parameters = read(book)[1]
    arguments = msgspec.Raw(b'{"patient":"Ada","slots":[]}')
    parameters.decode(arguments)["tags"].append("x")
    assert parameters.decode(arguments)["tags"] == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (b"[]", "`$`"),
        (b'"Ada"', "`$`"),
        (b"null", "`$`"),
        (b"", "`$`"),
        (b'{"patient":', "`$`"),
        (b'{"slots":[]}', "`patient`"),
        (b'{"patient":"Ada","slots":[],"doctor":"Bell"}', "`doctor`"),
        (b'{"patient":7,"slots":[]}', "`$.patient`"),
        (b'{"patient":null,"slots":[]}', "`$.patient`"),
        (b'{"patient":"Ada","slots":{}}', "`$.slots`"),
        (b'{"patient":"Ada","slots":[{"day":"Monday"},{"day":1}]}', "`$.slots[1].day`"),
        (b'{"patient":"Ada","slots":[{"day":"Monday","minutes":1}]}', "`$.slots[0].minutes`"),
        (b'{"patient":"Ada","slots":[{"day":"Monday","minutes":' + b"9" * 5000 + b"}]}", "`$.slots[0].minutes`"),
        (b'{"patient":"Ada","slots":[{"day":"Monday","minutes":NaN}]}', "`$`"),
        (b'{"patient":"Ada","slots":[{"day":"Monday","minutes":1e400}]}', "`$.slots[0].minutes`"),
        (b'{"patient":"Ada","slots":[{"day":"Monday","minutes":30.5}]}', "`$.slots[0].minutes`"),
        (b'{"patient":"Ada","slots":[],"room":"green"}', "`$.room`"),
        (b'{"patient":"Ada","slots":[],"tags":["a","b","c"]}', "`$.tags`"),
        (b'{"patient":"\\ud800","slots":[]}', "`$`"),
        (b'{"patient":"\xed\xa0\x80","slots":[]}', "`$`"),
        (b'{"patient":"\xff","slots":[]}', "`$`"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_their_path(arguments: bytes, named: str) -> None:
    with pytest.raises(ToolInputInvalid, match="nothing was run") as caught:
        read(book)[1].decode(msgspec.Raw(arguments))
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("function", "arguments", "would_fit"),
    [
        (book, {"patient": "Ada", "slots": [], "room": "green"}, "expected one of 'blue', 'red' - at `$.room`"),
        (book, {"patient": "Ada", "slots": [], "kind": "last"}, "expected one of 'first', 'follow-up' - at `$.kind`"),
        (book, {"patient": "Ada", "doctor": "Bell"}, "expected one of kind, note, patient, room, slots, tags"),
        (find, {"by": {"type": "day"}, "on": "2026-11-30", "within": {}}, "expected one of 'hour', 'name'"),
        (find, {"by": {"type": "hour", "hour": 9}, "on": "Monday"}, "expected the like of '2026-11-30' - at `$.on`"),
        (moments, {"at": "noon"}, "expected the like of '2026-11-30T09:30:00+01:00' - at `$.at`"),
        (moments, {"since": "noon"}, "expected the like of '09:30:00' or '09:30:00+01:00' - at `$.since`"),
        (moments, {"lasting": "an hour"}, "expected the like of 'PT1H30M' - at `$.lasting`"),
        (moments, {"id_": "7"}, "expected the like of '123e4567-e89b-12d3-a456-426614174000' - at `$.id_`"),
        (moments, {"scan": "?"}, "expected base64 - at `$.scan`"),
    ],
)
def test_who_passed_what_does_not_fit_reads_what_would(
    function: Callable[..., Any], arguments: dict[str, Any], would_fit: str
) -> None:
    with pytest.raises(ToolInputInvalid) as caught:
        read(function)[1].decode(msgspec.Raw(msgspec.json.encode(arguments)))
    assert would_fit in str(caught.value)


def test_arguments_nested_too_deeply_are_refused() -> None:
    async def anything(value: Any) -> str:
        return ""

    with pytest.raises(ToolInputInvalid, match="nested too deeply"):
        read(anything)[1].decode(msgspec.Raw(b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}"))


def test_what_json_allows_reaches_the_tool_unchanged() -> None:
    async def anything(value: Any) -> str:
        return ""

    decode = read(anything)[1].decode
    assert decode(msgspec.Raw(b'{"value":"a\\u0000b"}')) == {"value": "a\0b"}
    assert decode(msgspec.Raw(b'{"value":' + b"9" * 100 + b"}")) == {"value": int("9" * 100)}


def test_a_tool_may_take_nothing() -> None:
    parameters = read(nothing)[1]
    assert parameters.decode(msgspec.Raw(b"{}")) == {}
    assert parameters.schema["properties"] == {}


def test_whether_a_function_is_asynchronous_is_read_from_it() -> None:
    def plainly() -> str:
        return ""

    assert read(nothing)[0].is_async
    assert not read(plainly)[0].is_async


def unannotated(patient) -> str:  # type: ignore[no-untyped-def]
    return ""


def positional(patient: str, /) -> str:
    return ""


def variadic(*patients: str) -> str:
    return ""


def dunder(__patient: str) -> str:
    return ""


def unknowable(patient: "Patient") -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


def without_json(patient: object) -> str:
    return ""


def with_default_of_no_json(patients: list[str] = ["Ada"]) -> str:  # noqa: B006
    return ""


def two_contexts(one: ToolContext, two: ToolContext) -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (unannotated, "parameter 'patient' is without a type, expected an annotation"),
        (positional, "parameter 'patient' is positional-only, expected one that is passed by name"),
        (variadic, "parameter 'patients' is variadic positional, expected"),
        (dunder, "parameter '__patient' is private, expected"),
        (unknowable, "name 'Patient' is not defined"),
        (without_json, "expected types and defaults with a JSON form"),
        (with_default_of_no_json, "expected types and defaults with a JSON form"),
        (two_contexts, "expected one ToolContext at most"),
    ],
)
def test_a_function_that_no_model_can_call_is_an_error_naming_the_parameter(
    function: Callable[..., Any], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(function)
    assert str(caught.value).startswith("tool 't': ")
    assert expected in str(caught.value)


def test_a_docstring_that_describes_no_parameter_is_an_error() -> None:
    with pytest.raises(ConfigError, match="docstring is 'patent', expected a parameter's name"):
        read(book, patent="A typing error.")
