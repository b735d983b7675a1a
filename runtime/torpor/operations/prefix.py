"""How much of each request the one before it had sent already, and what broke the rest; pure.

Hosts cache prefixes in the order tools, system, messages. Two requests are compared in that order, byte by byte; what
both begin with, over the length of the earlier one, is the share that a host may have read from its cache. What it did
read, by its own account, stands beside it. A prefix of another model is worth nothing, however equal.

A break has one cause: the first thing that differs.
"""

from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any, Final

import msgspec

from torpor.conversation.budget import input_tokens
from torpor.conversation.fold import fold
from torpor.conversation.state import ConversationState
from torpor.conversation.view import View
from torpor.operations.requests import TURN, RebuiltRequest
from torpor.records.journal import (
    ContextReplaced,
    JournalRecord,
    MessageRetracted,
    ModelReplied,
    ModelRequested,
    TurnPrepared,
    TurnRefused,
)
from torpor.skillbook.index import INDEX_TAG

COMPACTION: Final = "compaction"
"""A cause: it moves everything that stands behind the preamble, so nothing else counts beside it."""
_OPENINGS: Final = {f"<{INDEX_TAG}".encode(): "skills index", b"<live_context": "live context"}
"""What a system block begins with, and what it is; any other holds instructions."""


class RequestPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """One request beside the one before it."""

    turn: int
    call: str
    seq: int
    is_first_of_turn: bool
    size_bytes: int
    """Of tools, system and messages."""
    common_bytes: int
    """What both requests begin with."""
    share: float | None
    """``common_bytes`` over the size of the request before; None for the first of a conversation."""
    cause: str
    """Why it is less than all of it; empty when it is not."""
    input_tokens: int = 0
    """As the host counted them, cached or not; 0 when no reply came."""
    cache_read_tokens: int = 0
    """Of them, read from its cache."""


class PrefixSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All requests of a conversation together."""

    requests: int
    """Those with a request before them."""
    within_turns: float | None
    """Median share of those that follow a request of their own turn; None without any."""
    across_turns: float | None
    """Median share of the first requests of turns; None without any."""
    breaks: dict[str, int]
    """How many requests each cause broke."""
    cache_read_share: float | None
    """Input tokens read from the host's cache over all; None when it counted none."""


class _Sent(msgspec.Struct, frozen=True, eq=False):
    """What a host compares."""

    model: bytes
    others: dict[str, bytes]
    tools: bytes
    system: tuple[bytes, ...]
    view: View

    @property
    def size_bytes(self) -> int:
        return len(self.tools) + sum(map(len, self.system)) + self.view.size_bytes


def prefixes(records: Iterable[JournalRecord]) -> Iterator[RequestPrefix]:
    """One for each request of a turn, in order. Raises: BadHistory: as ``fold``."""
    state, causes = ConversationState(), list[str]()
    before: tuple[RequestPrefix, _Sent] | None = None
    had_turn_only = False
    for record in records:
        state = fold(state, (record,))
        match record:
            case TurnPrepared():
                if had_turn_only:
                    causes.append("turn-only blocks")
                had_turn_only = bool(record.turn_only)
            case TurnRefused():
                causes.append("refusal")
                had_turn_only = False
            case MessageRetracted() if record.turn:
                causes.append("retraction")
                had_turn_only = False
            case ContextReplaced():
                causes.append(COMPACTION)
            case ModelReplied() if before is not None and before[0].call == record.call:
                before = (_with_usage(before[0], record), before[1])
            case ModelRequested() if record.purpose == TURN:
                sent = _sent(RebuiltRequest(record=record, state=state))
                if before is not None:
                    yield before[0]
                before = (_compared(record, sent, before=before, causes=causes), sent)
                causes = []
            case _:
                pass
    if before is not None:
        yield before[0]


def summary_of(found: Iterable[RequestPrefix]) -> PrefixSummary:
    """See its fields."""
    within, across, breaks = list[float](), list[float](), dict[str, int]()
    counted = read = 0
    for each in found:
        counted, read = counted + each.input_tokens, read + each.cache_read_tokens
        if each.share is None:
            continue
        (across if each.is_first_of_turn else within).append(each.share)
        if each.cause:
            breaks[each.cause] = breaks.get(each.cause, 0) + 1
    return PrefixSummary(
        requests=len(within) + len(across),
        within_turns=median(within) if within else None,
        across_turns=median(across) if across else None,
        breaks=breaks,
        cache_read_share=read / counted if counted else None,
    )


