"""Signatures of thinking blocks: an HMAC over what was thought, by which model, in which message and where in it.

The signature carries those claims, so that a replayed block can be checked by itself, after a restart too. It is
opaque to clients.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Any, Final, NamedTuple

import msgspec

DEFAULT_KEY: Final = b"the key of a fake"
_MAC_BYTES: Final = 32


class Claim(NamedTuple):
    """Where a thinking block comes from."""

    model: str
    message_id: str
    ordinal: int
    """Its place among the thinking blocks of its message, from 0."""


class Signer:
    """Signs and checks with one key."""

    def __init__(self, key: bytes = DEFAULT_KEY) -> None:
        self._key = key

    def sign(self, thinking: str, claim: Claim) -> str:
        """The signature of a thinking block; with no text, the data of a redacted one."""
        body = msgspec.json.encode(claim)
        return base64.b64encode(self._mac(thinking, body) + body).decode()

    def claim(self, block: dict[str, Any]) -> Claim | None:
        """What a thinking or redacted block claims truly; None when it was altered or comes from elsewhere."""
        is_redacted = block.get("type") == "redacted_thinking"
        thinking, signature = (
            ("", block.get("data")) if is_redacted else (block.get("thinking"), block.get("signature"))
        )
        try:
            raw = base64.b64decode(str(signature), validate=True)
            claim = msgspec.json.decode(raw[_MAC_BYTES:], type=Claim)
        except (binascii.Error, ValueError):
            return None
        is_true = hmac.compare_digest(raw[:_MAC_BYTES], self._mac(str(thinking), raw[_MAC_BYTES:]))
        return claim if is_true else None

    def _mac(self, thinking: str, body: bytes) -> bytes:
        text = thinking.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, len(body).to_bytes(4, "big") + body + text, hashlib.sha256)
