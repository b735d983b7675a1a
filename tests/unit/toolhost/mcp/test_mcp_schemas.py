"""Case MCP-06: a schema that a model host would refuse stays out, with its reason."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from torpor.toolhost.mcp.schemas import LEVELS_MAX, Unfit, offered_schema

GOOD: list[dict[str, Any]] = [
    {"type": "object"},
    {"type": "object", "properties": {}},
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "name": {"type": ["string", "null"], "minLength": 1, "pattern": "^[a-z]+$", "description": "Whose."},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}, "maxItems": 5},
            "anything": True,
            "one": {"anyOf": [{"type": "integer", "minimum": 0}, {"const": "all"}]},
            "pair": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}]},
        },
        "required": ["name"],
        "additionalProperties": False,
        "$defs": {"Tag": {"type": "string", "enum": ["a", "b"]}},
    },
    {"type": "object", "properties": {"node": {"$ref": "#"}}},
    {"type": "object", "properties": {"a~b": {"$ref": "#/$defs/x~0y"}}, "$defs": {"x~y": {"type": "string"}}},
]
GOOD[4]["properties"] = {"a.b": GOOD[4]["properties"]["a~b"]}

BAD: dict[str, Any] = {
    "no object": ["type", "object"],
    "is of type 'string'": {"type": "string"},
    "is of type \"['object', 'null']\"": {"type": ["object", "null"]},
    "anyOf stands at the root": {"type": "object", "anyOf": [{"required": ["a"]}]},
    "oneOf stands at the root": {"oneOf": []},
    "properties.a.required is no list of names": {"type": "object", "properties": {"a": {"required": True}}},
    "properties.required is no schema": {"type": "object", "properties": {"a": {}, "required": ["a"]}},
    "required names a property twice": {"type": "object", "required": ["a", "a"]},
    "properties.a.$ref '#/$defs/gone' leads nowhere": {"type": "object", "properties": {"a": {"$ref": "#/$defs/gone"}}},
    "$ref 'https://example.org/x' leads": {"type": "object", "properties": {"a": {"$ref": "https://example.org/x"}}},
    "bytes long, at most 1,000 are offered": {"type": "object", "description": "x" * 200_000},
    "type is not one that there is": {"type": "object", "properties": {"a": {"type": "text"}}},
    "type is an empty list": {"type": "object", "properties": {"a": {"type": []}}},
    "properties is no object": {"type": "object", "properties": []},
    "items[0]": {"type": "object", "properties": {"a": {"prefixItems": ["x"]}}},
    "anyOf is no list of schemas": {"type": "object", "properties": {"a": {"anyOf": {}}}},
    "a name that the model host does not take": {"type": "object", "properties": {"naïve name": {}}},
    "minLength is no count": {"type": "object", "properties": {"a": {"minLength": -1}}},
    "maximum is no number": {"type": "object", "properties": {"a": {"maximum": "9"}}},
    "pattern is no regular expression": {"type": "object", "properties": {"a": {"pattern": "(["}}},
    "description is no text": {"type": "object", "properties": {"a": {"description": ["x"]}}},
    "enum is no list": {"type": "object", "properties": {"a": {"enum": "x"}}},
    "expected draft 2020-12": {"type": "object", "$schema": "http://json-schema.org/draft-04/schema#"},
    "no form in JSON": {"type": "object", "default": object()},
}
BAD["prefixItems[0] is no schema"] = BAD.pop("items[0]")


@pytest.mark.parametrize("schema", GOOD)
def test_a_good_schema_is_offered_as_it_is(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)

    assert offered_schema(schema, size_bytes_max=10_000) == schema


def test_a_root_without_a_type_gets_it() -> None:
    assert offered_schema({"properties": {}}, size_bytes_max=1_000) == {"type": "object", "properties": {}}


@pytest.mark.parametrize("reason", BAD)
def test_mcp_06_a_bad_schema_is_refused_with_its_reason(reason: str) -> None:
    with pytest.raises(Unfit) as caught:
        offered_schema(BAD[reason], size_bytes_max=1_000)

    assert reason in caught.value.reason


def test_a_schema_that_is_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(LEVELS_MAX + 1):
        schema = {"items": schema}

    with pytest.raises(Unfit, match="levels"):
        offered_schema({"type": "object", "properties": {"a": schema}}, size_bytes_max=10_000)


def test_what_the_standard_does_not_allow_is_refused_as_well() -> None:
    """Nothing that a validator of the standard refuses is offered."""
    shapes: list[Any] = [1, "x", None, [], {"a": 1}, ["x", 1], {}]
    keywords = ["properties", "required", "items", "type", "enum", "anyOf", "$ref", "pattern", "minLength", "maximum"]
    keywords += ["additionalProperties", "$defs", "title", "not", "prefixItems", "maxItems", "description"]
    missed = []
    for keyword in keywords:
        for shape in shapes:
            schema = {"type": "object", "properties": {"a": {keyword: shape}}}
            try:
                Draft202012Validator.check_schema(schema)
            except SchemaError:
                try:
                    offered_schema(schema, size_bytes_max=1_000)
                except Unfit:
                    continue
                missed.append((keyword, shape))

    assert missed == []
