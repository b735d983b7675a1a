"""The strict reading of what a Messages API accepts: ``violations(body)``, where ``body`` is a decoded request.

It shares no code with whoever builds requests and holds only rules that one request alone can break. Each violation
names its rule, the place in the request and the fact. Left to others: headers, the table of models, pixel sizes of
images, and whether the latest thinking blocks are those that the host sent.
"""

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

BODY_MAX_BYTES = 32 * 1024 * 1024
MESSAGES_MAX = 100_000
IMAGE_MAX_BYTES = 5_242_880
MARKS_MAX = 4
THINKING_MIN_TOKENS = 1024

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")

_REQUEST_FIELDS = frozenset(
    {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "thinking", "temperature", "top_p", "top_k"}
    | {"stop_sequences", "stream", "metadata", "service_tier", "output_config", "cache_control"}
)
_TOOL_FIELDS = frozenset(
    {"name", "description", "input_schema", "type", "cache_control", "strict", "eager_input_streaming"}
)
_BLOCK_FIELDS = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "document": frozenset({"type", "source", "title", "context", "citations", "cache_control"}),
}
_BLOCKS_OF_ROLE = {
    "user": frozenset({"text", "tool_result", "image", "document"}),
    "assistant": frozenset({"text", "tool_use", "thinking", "redacted_thinking"}),
}
_BLOCKS_OF_RESULT = frozenset({"text", "image", "document"})
_IMAGE_BYTES = {
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}


class Violation(NamedTuple):
    """One broken rule."""

    rule: str
    path: str
    fact: str


def violations(body: Any) -> list[Violation]:
    """Everything that a strict host would refuse in ``body``, in no promised order; empty for a valid request."""
    if not isinstance(body, dict):
        return [Violation("V-01", "", "the body is not a JSON object")]
    rules = (_envelope, _surrogates, _system, _tools, _messages, _thinking, _marks)
    return [violation for rule in rules for violation in rule(body)]


def rules_broken(body: Any) -> set[str]:
    """The names of the rules among ``violations``."""
    return {violation.rule for violation in violations(body)}


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    """Whether it is text that says something."""
    return isinstance(value, str) and bool(value.strip())


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _unknown(found: Mapping[str, Any], known: frozenset[str], path: str) -> Iterator[Violation]:
    for field in sorted(found.keys() - known):
        yield Violation("V-04", f"{path}{field}", "extra inputs are not permitted")


def _envelope(body: dict[str, Any]) -> Iterator[Violation]:
    yield from _unknown(body, _REQUEST_FIELDS, "")
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield Violation("V-03", "model", "field required")
    if "max_tokens" not in body:
        yield Violation("V-03", "max_tokens", "field required")
    elif not _is_int(body["max_tokens"]) or body["max_tokens"] < 1:
        yield Violation("V-05", "max_tokens", f"{body['max_tokens']!r} is not a positive integer")
    temperature = body.get("temperature", 1.0)
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0 <= temperature <= 1:
        yield Violation("V-08", "temperature", f"{temperature!r} is not within 0 and 1")
    if "temperature" in body and "top_p" in body:
        yield Violation("V-08", "top_p", "temperature is given as well")
    for index, sequence in enumerate(body.get("stop_sequences", ())):
        if not _is_text(sequence):
            yield Violation("V-09", f"stop_sequences.{index}", "must contain non-whitespace")
    if len(json.dumps(body).encode()) > BODY_MAX_BYTES:
        yield Violation("V-11", "", "the body is too large")


def _surrogates(value: Any, path: str = "") -> Iterator[Violation]:
    """Strings that no UTF-8 holds, keys included."""
    match value:
        case str():
            if any("\ud800" <= char <= "\udfff" for char in value):
                yield Violation("V-01", path, "no low surrogate in string")
        case dict():
            for key, inner in value.items():
                yield from _surrogates(key, f"{path}.{key!a}")
                yield from _surrogates(inner, f"{path}.{key!a}")
        case list():
            for index, inner in enumerate(value):
                yield from _surrogates(inner, f"{path}.{index}")


def _system(body: dict[str, Any]) -> Iterator[Violation]:
    if "system" not in body:
        return
    system = body["system"]
    if isinstance(system, str):
        if not system.strip():
            yield Violation("V-10", "system", "must contain non-whitespace text")
    elif not isinstance(system, list):
        yield Violation("V-10", "system", "is neither a string nor a list")
    else:
        for index, block in enumerate(system):
            path = f"system.{index}"
            if not isinstance(block, dict) or block.get("type") != "text" or not _is_text(block.get("text")):
                yield Violation("V-10", path, "is not a text block with non-whitespace text")
            else:
                yield from _unknown(block, _BLOCK_FIELDS["text"], f"{path}.")


