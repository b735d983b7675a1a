"""A request as the bytes that go out: what is stored, plus what belongs to sending alone.

Cache marks and ``stream`` are put in here and nowhere else, so they never reach a record or a digest. The preamble is
prepared once per digest; a call then costs one copy of its messages and no encoding.
"""

from typing import Any, Final

import msgspec

from torpor.conversation.view import Preamble, View
from torpor.records.blocks import canonical

PREPARED_MAX: Final = 64
"""Preambles kept ready, by digest and model; the oldest goes first."""


class WireRequests:
    """Builds bodies for one agent's host."""

    def __init__(self, *, cache_ttl: str) -> None:
        """Args: cache_ttl: ``5m``, ``1h``, or ``off`` for no marks."""
        self._mark = None if cache_ttl == "off" else _mark_of(cache_ttl)
        self._prepared: dict[tuple[str, str], bytes] = {}

    def body(self, preamble: Preamble, view: View, *, model: str = "") -> bytes:
        """The JSON to post. Args: model: asked instead of the preamble's; empty for that one."""
        head = self._prepared.get((preamble.digest, model))
        if head is None:
            head = self._prepare(preamble, model)
        if self._mark is None or view.role != "user":  # a thinking block at the end may not be marked
            return head + view.messages() + b"}"
        # The messages end with the closing brackets of the last block, its message and the array.
        messages = view.messages()
        end = len(messages) - len(_CLOSING)
        return b"".join((head, memoryview(messages)[: end - 1], b",", self._mark, b"}", _CLOSING, b"}"))

    def _prepare(self, preamble: Preamble, model: str) -> bytes:
        fields: dict[str, Any] = msgspec.json.decode(preamble.body)
        fields["stream"] = True
        if model:
            fields["model"] = model
        if self._mark is not None and fields.get("system"):
            fields["system"][-1]["cache_control"] = msgspec.json.decode(b"{" + self._mark + b"}")["cache_control"]
        if len(self._prepared) >= PREPARED_MAX:
            del self._prepared[next(iter(self._prepared))]
        head = bytes(canonical(fields))[:-1] + b',"messages":'
        self._prepared[preamble.digest, model] = head
        return head


_CLOSING: Final = b'],"role":"user"}]'


def _mark_of(ttl: str) -> bytes:
    mark = {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}
    return b'"cache_control":' + bytes(canonical(mark))