def _sent(request: RebuiltRequest) -> _Sent:
    fields = {name: bytes(value) for name, value in request.fields().items()}
    system: tuple[msgspec.Raw, ...] = msgspec.json.decode(fields.pop("system", b"[]"), type=tuple[msgspec.Raw, ...])
    model, tools = fields.pop("model", b""), fields.pop("tools", b"")
    return _Sent(model, fields, tools, tuple(map(bytes, system)), request.view)


def _with_usage(prefix: RequestPrefix, reply: ModelReplied) -> RequestPrefix:
    return msgspec.structs.replace(
        prefix,
        input_tokens=input_tokens(reply.usage),
        cache_read_tokens=reply.usage.cache_read_input_tokens,
    )


def _compared(
    record: ModelRequested, sent: _Sent, *, before: tuple[RequestPrefix, _Sent] | None, causes: list[str]
) -> RequestPrefix:
    common, cause = _common(before[1], sent, causes=causes) if before is not None else (0, "")
    return RequestPrefix(
        turn=record.turn,
        call=record.call,
        seq=record.seq,
        is_first_of_turn=before is None or before[0].turn != record.turn,
        size_bytes=sent.size_bytes,
        common_bytes=common,
        share=common / before[1].size_bytes if before is not None else None,
        cause=cause,
    )


def _common(old: _Sent, new: _Sent, *, causes: list[str]) -> tuple[int, str]:
    """What both begin with, in bytes, and the cause where that is not all of ``old``."""
    if old.model != new.model:
        return 0, "model"
    if old.tools != new.tools:
        return _common_bytes(old.tools, new.tools), "tools"
    common = len(old.tools)
    for place, block in enumerate(old.system):
        other = new.system[place] if place < len(new.system) else b""
        if block != other:
            return common + _common_bytes(block, other), _system_cause(block, other)
        common += len(block)
    if len(new.system) > len(old.system):
        return common, _system_cause(b"", new.system[len(old.system)])
    if old.others != new.others:
        return common, "preamble"
    in_messages = common_view_bytes(old.view, new.view)
    if in_messages == old.view.size_bytes:
        return common + in_messages, ""
    cause = COMPACTION if COMPACTION in causes else causes[-1] if causes else "messages"
    return common + in_messages, cause


def _system_cause(old: bytes, new: bytes) -> str:
    for block in (new, old):
        text = msgspec.json.decode(block, type=dict[str, Any]).get("text", "") if block else ""
        for opening, cause in _OPENINGS.items():
            if str(text).encode().startswith(opening):
                return cause
    return "instructions"


def common_view_bytes(old: View, new: View) -> int:
    """What the texts of both begin with; costs nothing for the pieces that they share."""
    common, one, other = 0, _Pieces(old), _Pieces(new)
    while (left := one.piece) and (right := other.piece):
        if left is right and one.begin == other.begin:
            size = len(left) - one.begin
        else:
            size = min(len(left) - one.begin, len(right) - other.begin)
            mine, theirs = memoryview(left)[one.begin :][:size], memoryview(right)[other.begin :][:size]
            if mine != theirs:
                return common + _common_bytes(bytes(mine), bytes(theirs))
        common += size
        one.skip(size)
        other.skip(size)
    return common


class _Pieces:
    """A place in the text of a view."""

    def __init__(self, view: View) -> None:
        self._chunks = view.chunks
        self._left = iter(range(view.length))
        self.piece = b""
        self.begin = 0
        self._next()

    def skip(self, size_bytes: int) -> None:
        """Within the piece."""
        self.begin += size_bytes
        if self.begin == len(self.piece):
            self._next()

    def _next(self) -> None:
        place = next(self._left, None)
        self.piece, self.begin = self._chunks[place] if place is not None else b"", 0


def _common_bytes(old: bytes, new: bytes) -> int:
    """By halving: a comparison of slices runs at the speed of memory."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
