"""Where the tokens of a request go."""

from typing import Any, Final

from torpor.conversation.view import View
from torpor.records.blocks import canonical

BYTES_PER_TOKEN: Final = 4
"""The first estimator; replaced by one that the reported usage calibrates."""


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