def _tools(body: dict[str, Any]) -> Iterator[Violation]:
    tools = _dicts(body.get("tools", []))
    if "tools" in body and (not isinstance(body["tools"], list) or len(tools) != len(body["tools"])):
        yield Violation("V-53", "tools", "is not a list of objects")
    for index, tool in enumerate(tools):
        yield from _tool(tool, f"tools.{index}")
    names = Counter(str(tool.get("name")) for tool in tools)
    for name in (name for name, count in names.items() if count > 1):
        yield Violation("V-52", "tools", f"tool names must be unique, {name!r} is not")
    yield from _tool_choice(body, frozenset(names))


def _tool(tool: dict[str, Any], path: str) -> Iterator[Violation]:
    yield from _unknown(tool, _TOOL_FIELDS, f"{path}.")
    name, schema = tool.get("name"), tool.get("input_schema")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        yield Violation("V-51", f"{path}.name", f"{name!r} does not match the pattern")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield Violation("V-53", f"{path}.input_schema", "is not an object schema")
        return
    for keyword in sorted({"oneOf", "allOf", "anyOf"} & schema.keys()):
        yield Violation("V-53", f"{path}.input_schema.{keyword}", "is not supported at the top level")
    yield from _schema(schema, f"{path}.input_schema", is_strict=tool.get("strict") is True)


