"""What a turn begins with less of, because its first request would not fit otherwise. Pure.

Above: ``opening``. What a turn is told beside the user's words is frozen in its blocks, the same at every call, so it
can be cut once: before the turn begins, with all counted as folded that may be. A quotation takes what is left anyway
(see ``lookback``); then policy excerpts go, then parts of the context signal, those that change fastest first, then the
tool that reads earlier turns, where it would be new.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from torpor.conversation.budget import NEXT_BYTES, next_request_tokens, pending_bytes
from torpor.conversation.compaction import Window
from torpor.conversation.lately import remembered
from torpor.conversation.state import ConversationState
from torpor.conversation.view import Preamble, weight_of
from torpor.records.blocks import Block
from torpor.records.journal import JournalRecord, PreambleChanged, PreambleReturned, TurnPrepared
from torpor.turn.foresight import Foreseen

_MARGIN_TOKENS: Final = 32
"""What stands around blocks, and what is lost in rounding."""
_SHARES: Final = (1.0, 0.75, 0.5)
"""Of what is free, tried in turn: a text is longer within a request than it is counted."""


class Spared(NamedTuple):
    """What is cut; tokens at most, None where nothing is."""

    excerpts_tokens: int | None = None
    signal_tokens: int | None = None
    is_without_tool: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """As the record of the turn's beginning has them."""
        cut = {
            "policy_excerpts": self.excerpts_tokens is not None,
            "envelope": self.signal_tokens is not None,
            "read_earlier": self.is_without_tool,
        }
        return tuple(name for name, is_cut in cut.items() if is_cut)

    def with_cut(self, other: "Spared", *, tokens: int = 0) -> "Spared":
        """What either cuts. Args: tokens: that stay of what ``other`` cuts."""
        return Spared(
            self.excerpts_tokens if other.excerpts_tokens is None else tokens,
            self.signal_tokens if other.signal_tokens is None else tokens,
            self.is_without_tool or other.is_without_tool,
        )


NOTHING: Final = Spared()
Begin = Callable[[Spared], list[JournalRecord]]
Foresee = Callable[[Sequence[JournalRecord]], Foreseen]


def sparing(state: ConversationState, *, begin: Begin, foresee: Foresee, window: Window) -> list[JournalRecord]:
    """The records of the turn with the least that has to be cut; with all of it cut where even that is not enough.

    What a summariser finds to be open is not cut later, so that room is left for as much of it as there may be.

    Args: begin: the records with so much cut.  foresee: what comes of them until the model is asked.  window: what the
        agent's requests may take.
    """
    records = begin(NOTHING)
    if not _is_crowded(state, records, window=window) or _is_sure(foresee(records), window=window):
        return records
    less = NOTHING
    for cut in (Spared(excerpts_tokens=0), Spared(signal_tokens=0), Spared(is_without_tool=True)):
        tried = less.with_cut(cut)
        before, records = records, begin(tried)
        if _is_same(records, before):
            continue  # there is nothing of it
        ahead = foresee(records)
        if _is_sure(ahead, window=window):
            return _widened(less, cut, ahead, begin=begin, foresee=foresee, window=window) or records
        less = tried
    return begin(less)


def _is_sure(ahead: Foreseen, *, window: Window) -> bool:
    """Whether the model is asked, whatever a summariser finds to be open."""
    return ahead.is_asked and math.ceil(ahead.worst_bytes / window.bytes_per_token) <= window.limit_tokens


def _widened(
    less: Spared, cut: Spared, ahead: Foreseen, *, begin: Begin, foresee: Foresee, window: Window
) -> list[JournalRecord] | None:
    """With as much of what is cut as fits into what is free; None where nothing does."""
    ratio = window.bytes_per_token
    view_bytes = ahead.state.view.weight_bytes + pending_bytes(ahead.state, ahead.joined)
    tokens = next_request_tokens(ahead.state, view_bytes, bytes_per_token=ratio)
    free = math.floor(window.limit_tokens - tokens - ahead.growth_bytes / ratio) - _MARGIN_TOKENS
    free = min(free, math.floor(window.limit_tokens - ahead.worst_bytes / ratio) - _MARGIN_TOKENS)
    if free <= 0 or cut.is_without_tool:
        return None
    for share in _SHARES:
        wider = less.with_cut(cut, tokens=math.floor(share * free))
        records = begin(wider)
        if _is_sure(foresee(records), window=window):
            return records
    return None


def _is_same(records: Sequence[JournalRecord], others: Sequence[JournalRecord]) -> bool:
    """But for what they say of what was cut."""
    return [_unsaid(record) for record in records] == [_unsaid(record) for record in others]


def _unsaid(record: JournalRecord) -> JournalRecord:
    return msgspec.structs.replace(record, cut=()) if isinstance(record, TurnPrepared) else record


def _is_crowded(state: ConversationState, records: Sequence[JournalRecord], *, window: Window) -> bool:
    """Whether the turn begins with something that can be cut, and would not fit with all of it and without a fold."""
    preamble, told = state.preamble, list[Block]()
    for record in records:
        if isinstance(record, PreambleChanged):
            preamble = Preamble(record.digest, record.body)
        elif isinstance(record, PreambleReturned):
            preamble = remembered(state, record.digest) or preamble
        elif isinstance(record, TurnPrepared):
            told += (*record.signal, *record.turn_only)
    if not window.budget_tokens or (not told and preamble is state.preamble):
        return False
    said = (block for message in state.queued for block in message.blocks)
    new_bytes = sum(weight_of(block) + 1 for block in (*state.notes, *told, *said)) + NEXT_BYTES
    after = msgspec.structs.replace(state, preamble=preamble)
    tokens = next_request_tokens(after, state.view.weight_bytes + new_bytes, bytes_per_token=window.bytes_per_token)
    return tokens > window.limit_tokens
