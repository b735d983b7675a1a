"""A request as the bytes that go out: what is stored, plus what belongs to sending alone.

Cache marks and ``stream`` are put in here and nowhere else, so they never reach a record or a digest. The preamble is
prepared once per digest; a call then costs one copy of its messages and no encoding.

The host finds an earlier entry only at a mark or within twenty blocks before it. A round of many parallel calls is
longer than that, so the end of the request before this one is marked again, beside the end of this one: what was
written there is read, however much came since. What is for one turn alone is in no request of the next, and nothing
behind it is read again; so the place before it is marked too, in its own turn and in the first request of the next.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from torpor.conversation.view import Preamble, View, request_fields
from torpor.model.attached import spliced
from torpor.records.blocks import Block, canonical

PREPARED_MAX: Final = 64
"""Preambles kept ready, by digest, model and live context; the oldest goes first."""
_USER_OVER: Final = b'],"role":"user"},{"content":['
"""Between what the user said and what the assistant answered: a chunk of its own, equal to no block's text."""

_NOTHING: Final[Mapping[str, bytes]] = {}
_EMPTY_RESULT: Final = b'{"content":"",'


class WireRequests:
    """Builds bodies for one agent's host."""

    def __init__(self, *, cache_ttl: str) -> None:
        """Args: cache_ttl: ``5m``, ``1h``, or ``off`` for no marks."""
        self._mark = b"" if cache_ttl == "off" else _mark_of(cache_ttl)
        self._prepared: dict[tuple[str, str, bytes], bytes] = {}

    def body(
        self,
        preamble: Preamble,
        view: View,
        *,
        model: str = "",
        live: Block | None = None,
        lasting: Sequence[int] = (),
        attached: Mapping[str, bytes] = _NOTHING,
    ) -> bytes:
        """The JSON to post.

        Args: model: asked instead of the preamble's; empty for that one.  live, lasting, attached: as a
            ``ModelRequest`` has them.
        """
        named = (preamble.digest, model, bytes(live) if live is not None else b"")
        head = self._prepared.get(named)
        if head is None:
            head = self._prepared[named] = self._head(preamble, model, live)
        chunks = view.chunks[: view.length]
        pieces: list[bytes | memoryview] = [head, *chunks, _CLOSING[view.role]]
        if self._mark:
            _put(self._mark, pieces, ends=_ends(chunks, view, lasting), size_bytes=view.size_bytes)
        if view.marks:
            pieces[1:-1] = spliced(pieces[1:-1], view, attached, aside=self._mark)
        return b"".join(pieces)

    def _head(self, preamble: Preamble, model: str, live: Block | None) -> bytes:
        """Everything before the messages. The mark goes behind what stays the same, before the live context."""
        fields: dict[str, Any] = {**request_fields(preamble, model=model, live=live), "stream": True}
        if self._mark and "system" in fields:
            system = msgspec.json.decode(fields["system"])
            fixed = system[:-1] if live is not None else system
            if fixed:
                fixed[-1]["cache_control"] = msgspec.json.decode(b"{" + self._mark[1:])["cache_control"]
            fields["system"] = system
        if len(self._prepared) >= PREPARED_MAX:
            del self._prepared[next(iter(self._prepared))]
        return bytes(canonical(fields))[:-1] + b',"messages":['


_CLOSING: Final = {"user": b'],"role":"user"}]}', "assistant": b'],"role":"assistant"}]}', None: b"]}"}
"""Of the last block's message, the array and the request, by whose message is open."""


def _ends(chunks: Sequence[bytes], view: View, lasting: Sequence[int]) -> list[int]:
    """Where marks go, three at most, as sizes of what stands before them, in order.

    Every request but one behind a pause ends with a user's message, in which nothing is thinking or empty text. The
    message before that one is where the last request ended, unless that was in a turn with something of its own.
    """
    this = _markable(chunks, len(chunks) - 1, view.size_bytes) if view.role == "user" else 0
    before = _message_before(chunks, view)
    known = [end for end in lasting if 0 < end <= view.size_bytes] if lasting else ()
    if not known:
        return [end for end in (before, this) if end]
    is_first = before <= known[-1]
    earlier = known[0] if is_first and len(known) > 1 else before
    return sorted({earlier, this, known[-1]} - {0})


def _message_before(chunks: Sequence[bytes], view: View) -> int:
    """Size up to the end of the user's last message that is closed; 0 where none is to be seen.

    The search ends within the last round; a chunk that holds a whole turn or more has no end to be seen in it.
    """
    size_bytes = view.size_bytes
    for place in range(len(chunks) - 1, view.loose, -1):
        size_bytes -= len(chunks[place])
        if chunks[place] == _USER_OVER:
            return _markable(chunks, place - 1, size_bytes)
    return 0


def _markable(chunks: Sequence[bytes], place: int, size_bytes: int) -> int:
    """Size up to the block at ``place``, or up to one before it in its message if that is a result without text, which
    hosts may not let be marked; 0 where there is none."""
    while chunks[place].startswith(_EMPTY_RESULT):
        if place < 2 or chunks[place - 1] != b",":
            return 0
        size_bytes -= len(chunks[place]) + 1
        place -= 2
    return size_bytes


def _put(mark: bytes, pieces: list[bytes | memoryview], *, ends: Sequence[int], size_bytes: int) -> None:
    """Put ``mark`` before the closing bracket of each block that ends at one of ``ends``; looks only as far back as the
    first of them."""
    place, begin = len(pieces) - 1, size_bytes
    for end in reversed(ends):
        while begin >= end:
            place -= 1
            begin -= len(pieces[place])
        whole, cut = memoryview(pieces[place]), end - begin
        pieces[place : place + 1] = (whole[: cut - 1], mark, whole[cut:]) if cut < len(whole) else (whole[:-1], mark)


def _mark_of(ttl: str) -> bytes:
    mark = {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}
    return b',"cache_control":' + bytes(canonical(mark)) + b"}"
