"""Where the tokens of a request go."""

import math
from typing import Any, Final

from torpor.conversation.state import ConversationState
from torpor.conversation.view import View
from torpor.records.blocks import canonical
from torpor.records.journal import Usage

BYTES_PER_TOKEN: Final = 4
"""The first guess; what hosts report says better."""


def tokens_of_bytes(size_bytes: int) -> int:
    """Estimated tokens, rounded up."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def preamble_sections(fields: dict[str, Any]) -> dict[str, int]:
    """Estimated tokens of the fixed parts: instructions and tools."""
    return {
        "instructions": tokens_of_bytes(len(canonical(fields["system"]))) if fields.get("system") else 0,
        "tools": tokens_of_bytes(len(canonical(fields["tools"]))) if fields.get("tools") else 0,
    }


def request_sections(fixed: dict[str, int], view: View) -> dict[str, int]:
    """Estimated tokens of a whole request by section."""
    return {**fixed, "history": tokens_of_bytes(view.size_bytes)}


def input_tokens(usage: Usage) -> int:
    """All of a request, cached or not: ``input_tokens`` alone is only what no cache had."""
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


def next_request_tokens(state: ConversationState, view: View, *, bytes_per_token: float) -> int:
    """Tokens of a request for ``view``: what the host counted last time, reply included, and an estimate of the rest.

    Less than was counted when something left the view; all of it is an estimate when nothing was counted.
    """
    size_bytes = request_bytes(state, view)
    counted = input_tokens(state.last_usage) + state.last_usage.output_tokens
    if not counted:
        return math.ceil(size_bytes / bytes_per_token)
    return max(counted + math.ceil((size_bytes - state.measured_bytes) / bytes_per_token), 0)


def request_bytes(state: ConversationState, view: View) -> int:
    """Size of a request for ``view``, about: what stands before the messages, and the messages."""
    return len(bytes(state.preamble.body)) + view.size_bytes
