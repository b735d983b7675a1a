"""A request as the bytes that go out: what is stored, plus what belongs to sending alone.

Cache marks and ``stream`` are put in here and nowhere else, so they never reach a record or a digest. The preamble is
prepared once per digest; a call then costs one copy of its messages and no encoding.

The host finds an earlier entry only at a mark or within twenty blocks before it. A round of many parallel calls is
longer than that, so the end of the request before this one is marked again, beside the end of this one: what was
written there is read, however much came since.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from torpor.conversation.view import Preamble, View, request_fields
from torpor.records.blocks import canonical

PREPARED_MAX: Final = 64
"""Preambles kept ready, by digest and model; the oldest goes first."""
_USER_OVER: Final = b'],"role":"user"},{"content":['
"""Between what the user said and what the assistant answered: a chunk of its own, equal to no block's text."""


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
        chunks = view.chunks[: view.length]
        pieces: list[bytes | memoryview] = [head]
        begin = 0
        if (mark := self._mark) is not None:
            for place in _request_ends(chunks, view):
                pieces += chunks[begin:place]
                # A chunk ends with the closing bracket of its last block, before which the mark goes.
                pieces += (memoryview(chunks[place])[:-1], b",", mark, b"}")
                begin = place + 1
        pieces += chunks[begin:]
        pieces.append(_CLOSING[view.role])
        return b"".join(pieces)

    def _prepare(self, preamble: Preamble, model: str) -> bytes:
        fields: dict[str, Any] = {**request_fields(preamble, model=model), "stream": True}
        if self._mark is not None and "system" in fields:
            system = msgspec.json.decode(fields["system"])
            system[-1]["cache_control"] = msgspec.json.decode(b"{" + self._mark + b"}")["cache_control"]
            fields["system"] = system
        if len(self._prepared) >= PREPARED_MAX:
            del self._prepared[next(iter(self._prepared))]
        head = bytes(canonical(fields))[:-1] + b',"messages":['
        self._prepared[preamble.digest, model] = head
        return head


_CLOSING: Final = {"user": b'],"role":"user"}]}', "assistant": b'],"role":"assistant"}]}', None: b"]}"}
"""Of the last block's message, the array and the request, by whose message is open."""


def _request_ends(chunks: Sequence[bytes], view: View) -> list[int]:
    """Where this request ends, if the user spoke last, and where the user's message before that one ends.

    Every request but one behind a pause ends with a user's message, in which nothing is thinking or empty text. The
    search ends within the last round; what an idle conversation packed is one chunk, with no end to be seen in it.
    """
    last = len(chunks) - 1
    before = next((place - 1 for place in range(last, 0, -1) if chunks[place] == _USER_OVER), None)
    ends = [] if before is None else [before]
    return [*ends, last] if view.role == "user" else ends


def _mark_of(ttl: str) -> bytes:
    mark = {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}
    return b'"cache_control":' + bytes(canonical(mark))
