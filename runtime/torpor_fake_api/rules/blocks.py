"""The content of each message, block by block."""

import re
from collections.abc import Iterator
from typing import Any, Final

from torpor_fake_api.rules.case import TEXT_FIELDS, Case, is_one_of, unknown_fields
from torpor_fake_api.rules.tools import is_name
from torpor_fake_api.rules.violation import Violation

CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")

_FIELDS: Final = {
    "text": TEXT_FIELDS,
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "document": frozenset({"type", "source", "title", "context", "citations", "cache_control"}),
}
_WIDE_FIELDS: Final = {
    "tool_use": frozenset({"toolset_name"}),
    "tool_result": frozenset({"toolset_name"}),
    "image": frozenset({"transformations"}),
}
_SERVER_RESULTS: Final = frozenset(
    {f"{tool}_tool_result" for tool in ("web_search", "web_fetch", "code_execution", "bash_code_execution")}
    | {"text_editor_code_execution_tool_result", "tool_search_tool_result"}
)
_SERVER: Final = _SERVER_RESULTS | {"server_tool_use", "container_upload"}
"""What the host's own tools write; their fields are theirs."""
_OF_ROLE: Final = {
    "user": frozenset({"text", "tool_result", "image", "document"}),
    "assistant": frozenset({"text", "tool_use", "thinking", "redacted_thinking"}) | _SERVER,
    "system": frozenset({"text"}),
}
_OF_ROLE_WIDE: Final = {"user": frozenset({"search_result", "container_upload"})}
_OF_RESULT: Final = frozenset({"text", "image", "document"})
_OF_RESULT_WIDE: Final = frozenset({"search_result", "tool_reference", "browser_state"})


def block_violations(case: Case) -> Iterator[Violation]:
    """Rules V-30 to V-33 and V-45 to V-49; pictures and documents have their own room."""
    for index, message in enumerate(case.messages):
        path = f"messages.{index}"
        yield from unknown_fields(message, frozenset({"role", "content"}), path=path)
        is_last = index == len(case.messages) - 1
        may_be_empty = is_last and message.get("role") == "assistant" and case.model.prefill
        yield from _content(case, message, path=path, may_be_empty=may_be_empty)


def _content(case: Case, message: dict[str, Any], *, path: str, may_be_empty: bool) -> Iterator[Violation]:
    content, role = message.get("content"), str(message.get("role"))
    if not isinstance(content, str | list):
        yield Violation("V-30", f"{path}.content", "Input should be a string or a list of blocks")
    elif not content:
        if not may_be_empty:
            fact = "all messages must have non-empty content except for the optional final assistant message"
            yield Violation("V-30", path, fact)
    elif isinstance(content, str):
        if not content.strip():
            yield Violation("V-31", f"{path}.content", "text content blocks must contain non-whitespace text")
    else:
        allowed = _OF_ROLE.get(role, frozenset(_FIELDS))
        if not case.profile.is_narrow:
            allowed |= _OF_ROLE_WIDE.get(role, frozenset())
        for index, block in enumerate(content):
            yield from _block(case, block, path=f"{path}.content.{index}", allowed=allowed)
        yield from _server_results(case, content, path=path)


def _block(case: Case, block: Any, *, path: str, allowed: frozenset[str]) -> Iterator[Violation]:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str) or kind not in {*_FIELDS, *_SERVER, *allowed}:
        yield Violation("V-33", path, f"Input tag {kind!r} found using 'type' does not match any of the expected tags")
        return
    if kind in _FIELDS:
        wide = frozenset() if case.profile.is_narrow else _WIDE_FIELDS.get(kind, frozenset())
        yield from unknown_fields(block, _FIELDS[kind] | wide, path=f"{path}.{kind}")
    if kind not in allowed:
        yield Violation("V-32", path, f"`{kind}` blocks cannot be here")
    match kind:
        case "text":
            yield from _text(block.get("text"), f"{path}.text")
        case "tool_use" | "server_tool_use":
            yield from _tool_use(case, block, path=f"{path}.{kind}")
        case "tool_result":
            yield from _tool_result(case, block, path=f"{path}.{kind}")


def _text(text: Any, path: str) -> Iterator[Violation]:
    if not isinstance(text, str):
        yield Violation("V-31", path, "Input should be a valid string")
    elif not text:
        yield Violation("V-31", path, "text content blocks must be non-empty")
    elif not text.strip():
        yield Violation("V-31", path, "text content blocks must contain non-whitespace text")


def _tool_use(case: Case, block: dict[str, Any], *, path: str) -> Iterator[Violation]:
    yield from _call_id(block.get("id"), f"{path}.id")
    longest = case.model.tool_name_max
    if not is_name(block.get("name"), longest=longest):
        pattern = f"^[a-zA-Z0-9_-]{{1,{longest}}}$"
        yield Violation("V-47", f"{path}.name", f"String should match pattern '{pattern}', got {block.get('name')!r}")
    if not isinstance(block.get("input"), dict):
        yield Violation("V-46", f"{path}.input", "Input should be a valid dictionary")


def _tool_result(case: Case, block: dict[str, Any], *, path: str) -> Iterator[Violation]:
    yield from _call_id(block.get("tool_use_id"), f"{path}.tool_use_id")
    content = block.get("content", "")
    if not isinstance(content, str | list):
        yield Violation("V-48", f"{path}.content", "Input should be a string or a list of blocks")
    elif block.get("is_error") and not content:
        yield Violation("V-48", f"{path}.content", "content cannot be empty if `is_error` is true")
    if not isinstance(block.get("is_error", False), bool):
        yield Violation("V-48", f"{path}.is_error", "Input should be a valid boolean")
    allowed = _OF_RESULT if case.profile.is_narrow else _OF_RESULT | _OF_RESULT_WIDE
    for index, inner in enumerate(content if isinstance(content, list) else ()):
        yield from _block(case, inner, path=f"{path}.content.{index}", allowed=allowed)


def _call_id(call_id: Any, path: str) -> Iterator[Violation]:
    if not isinstance(call_id, str) or not CALL_ID.fullmatch(call_id):
        yield Violation("V-45", path, f"String should match pattern '^[a-zA-Z0-9_-]+$', got {call_id!r}")


def _server_results(case: Case, content: list[Any], *, path: str) -> Iterator[Violation]:
    """A result of the host's own tool stands behind its use, in the same message."""
    used: set[str] = set()
    for index, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "server_tool_use":
            used.add(str(block.get("id")))
        elif case.profile.doubts and is_one_of(kind, _SERVER_RESULTS) and str(block.get("tool_use_id")) not in used:
            yield Violation("V-49", f"{path}.content.{index}", f"`{kind}` without its `server_tool_use` before it")
