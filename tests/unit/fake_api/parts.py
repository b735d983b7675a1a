"""Parts of which the tests build requests, each valid as it stands."""

import base64
import copy
import struct
from typing import Any


def png(width: int = 16, height: int = 16, *, padding: int = 0) -> str:
    """The beginning of a picture of this size, in base64, with so many bytes behind it."""
    data = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height) + bytes(padding)
    return base64.b64encode(data).decode()


PNG = png()
TOOL: dict[str, Any] = {
    "name": "look_up",
    "description": "Look something up.",
    "input_schema": {
        "type": "object",
        "properties": {"what": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}},
        "required": ["what"],
        "additionalProperties": False,
    },
}
USE: dict[str, Any] = {"type": "tool_use", "id": "call_1", "name": "look_up", "input": {"what": "it"}}
RESULT: dict[str, Any] = {"type": "tool_result", "tool_use_id": "call_1", "content": "found"}
SEARCH: dict[str, Any] = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "it"}}
FOUND: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
HELLO: dict[str, Any] = {"type": "text", "text": "hello"}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def request(*messages: Any, **fields: Any) -> dict[str, Any]:
    """A request whose fields are overridden by ``fields``; one of None is left out."""
    body: dict[str, Any] = {
        "model": "some-model",
        "max_tokens": 2048,
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": [copy.deepcopy(TOOL)],
        "messages": list(messages) or [user(HELLO)],
    }
    return {name: value for name, value in (body | fields).items() if value is not None}


def rounds(count: int, *, result: Any = RESULT) -> list[dict[str, Any]]:
    """A question and ``count`` rounds of one call each."""
    messages = [user(HELLO)]
    for number in range(1, count + 1):
        messages += [assistant(USE | {"id": f"call_{number}"}), user(result | {"tool_use_id": f"call_{number}"})]
    return messages


def image(data: str, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def mark(ttl: str = "5m") -> dict[str, Any]:
    return {"cache_control": {"type": "ephemeral", "ttl": ttl}}


def tool(**fields: Any) -> dict[str, Any]:
    return TOOL | fields


def schema(**fields: Any) -> dict[str, Any]:
    return TOOL | {"input_schema": {"type": "object"} | fields}


THINKING: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": "c2ln"}
ENABLED: dict[str, Any] = {"type": "enabled", "budget_tokens": 1024}
