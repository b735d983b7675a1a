"""The record of a fold: made without a summariser, or of a summariser's words; for a model that has the tool that reads
earlier turns, where the request has room for it. What it comes to is not reckoned yet. Pure.

Above: ``fold_history``, which asks the summariser, and ``foresight``, which tries what will be folded.
"""

from typing import NamedTuple

import msgspec

from torpor.conversation.budget import BYTES_PER_TOKEN, pending_bytes
from torpor.conversation.compaction import fitted
from torpor.conversation.folding import carried_so_far, folded, plan_of, shortened
from torpor.conversation.reckoning import follows, has_room
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import Compact, Folding
from torpor.conversation.summary import Carried, CompactionOptions, told_bytes
from torpor.conversation.view import Preamble
from torpor.records.journal import ContextReplaced
from torpor.records.summary import Summary
from torpor.records.terms import FoldReason


class FoldTerms(NamedTuple):
    """What a fold needs to know of what its agent offers."""

    preamble: Preamble
    """Once something is folded."""
    skills: frozenset[str]
    """Keys that may still be loaded."""
    reads_earlier: bool
    """Whether the model has the tool that reads what goes."""


def capped(state: ConversationState, step: Compact, *, folding: Folding) -> CompactionOptions:
    """The caps of a summary. One that takes the place of every turn but the running one has what the running one, and
    the items that are open, leave of the window; what is open does not make way for a message."""
    options, window = folding.options, folding.window
    caps = fitted(options, window, fixed_bytes=state.preamble.size_bytes)
    if step.reason is not FoldReason.EVERYTHING:
        return caps
    items_bytes = sum(told_bytes(f"- {item.id} ({item.kind.value}): {item.text}\n") for item in state.items)
    beside_bytes = (
        state.view.weight_bytes - state.view.weight_before(state.starts[-1].size_bytes) + pending_bytes(state, ())
    )
    beside_bytes += min(items_bytes, caps.items_tokens * BYTES_PER_TOKEN)
    beside = fitted(options, window, fixed_bytes=state.preamble.size_bytes + beside_bytes)
    return msgspec.structs.replace(
        caps,
        summary_tokens=min(caps.summary_tokens, beside.summary_tokens),
        skill_tokens=min(caps.skill_tokens, beside.skill_tokens),
        skills_tokens=min(caps.skills_tokens, beside.skills_tokens),
    )


def unaided(state: ConversationState, step: Compact, *, folding: Folding, terms: FoldTerms) -> ContextReplaced:
    """What becomes of ``step`` without a summariser."""
    record = _made(state, step, folding=folding, terms=terms, reads_earlier=terms.reads_earlier)
    return offered(state, step, record, folding=folding, terms=terms)


def offered(
    state: ConversationState, step: Compact, record: ContextReplaced, *, folding: Folding, terms: FoldTerms
) -> ContextReplaced:
    """``record``, made for a model that has the tool that reads earlier turns; where that tool is new and has no room,
    as it is without it, and it says so.

    Args: record: of ``step``.
    """
    if terms.preamble.digest == state.preamble.digest:
        return record
    if has_room(follows(state, record, preamble=terms.preamble), window=folding.window):
        return record
    without = _made(state, step, folding=folding, terms=terms, reads_earlier=False, of=record)
    return msgspec.structs.replace(
        without, is_without_tool=True, usage=record.usage, model=record.model, calls=record.calls
    )


def _made(
    state: ConversationState,
    step: Compact,
    *,
    folding: Folding,
    terms: FoldTerms,
    reads_earlier: bool,
    of: ContextReplaced | None = None,
) -> ContextReplaced:
    """Args: of: the record whose words it says again; None to go by the beginnings of what was said."""
    options = capped(state, step, folding=folding)
    if step.reason is FoldReason.SHORTENED:
        return shortened(state, options=options, reads_earlier=reads_earlier)
    summary: Summary | None = None
    items = carried_so_far(state)
    if of is not None:
        summary = of.summary
        items = Carried(items=of.items, closed=of.closed, left_out=of.left_out, left_out_turns=of.left_out_turns)
    return folded(
        state,
        plan_of(state, step.reason),
        reason=step.reason,
        summary=summary,
        carried=items,
        skills=terms.skills,
        options=options,
        reads_earlier=reads_earlier,
    )
