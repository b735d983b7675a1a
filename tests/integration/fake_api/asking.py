"""Requests as a test asks them."""

from typing import Any, Final

MODEL: Final = "claude-sonnet-4-6"
TOOL: Final[dict[str, Any]] = {
    "name": "look_up",
    "description": "Look something up.",
    "input_schema": {"type": "object", "properties": {"what": {"type": "string"}}},
}


def asking(*messages: Any, **fields: Any) -> Any:
    """The arguments of a call; a message that is a string is the user's."""
    given = messages or ("hello",)
    told = [{"role": "user", "content": message} if isinstance(message, str) else message for message in given]
    return {"model": MODEL, "max_tokens": 500, "messages": told} | fields


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [block if isinstance(block, dict) else block.to_dict() for block in blocks]}


def results(*call_ids: str) -> dict[str, Any]:
    """The message that answers these calls."""
    blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": "found"} for call_id in call_ids]
    return {"role": "user", "content": blocks}
