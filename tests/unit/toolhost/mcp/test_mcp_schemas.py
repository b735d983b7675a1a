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
            "day": {"type": "string", "pattern": r"^\d{4}(?<!x)$"},
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
    "properties.a.required is True, expected type 'array'": {"type": "object", "properties": {"a": {"required": True}}},
    "properties.required is ['a'], expected type ['object', 'boolean']": {
        "type": "object",
        "properties": {"a": {}, "required": ["a"]},
    },
    "required is ['a', 'a'], expected uniqueItems True": {"type": "object", "required": ["a", "a"]},
    "properties.a.$ref '#/$defs/gone' leads nowhere": {"type": "object", "properties": {"a": {"$ref": "#/$defs/gone"}}},
    "$ref 'https://example.org/x' leads": {"type": "object", "properties": {"a": {"$ref": "https://example.org/x"}}},
    "bytes long, at most 1,000 are offered": {"type": "object", "description": "x" * 200_000},
    "properties.a.type is 'text', expected draft 2020-12": {"type": "object", "properties": {"a": {"type": "text"}}},
    "properties.a.type is []": {"type": "object", "properties": {"a": {"type": []}}},
    "properties is [], expected type 'object'": {"type": "object", "properties": []},
    "prefixItems.0 is 'x'": {"type": "object", "properties": {"a": {"prefixItems": ["x"]}}},
    "anyOf is {}, expected type 'array'": {"type": "object", "properties": {"a": {"anyOf": {}}}},
    "a name that the model host does not take": {"type": "object", "properties": {"naïve name": {}}},
    "minLength is -1, expected minimum 0": {"type": "object", "properties": {"a": {"minLength": -1}}},
    "maximum is '9', expected type 'number'": {"type": "object", "properties": {"a": {"maximum": "9"}}},
    "pattern is '([', expected format 'regex'": {"type": "object", "properties": {"a": {"pattern": "(["}}},
    "description is ['x'], expected type 'string'": {"type": "object", "properties": {"a": {"description": ["x"]}}},
    "enum is 'x', expected type 'array'": {"type": "object", "properties": {"a": {"enum": "x"}}},
    "expected draft 2020-12": {"type": "object", "$schema": "http://json-schema.org/draft-04/schema#"},
    "no form in JSON": {"type": "object", "default": object()},
    "has no form in JSON": {"type": "object", "default": float("nan")},
    "has more than 32 levels": {"type": "object", "default": eval("[" * 128 + "]" * 128)},
    "pattern is '(?<bad[', expected format 'regex'": {"type": "object", "properties": {"a": {"pattern": "(?<bad["}}},
    "patternProperties is '[', expected format 'regex'": {"type": "object", "patternProperties": {"[": {}}},
    "$dynamicRef '#gone' leads nowhere": {"type": "object", "$dynamicRef": "#gone"},
    "properties.a has an $id, which": {"type": "object", "$ref": "#", "properties": {"a": {"$id": "x"}}},
}


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
    shapes: list[Any] = [0, 1, "1 x#y", None, [], {"a": 1}, {"a": "b"}, ["x", 1], {}]
    keywords = ["properties", "required", "items", "type", "enum", "anyOf", "$ref", "pattern", "minLength", "maximum"]
    keywords += ["additionalProperties", "$defs", "title", "not", "prefixItems", "maxItems", "description"]
    keywords += ["uniqueItems", "multipleOf", "dependentRequired", "dependencies", "dependentSchemas", "contentSchema"]
    keywords += ["$vocabulary", "$anchor", "$dynamicAnchor", "$id", "readOnly", "writeOnly", "deprecated", "examples"]
    keywords += ["contentEncoding", "format", "patternProperties", "propertyNames", "minContains", "$comment"]
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
