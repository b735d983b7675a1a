"""What the model will still see when a turn that is about to begin asks it first: the turn's beginning and the folds
that follow it, done on trial. Pure.

Above: ``opening``, for a quotation, which shows what is folded by then and takes the room that is left. A fold by a
summariser is tried without one; how much longer its summary may become is said beside it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from torpor.conversation.budget import BYTES_PER_TOKEN, pending_bytes
from torpor.conversation.compaction import WORTH_FOLDING_BYTES, fitted
from torpor.conversation.fold import fold
from torpor.conversation.folding import folded, plan_of
from torpor.conversation.number import numbered
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import CallModel, Compact, Folding, Lane, StepOptions, next_step
from torpor.conversation.summary import Carried
from torpor.flags.contract import Decided
from torpor.records.ids import MessageId
from torpor.records.journal import ContextReplaced, JournalRecord
from torpor.records.summary import Summary
from torpor.records.terms import FoldReason
from torpor.skillbook.catalogue import Catalogue
from torpor.turn.agents import Agent
from torpor.turn.fold_record import FoldTerms, capped, unaided

_FOLDS_MAX: Final = len(FoldReason)
"""Before one call; each of them is done once at most."""
_ASKING: Final = frozenset({FoldReason.SUMMARY, FoldReason.EVERYTHING})
"""Folds for which a summariser is asked."""
_AROUND_ITEMS_BYTES: Final = 120
"""The line above the open items, and the one that counts those left out."""


class Foreseen(NamedTuple):
    """The moment before the first call."""

    state: ConversationState
    joined: tuple[MessageId, ...] = ()
    """Messages that join with it."""
    growth_bytes: int = 0
    """How much longer the summary may become than it is in ``state``."""
    is_asked: bool = False
    """Whether the model is asked at all, and the turn does not end for want of room."""
    worst_bytes: int = 0
    """Of the first request once everything else is folded and a summariser has found as many open items as it may; 0
    where none is asked."""


def foreseen(
    state: ConversationState,
    records: Sequence[JournalRecord],
    *,
    agent: Agent,
    decided: Decided,
    catalogue: Catalogue,
    steps: StepOptions,
    folding: Folding,
    now_us: int,
) -> Foreseen:
    """What comes of ``records``, which begin a turn after ``state``. Costs a passage over the view where it folds.

    Args: catalogue: the skills that there are now.  folding: what the agent's requests may take.
    """
    state, growth_bytes, worst_bytes = fold(state, numbered(state, records, at_us=now_us)), 0, 0
    for _ in range(_FOLDS_MAX):
        step = next_step(state, Lane.TURN, steps, now_us, folding=folding)
        if isinstance(step, CallModel):
            return Foreseen(state, step.joined, growth_bytes, is_asked=True, worst_bytes=worst_bytes)
        if not isinstance(step, Compact):
            break
        terms = agent.fold_terms(state.preamble, decided, catalogue)
        if folding.window.has_summariser and step.reason in _ASKING:
            worst_bytes = worst_bytes or _worst_bytes(state, step, folding=folding, terms=terms)
        record = unaided(state, step, folding=folding, terms=terms)
        growth_bytes = _growth_bytes(state, record, folding=folding) if step.reason is FoldReason.SUMMARY else 0
        state = fold(state, numbered(state, [record], at_us=now_us))
        if not record.is_without_tool:
            state = msgspec.structs.replace(state, preamble=terms.preamble)
    return Foreseen(state, (), growth_bytes, worst_bytes=worst_bytes)


def _worst_bytes(state: ConversationState, step: Compact, *, folding: Folding, terms: FoldTerms) -> int:
    """Of a request with the running turn, the items, which do not make way for it, and what skills are cut to."""
    options = capped(state, msgspec.structs.replace(step, reason=FoldReason.EVERYTHING), folding=folding)
    record = folded(
        state,
        plan_of(state, FoldReason.EVERYTHING),
        reason=FoldReason.EVERYTHING,
        summary=Summary(),
        carried=Carried(items=()),
        skills=terms.skills,
        options=options,
        reads_earlier=terms.reads_earlier,
    )
    head_bytes = sum(len(memoryview(block)) for block in record.head)
    items_bytes = _AROUND_ITEMS_BYTES + options.items_tokens * BYTES_PER_TOKEN
    own_bytes = (
        state.view.weight_bytes - state.view.weight_before(state.starts[-1].size_bytes) + pending_bytes(state, ())
    )
    return state.preamble.size_bytes + head_bytes + items_bytes + own_bytes


def _growth_bytes(state: ConversationState, record: ContextReplaced, *, folding: Folding) -> int:
    """A summariser's summary is no longer than its caps, and shorter than what it stands for."""
    options = fitted(folding.options, folding.window, fixed_bytes=state.preamble.size_bytes)
    caps_bytes = (options.summary_tokens + options.items_tokens) * BYTES_PER_TOKEN + WORTH_FOLDING_BYTES
    (gone_bytes,) = (start.size_bytes for start in state.starts if start.turn == record.kept_from)
    said_bytes = [len(memoryview(block)) for block in record.head]
    return max(min(caps_bytes - said_bytes[0], gone_bytes - sum(said_bytes)), 0)
