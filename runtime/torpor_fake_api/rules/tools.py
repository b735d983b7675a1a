"""Tools on offer: names, schemas, the choice among them."""

import importlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, Final

from torpor_fake_api.rules.case import Case, dicts, is_one_of, of_type, unknown_fields
from torpor_fake_api.rules.violation import Violation

NAME: Final = re.compile(r"[a-zA-Z0-9_-]+")

_NARROW: Final = frozenset(
    {"name", "description", "input_schema", "type", "cache_control", "strict", "eager_input_streaming"}
)
_WIDE: Final = _NARROW | {"allowed_callers", "defer_loading", "input_examples"}
_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_COMBINED: Final = ("anyOf", "oneOf", "allOf")


def tool_violations(case: Case) -> Iterator[Violation]:
    """Rules V-51 to V-56."""
    tools = dicts(case.body.get("tools", []))
    if "tools" in case.body and (not isinstance(case.body["tools"], list) or len(tools) != len(case.body["tools"])):
        yield Violation("V-53", "tools", "Input should be a list of objects")
    for index, tool in enumerate(tools):
        if case.profile.is_narrow or tool.get("type") in (None, "custom"):
            yield from _tool(case, tool, path=f"tools.{index}.custom")
    names = Counter(str(tool.get("name")) for tool in tools)
    for name in (name for name, count in names.items() if count > 1):
        yield Violation("V-52", "tools", f"Tool names must be unique, {name!r} is not")
    yield from _tool_choice(case.body, frozenset(names))
    yield from _format(case)
    has_traffic = any(of_type(message, "tool_use", "tool_result") for message in case.messages)
    if case.profile.doubts and has_traffic and not tools:
        yield Violation("V-56", "tools", "a history with tool traffic needs its tools")


def is_name(value: Any, *, longest: int) -> bool:
    """Whether it may name a tool, on offer or in the history."""
    return isinstance(value, str) and len(value) <= longest and bool(NAME.fullmatch(value))


def _tool(case: Case, tool: dict[str, Any], *, path: str) -> Iterator[Violation]:
    yield from unknown_fields(tool, _NARROW if case.profile.is_narrow else _WIDE, path=path)
    longest = case.model.tool_name_max
    if not is_name(tool.get("name"), longest=longest):
        pattern = f"^[a-zA-Z0-9_-]{{1,{longest}}}$"
        yield Violation("V-51", f"{path}.name", f"String should match pattern '{pattern}', got {tool.get('name')!r}")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield Violation("V-53", f"{path}.input_schema", "Input should be a schema of type 'object'")
        return
    for keyword in sorted({*_COMBINED} & schema.keys()):
        fact = "input_schema does not support oneOf, allOf, or anyOf at the top level"
        yield Violation("V-53", f"{path}.input_schema.{keyword}", fact)
    found = list(_schema(schema, f"{path}.input_schema", is_strict=tool.get("strict") is True))
    yield from found
    if not found and (fact := _standard_fault(json.dumps(schema))):
        yield _invalid(f"{path}.input_schema", fact)


@lru_cache(maxsize=1_024)
def _standard_fault(schema: str) -> str:
    """Why it is no schema by the draft's own schema of schemas; empty for none."""
    try:
        error = next(_of_schemas().iter_errors(json.loads(schema)), None)
    except RecursionError:
        return "it has too many levels"
    return "" if error is None else f"{'.'.join(map(str, error.absolute_path))}: {error.message[:200]}"


@cache
def _of_schemas() -> Any:
    draft = importlib.import_module("jsonschema").Draft202012Validator  # takes a while, and many requests have no tools
    return draft(draft.META_SCHEMA, format_checker=draft.FORMAT_CHECKER)


def _schema(schema: Any, path: str, *, is_strict: bool) -> Iterator[Violation]:
    """The mistakes that generated and hand-written schemas really hold."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield _invalid(path, "is not a schema")
        return
    yield from _keywords(schema, path)
    if is_strict and schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        yield Violation("V-54", path, "additionalProperties: false is needed on every object of a strict schema")
    for name, inner in _inner(schema).items():
        yield from _schema(inner, f"{path}.{name}", is_strict=is_strict)


def _keywords(schema: dict[str, Any], path: str) -> Iterator[Violation]:
    required, kinds = schema.get("required", []), schema.get("type", [])
    if not isinstance(required, list) or any(not isinstance(name, str) for name in required):
        yield _invalid(f"{path}.required", "is not a list of names")
    elif len(set(required)) != len(required):
        yield _invalid(f"{path}.required", "names a property twice")
    if not all(is_one_of(kind, _TYPES) for kind in (kinds if isinstance(kinds, list) else [kinds])):
        yield _invalid(f"{path}.type", f"{kinds!r} is not known")
    for keyword in ("properties", "$defs"):
        if not isinstance(schema.get(keyword, {}), dict):
            yield _invalid(f"{path}.{keyword}", "is not an object")
    for keyword in _COMBINED:
        if not isinstance(schema.get(keyword, []), list):
            yield _invalid(f"{path}.{keyword}", "is not a list")


def _inner(schema: dict[str, Any]) -> dict[str, Any]:
    """The schemas inside, by their path."""
    inner: dict[str, Any] = {key: schema[key] for key in ("items", "additionalProperties") if key in schema}
    for keyword in ("properties", "$defs"):
        named = schema.get(keyword, {})
        inner |= {f"{keyword}.{name}": value for name, value in named.items()} if isinstance(named, dict) else {}
    for keyword in _COMBINED:
        listed = schema.get(keyword, [])
        inner |= {f"{keyword}.{i}": value for i, value in enumerate(listed)} if isinstance(listed, list) else {}
    return inner


def _invalid(path: str, fact: str) -> Violation:
    return Violation("V-53", path, f"JSON schema is invalid. It must match JSON Schema draft 2020-12: {fact}")


def _tool_choice(body: dict[str, Any], names: frozenset[str]) -> Iterator[Violation]:
    if "tool_choice" not in body:
        return
    choice = body["tool_choice"]
    kind = choice.get("type") if isinstance(choice, dict) else None
    if not is_one_of(kind, {"auto", "any", "tool", "none"}):
        yield Violation("V-55", "tool_choice", f"type {kind!r} is not one of the expected: auto, any, tool, none")
    elif not names:
        yield Violation("V-55", "tool_choice", "tool_choice may only be specified while providing tools")
    elif kind == "tool" and not is_one_of(choice.get("name"), names):
        yield Violation("V-55", "tool_choice", f"Tool {choice.get('name')!r} not found in provided tools")


def _format(case: Case) -> Iterator[Violation]:
    """A wanted format of the reply is a strict schema too, and the reply must begin with it."""
    if not case.wants_format:
        return
    wanted, path = case.body["output_config"]["format"], "output_config.format"
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        yield Violation("V-54", path, "Input should be a format of type 'json_schema'")
        return
    yield from _schema(wanted.get("schema"), f"{path}.schema", is_strict=True)
    if case.is_prefilled:
        yield Violation("V-54", path, "may not be combined with assistant message prefill")
    cited = (block for message in case.messages for block in of_type(message, "document"))
    if any(isinstance(block.get("citations"), dict) and block["citations"].get("enabled") for block in cited):
        yield Violation("V-54", path, "may not be combined with citations")
