"""Whether a foreign input schema may be offered to a model. Pure.

One bad schema makes a model host refuse every request that holds it, so what is not surely good stays out.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
LEVELS_MAX: Final = 32
PLACES_MAX: Final = 5_000
"""Schemas within one schema."""
_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_COMBINED: Final = ("anyOf", "oneOf", "allOf")
_LISTS: Final = (*_COMBINED, "prefixItems")
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_ONES: Final = (
    "items",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
)
_COUNTS: Final = (
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("minContains", "maxContains"),
)
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_TEXTS: Final = ("title", "description", "$comment", "format", "pattern", "$id", "$schema", "$anchor", "$ref")
_DIALECTS: Final = ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema")


class Unfit(Exception):
    """``reason`` says why a schema cannot be offered."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def offered_schema(schema: object, *, size_bytes_max: int) -> dict[str, Any]:
    """``schema`` as it may be offered; the type of its root is added where only that is missing.

    Raises: Unfit: with the first reason.
    """
    if not isinstance(schema, dict):
        raise Unfit("the schema is no object")
    try:
        size = len(msgspec.json.encode(schema))
        msgspec.json.encode(schema).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as exc:
        raise Unfit("the schema has no form in JSON") from exc
    if size > size_bytes_max:
        raise Unfit(f"the schema is {size:,} bytes long, at most {size_bytes_max:,} are offered")
    if combined := sorted(schema.keys() & {*_COMBINED}):
        raise Unfit(f"{combined[0]} stands at the root, where the model host takes none")
    if "type" not in schema:
        schema = {"type": "object", **schema}
    if schema["type"] != "object":
        raise Unfit(f"the root is of type {str(schema['type'])[:40]!r}, expected 'object'")
    for reason in _faults(schema):
        raise Unfit(reason)
    return schema


def _faults(root: dict[str, Any]) -> Iterator[str]:
    left: list[tuple[Any, str, int]] = [(root, "", 0)]
    seen = 0
    while left:
        schema, path, level = left.pop()
        seen += 1
        if level > LEVELS_MAX or seen > PLACES_MAX:
            yield f"the schema has more than {LEVELS_MAX} levels or {PLACES_MAX:,} places"
            return
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            yield f"{path or 'the root'} is no schema"
            return
        yield from (f"{path}.{fault}".lstrip(".") for fault in _keyword_faults(schema, root))
        left.extend((inner, f"{path}.{name}".lstrip("."), level + 1) for name, inner in _inner(schema))


def _inner(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword in _ONES:
        if keyword in schema:
            yield keyword, schema[keyword]
    for keyword in _MAPS:
        if isinstance(named := schema.get(keyword), dict):
            yield from ((f"{keyword}.{name}", inner) for name, inner in named.items())
    for keyword in _LISTS:
        if isinstance(listed := schema.get(keyword), list):
            yield from ((f"{keyword}[{index}]", inner) for index, inner in enumerate(listed))


def _keyword_faults(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[str]:
    yield from _shape_faults(schema)
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield "required is no list of names"
    elif len(set(required)) != len(required):
        yield "required names a property twice"
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if not all(isinstance(kind, str) and kind in TYPES for kind in kinds) or len({*map(str, kinds)}) != len(kinds):
        yield "type is not one that there is"
    if schema.get("type") == []:
        yield "type is an empty list"
    if not isinstance(schema.get("enum", []), list):
        yield "enum is no list"
    if isinstance(properties := schema.get("properties"), dict):
        for name in properties:
            if not _PROPERTY.fullmatch(name):
                yield f"the property {name[:80]!r} has a name that the model host does not take"
    if isinstance(pattern := schema.get("pattern"), str) and not _compiles(pattern):
        yield "pattern is no regular expression"
    if isinstance(reference := schema.get("$ref"), str) and not _resolves(reference, root):
        yield f"$ref {reference[:80]!r} leads nowhere"
    if isinstance(dialect := schema.get("$schema"), str) and not dialect.startswith(_DIALECTS):
        yield f"$schema is {dialect[:80]!r}, expected draft 2020-12"


def _shape_faults(schema: dict[str, Any]) -> Iterator[str]:
    for keyword in _MAPS:
        if not isinstance(schema.get(keyword, {}), dict):
            yield f"{keyword} is no object"
    for keyword in _LISTS:
        if keyword in schema and (not isinstance(schema[keyword], list) or not schema[keyword]):
            yield f"{keyword} is no list of schemas"
    for keyword in _COUNTS:
        count = schema.get(keyword, 0)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            yield f"{keyword} is no count"
    for keyword in _NUMBERS:
        number = schema.get(keyword, 0)
        if not isinstance(number, (int, float)) or isinstance(number, bool):
            yield f"{keyword} is no number"
    for keyword in _TEXTS:
        if not isinstance(schema.get(keyword, ""), str):
            yield f"{keyword} is no text"


def _compiles(pattern: str) -> bool:
    """As far as Python can tell, whose dialect is near that of the host."""
    if len(pattern) > 1_000:
        return False
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return "\\p{" in pattern or "(?<" in pattern  # legal elsewhere
    return True


def _resolves(reference: str, root: dict[str, Any]) -> bool:
    """Within the schema itself; nothing is fetched."""
    if not reference.startswith("#"):
        return False
    place: Any = root
    for part in reference[1:].strip("/").split("/") if reference[1:].strip("/") else ():
        name = part.replace("~1", "/").replace("~0", "~").replace("%24", "$").replace("%25", "%")
        if isinstance(place, dict) and name in place:
            place = place[name]
        elif isinstance(place, list) and name.isdigit() and int(name) < len(place):
            place = place[int(name)]
        else:
            return False
    return isinstance(place, (dict, bool))