def _schema(schema: Any, path: str, *, is_strict: bool) -> Iterator[Violation]:
    """The mistakes that generated and hand-written schemas really hold; no whole meta-schema."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield Violation("V-53", path, "is not a schema")
        return
    required, properties = schema.get("required", []), schema.get("properties", {})
    if not isinstance(required, list) or any(not isinstance(name, str) for name in required):
        yield Violation("V-53", f"{path}.required", "is not a list of names")
    elif len(set(required)) != len(required):
        yield Violation("V-53", f"{path}.required", "names a property twice")
    if is_strict and schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        yield Violation("V-54", path, "strict needs additionalProperties: false on every object")
    if not isinstance(properties, dict):
        yield Violation("V-53", f"{path}.properties", "is not an object")
        return
    inner = {f"properties.{name}": value for name, value in properties.items()}
    inner |= {key: schema[key] for key in ("items", "additionalProperties") if key in schema}
    for keyword in ("anyOf", "oneOf", "allOf"):
        inner |= {f"{keyword}.{index}": value for index, value in enumerate(schema.get(keyword, ()))}
    inner |= {f"$defs.{name}": value for name, value in schema.get("$defs", {}).items()}
    for name, value in inner.items():
        yield from _schema(value, f"{path}.{name}", is_strict=is_strict)


def _tool_choice(body: dict[str, Any], names: frozenset[str]) -> Iterator[Violation]:
    if "tool_choice" not in body:
        return
    choice = body["tool_choice"]
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in {"auto", "any", "tool", "none"}:
        yield Violation("V-55", "tool_choice", f"type {kind!r} is not known")
    elif not names:
        yield Violation("V-55", "tool_choice", "may only be specified while providing tools")
    elif kind == "tool" and choice.get("name") not in names:
        yield Violation("V-55", "tool_choice", f"names {choice.get('name')!r}, which is not offered")


def _messages(body: dict[str, Any]) -> Iterator[Violation]:
    if "messages" not in body:
        yield Violation("V-03", "messages", "field required")
        return
    messages = _dicts(body["messages"])
    if not isinstance(body["messages"], list) or len(messages) != len(body["messages"]):
        yield Violation("V-07", "messages", "is not a list of objects")
    elif not 1 <= len(messages) <= MESSAGES_MAX:
        yield Violation("V-07", "messages", f"holds {len(messages)} messages")
    yield from _order(messages)
    for index, message in enumerate(messages):
        yield from _unknown(message, frozenset({"role", "content"}), f"messages.{index}.")
        yield from _content(message, f"messages.{index}")
    yield from _pairs(messages)
    if not body.get("tools") and any(_of_type(message, "tool_use", "tool_result") for message in messages):
        yield Violation("V-56", "tools", "history with tool traffic needs tools")


def _order(messages: list[dict[str, Any]]) -> Iterator[Violation]:
    roles = [message.get("role") for message in messages]
    for index, role in enumerate(roles):
        if role not in _BLOCKS_OF_ROLE:
            yield Violation("V-22", f"messages.{index}.role", f"role {role!r} is not supported")
    for index, (before, after) in enumerate(pairwise(roles), start=1):
        if before == after:
            yield Violation("V-21", f"messages.{index}.role", "roles must alternate")
    if roles and roles[0] != "user":
        yield Violation("V-20", "messages.0.role", "first message must use the user role")
    if roles and roles[-1] != "user":
        yield Violation("V-23", f"messages.{len(roles) - 1}.role", "the conversation must end with a user message")


def _content(message: dict[str, Any], path: str) -> Iterator[Violation]:
    content, role = message.get("content"), message.get("role")
    if not isinstance(content, str | list) or not content:
        yield Violation("V-30", path, "all messages must have non-empty content")
    elif isinstance(content, str):
        if not content.strip():
            yield Violation("V-31", f"{path}.content", "must contain non-whitespace text")
    else:
        allowed = _BLOCKS_OF_ROLE.get(str(role), frozenset(_BLOCK_FIELDS))
        for index, block in enumerate(content):
            yield from _block(block, f"{path}.content.{index}", allowed=allowed)


def _block(block: Any, path: str, *, allowed: frozenset[str]) -> Iterator[Violation]:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind not in _BLOCK_FIELDS:
        yield Violation("V-33", path, f"block type {kind!r} is not known")
        return
    yield from _unknown(block, _BLOCK_FIELDS[kind], f"{path}.")
    if kind not in allowed:
        yield Violation("V-32", path, f"{kind} blocks cannot be here")
    match kind:
        case "text" if not _is_text(block.get("text")):
            yield Violation("V-31", f"{path}.text", "must contain non-whitespace text")
        case "tool_use":
            yield from _tool_use(block, path)
        case "tool_result":
            yield from _tool_result(block, path)
        case "thinking" if not isinstance(block.get("thinking"), str) or not _is_text(block.get("signature")):
            yield Violation("V-60d", path, "thinking and signature are required")
        case "redacted_thinking" if not _is_text(block.get("data")):
            yield Violation("V-60d", f"{path}.data", "field required")
        case "image":
            yield from _image(block.get("source"), f"{path}.source")
        case "document":
            yield from _document(block.get("source"), f"{path}.source")


def _tool_use(block: dict[str, Any], path: str) -> Iterator[Violation]:
    if not isinstance(block.get("id"), str) or not CALL_ID.fullmatch(block["id"]):
        yield Violation("V-45", f"{path}.id", f"{block.get('id')!r} does not match the pattern")
    if not isinstance(block.get("name"), str) or not TOOL_NAME.fullmatch(block["name"]):
        yield Violation("V-47", f"{path}.name", f"{block.get('name')!r} does not match the pattern")
    if not isinstance(block.get("input"), dict):
        yield Violation("V-46", f"{path}.input", "input should be a valid dictionary")


def _tool_result(block: dict[str, Any], path: str) -> Iterator[Violation]:
    if not isinstance(block.get("tool_use_id"), str) or not CALL_ID.fullmatch(block["tool_use_id"]):
        yield Violation("V-45", f"{path}.tool_use_id", f"{block.get('tool_use_id')!r} does not match the pattern")
    content = block.get("content", "")
    if not isinstance(content, str | list) or not isinstance(block.get("is_error", False), bool):
        yield Violation("V-48", path, "content or is_error is of another type")
    elif block.get("is_error") and not content:
        yield Violation("V-48", f"{path}.content", "cannot be empty if is_error is true")
    for index, inner in enumerate(content if isinstance(content, list) else ()):
        yield from _block(inner, f"{path}.content.{index}", allowed=_BLOCKS_OF_RESULT)


def _image(source: Any, path: str) -> Iterator[Violation]:
    kind = source.get("media_type") if isinstance(source, dict) else None
    if kind not in _IMAGE_BYTES or source.get("type") != "base64":
        yield Violation("V-34", path, f"media type {kind!r} is not supported")
        return
    data = _decoded(source.get("data"))
    if not data:
        yield Violation("V-36", path, "could not process image")
    elif len(data) > IMAGE_MAX_BYTES:
        yield Violation("V-34", path, f"image exceeds 5 MB: {len(data)} bytes > {IMAGE_MAX_BYTES} bytes")
    elif not _IMAGE_BYTES[kind].match(data):
        yield Violation("V-34", path, f"the bytes are not {kind}")


def _document(source: Any, path: str) -> Iterator[Violation]:
    match source:
        case {"type": "text", "media_type": "text/plain", "data": str(text)} if text.strip():
            return
        case {"type": "base64", "media_type": "application/pdf", "data": str(data)} if _decoded(data):
            return
        case _:
            yield Violation("V-35", path, "is neither plain text nor a PDF")


def _decoded(data: Any) -> bytes:
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) else b""
    except binascii.Error:
        return b""


def _of_type(message: dict[str, Any], *kinds: str) -> list[dict[str, Any]]:
    return [block for block in _dicts(message.get("content")) if block.get("type") in kinds]


def _pairs(messages: list[dict[str, Any]]) -> Iterator[Violation]:
    """Every call answered once, directly after it, before anything else is said."""
    used = Counter(str(block.get("id")) for message in messages for block in _of_type(message, "tool_use"))
    for call_id in (call_id for call_id, count in used.items() if count > 1):
        yield Violation("V-44", "messages", f"tool_use ids must be unique, {call_id!r} is not")
    asked: set[str] = set()
    for index, message in enumerate(messages):
        path = f"messages.{index}"
        results = [str(block.get("tool_use_id")) for block in _of_type(message, "tool_result")]
        for call_id in (call_id for call_id, count in Counter(results).items() if count > 1):
            yield Violation("V-43", path, f"each tool_use must have a single result, {call_id!r} has more")
        for call_id in sorted(asked - set(results)):
            yield Violation("V-40", path, f"tool_use without tool_result immediately after: {call_id!r}")
        for call_id in sorted(set(results) - asked):
            yield Violation("V-41", path, f"unexpected tool_use_id found in tool_result blocks: {call_id!r}")
        is_result = [block.get("type") == "tool_result" for block in _dicts(message.get("content"))]
        if is_result != sorted(is_result, reverse=True):
            yield Violation("V-42", path, "tool_result blocks must come first")
        asked = {str(block.get("id")) for block in _of_type(message, "tool_use")}
    for call_id in sorted(asked):
        yield Violation("V-40", f"messages.{len(messages)}", f"the last tool_use has no tool_result: {call_id!r}")


def _thinking(body: dict[str, Any]) -> Iterator[Violation]:
    if "thinking" not in body:
        return
    thinking = body["thinking"]
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in {"enabled", "adaptive", "disabled"}:
        yield Violation("V-60a", "thinking.type", f"{kind!r} is not known")
    if kind not in {"enabled", "adaptive"}:
        return
    choice = body.get("tool_choice")
    if body.get("temperature", 1) != 1 or (isinstance(choice, dict) and choice.get("type") in {"any", "tool"}):
        yield Violation("V-60c", "thinking", "may not be combined with a temperature or a forced tool")
    if kind == "enabled":
        tokens, limit = thinking.get("budget_tokens"), body.get("max_tokens")
        if not _is_int(tokens) or tokens < THINKING_MIN_TOKENS or (_is_int(limit) and tokens >= limit):
            yield Violation("V-60b", "thinking.budget_tokens", f"{tokens!r} is not within 1024 and max_tokens")
        yield from _thinking_before_calls(_dicts(body.get("messages")))


def _thinking_before_calls(messages: list[dict[str, Any]]) -> Iterator[Violation]:
    if len(messages) < 2 or not _of_type(messages[-1], "tool_result"):
        return
    blocks = _dicts(messages[-2].get("content"))
    if blocks and blocks[0].get("type") not in {"thinking", "redacted_thinking"}:
        path = f"messages.{len(messages) - 2}.content.0"
        yield Violation("V-60f", path, f"expected thinking, but found {blocks[0].get('type')}")


def _marks(body: dict[str, Any]) -> Iterator[Violation]:
    """Cache marks in render order: tools, system, messages."""
    marked = [block for block in _rendered(body) if "cache_control" in block]
    if (found := len(marked) + ("cache_control" in body)) > MARKS_MAX:
        yield Violation("V-61", "cache_control", f"at most {MARKS_MAX} marks may be provided, found {found}")
    lives = []
    for block in marked:
        mark, kind = block["cache_control"], block.get("type")
        if kind in {"thinking", "redacted_thinking"} or (kind == "text" and not block.get("text")):
            yield Violation("V-62", "cache_control", f"cannot be set for such a {kind} block")
        if not isinstance(mark, dict) or mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in {"5m", "1h"}:
            yield Violation("V-63", "cache_control", f"{mark!r} is not known")
        else:
            lives.append(mark.get("ttl", "5m"))
    if "5m" in lives and "1h" in lives[lives.index("5m") :]:
        yield Violation("V-63", "cache_control", "a ttl='1h' block must not come after a ttl='5m' block")


def _rendered(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from _dicts(body.get("tools"))
    yield from _dicts(body.get("system"))
    for message in _dicts(body.get("messages")):
        for block in _dicts(message.get("content")):
            yield block
            yield from _dicts(block.get("content"))
