"""Attachments as records name them, with bytes of a kind for each."""

import hashlib

from torpor.records.attachments import Attachment


def attachment(data: bytes = b"data", *, media_type: str = "image/png", **fields: object) -> Attachment:
    """One whose bytes are ``data``."""
    told = {"size_bytes": len(data), "tokens": 100, "name": "scan", **fields}
    return Attachment(blob=hashlib.sha256(data).hexdigest(), media_type=media_type, **told)  # type: ignore[arg-type]
