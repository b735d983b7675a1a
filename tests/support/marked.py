"""Attachments as records name them, with bytes of a kind for each."""

import hashlib
from collections.abc import Mapping
from typing import Any

from torpor.records.attachments import Attachment


def attachment(data: bytes = b"data", *, media_type: str = "image/png", **fields: object) -> Attachment:
    """One whose bytes are ``data``."""
    told = {"size_bytes": len(data), "tokens": 100, "name": "scan", **fields}
    return Attachment(blob=hashlib.sha256(data).hexdigest(), media_type=media_type, **told)  # type: ignore[arg-type]


def as_sent(body: dict[str, Any], attached: Mapping[str, bytes]) -> dict[str, Any]:
    """A decoded request with a document in the place of each marker, for those who judge what a host would be sent.

    Raises: AssertionError: there are no bytes for one, or others than it names.
    """
    messages = [
        {**message, "content": [_as_sent(block, attached) for block in message["content"]]}
        for message in body["messages"]
    ]
    return {**body, "messages": messages}


def _as_sent(block: dict[str, Any], attached: Mapping[str, bytes]) -> dict[str, Any]:
    if block["type"] != "attachment":
        return block
    blob = block["attachment"]["blob"]
    assert hashlib.sha256(attached[blob]).hexdigest() == blob, f"other bytes are sent for {blob}"
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": blob}}
