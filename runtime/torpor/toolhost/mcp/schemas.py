"""Whether a foreign input schema may be offered to a model. Pure.

One bad schema makes a model host refuse every request that holds it, so what is not surely good stays out.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from torpor.toolhost.mcp.standard import fault_of

LEVELS_MAX: Final = 32
PLACES_MAX: Final = 2_000
"""Schemas within one schema."""
_NESTED_MAX: Final = 4 * LEVELS_MAX
"""Objects and lists within one another, whatever they are."""
_PATTERN_CHARS: Final = 1_000
_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_COMBINED: Final = ("anyOf", "oneOf", "allOf")
_LISTS: Final = (*_COMBINED, "prefixItems")
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_ONES: Final = (
    "items",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "contains",
    "contentSchema",
    "not",
    "if",
    "then",
    "else",
)
_REFERENCES: Final = ("$ref", "$dynamicRef")
_DIALECTS: Final = ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema")


class Unfit(Exception):
    """``reason`` says why a schema cannot be offered."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def as_json(schema: object) -> bytes:
    """Raises: Unfit."""
    try:
        encoded = msgspec.json.encode(schema)
        if msgspec.json.decode(encoded) == schema:  # numbers that are none become null
            return encoded
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as exc:
        raise Unfit("the schema has no form in JSON") from exc
    raise Unfit("the schema has no form in JSON")


def offered_schema(schema: object, *, size_bytes_max: int) -> dict[str, Any]:
    """``schema`` as it may be offered; the type of its root is added where only that is missing. Takes time: see
    ``fault_of``.

    Raises: Unfit: with the first reason.
    """
    if not isinstance(schema, dict):
        raise Unfit("the schema is no object")
    if _is_deep(schema):
        raise Unfit(f"the schema has more than {LEVELS_MAX} levels")
    size = len(as_json(schema))
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
    if reason := fault_of(as_json(schema)):
        raise Unfit(reason)
    return schema


def _is_deep(value: Any) -> bool:
    left = [(value, 1)]
    while left:
        inner, level = left.pop()
        if level > _NESTED_MAX:
            return True
        values = inner.values() if isinstance(inner, dict) else inner
        left.extend((each, level + 1) for each in values if isinstance(each, (dict, list)))
    return False


def _faults(root: dict[str, Any]) -> Iterator[str]:
    """What the model host does not take, in a schema that may be none by the standard."""
    left: list[tuple[Any, str, int]] = [(root, "", 0)]
    seen, refers, moved = 0, False, ""
    while left:
        schema, path, level = left.pop()
        seen += 1
        if level > LEVELS_MAX or seen > PLACES_MAX:
            yield f"the schema has more than {LEVELS_MAX} levels or {PLACES_MAX:,} places"
            return
        if not isinstance(schema, dict):
            continue
        refers = refers or any(keyword in schema for keyword in _REFERENCES)
        moved = path if path and "$id" in schema else moved
        yield from (f"{path}.{fault}".lstrip(".") for fault in _keyword_faults(schema, root))
        left.extend((inner, f"{path}.{name}".lstrip("."), level + 1) for name, inner in _inner(schema))
    if refers and moved:
        yield f"{moved} has an $id, which changes where each $ref below it leads"


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
    if isinstance(properties := schema.get("properties"), dict):
        for name in properties:
            if not _PROPERTY.fullmatch(name):
                yield f"the property {name[:80]!r} has a name that the model host does not take"
    patterns = schema.get("patternProperties")
    for pattern in (schema.get("pattern"), *(patterns if isinstance(patterns, dict) else ())):
        if isinstance(pattern, str) and len(pattern) > _PATTERN_CHARS:
            yield f"pattern {pattern[:80]!r} is longer than {_PATTERN_CHARS:,} characters"
    for keyword in _REFERENCES:
        if isinstance(reference := schema.get(keyword), str) and not _resolves(reference, root):
            yield f"{keyword} {reference[:80]!r} leads nowhere"
    if isinstance(dialect := schema.get("$schema"), str) and not dialect.startswith(_DIALECTS):
        yield f"$schema is {dialect[:80]!r}, expected draft 2020-12"


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
