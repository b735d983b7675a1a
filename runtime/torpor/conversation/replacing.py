"""A state whose view is replaced: its head, the turns that stay, and everything that counts by places in it. Pure.

Above: the fold of the journal, which checks the record against the view that came of it.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from torpor.conversation.segments import Change, Said, TurnStart, blocks_of, rebuilt, said_in, shortening, withdrawing
from torpor.conversation.state import ConversationState, LoadedSkill, TurnState
from torpor.conversation.view import View
from torpor.records.attachments import Why
from torpor.records.blocks import Block, result_of
from torpor.records.journal import ContextReplaced
from torpor.records.terms import FoldReason, Usage

_LAST_RESORTS: Final = frozenset({FoldReason.SHORTENED, FoldReason.EVERYTHING})


def replaced(state: ConversationState, turn: TurnState, record: ContextReplaced) -> ConversationState:
    """The view begins with the head, goes on with the turns that stay, and is measured by the next reply.

    Args: turn: the running one.  record: keeps the view from a turn that begins in it.
    """
    starts = tuple(start for start in state.starts if start.turn >= record.kept_from)
    view, moved = rebuilt(state.view, starts, head=record.head, change=_change(record))
    base, _ = rebuilt(turn.base, starts[:-1], head=record.head, change=_change(record))
    kept = rebuilt(turn.kept, starts, head=record.head, change=_change(record))[0] if turn.kept is not None else None
    heads = dict(zip(record.skills, record.head[len(record.head) - len(record.skills) :], strict=True))
    standing = _results_in(said_in(state.view, starts)) | {call.id for call in turn.calls}
    last_resort = record.reason if record.reason in _LAST_RESORTS else turn.last_resort
    running = msgspec.structs.replace(
        turn,
        folds_begun=0,
        calls=tuple(
            msgspec.structs.replace(call, result=record.shortened[call.id]) if call.id in record.shortened else call
            for call in turn.calls
        ),
        base=base,
        base_starts=moved[:-1],
        base_skills=_skills_after(turn.base_skills, heads=heads, standing=standing),
        kept=kept,
        lasting_bytes=_lasting_after(state.view, turn, starts, record=record),
        is_too_long=False,
        was_too_long=turn.was_too_long or turn.is_too_long,
        last_resort=last_resort,
        has_withdrawn=turn.has_withdrawn or record.why == Why.REFUSED,
    )
    return msgspec.structs.replace(
        state,
        view=view,
        turn=running,
        starts=moved,
        messages=sum(start.messages for start in moved),
        generation=record.generation,
        covered=(record.turns[1], record.seqs[1]),
        summary=record.summary,
        items=record.items,
        left_out=record.left_out,
        left_out_turns=record.left_out_turns,
        skills=_skills_after(state.skills, heads=heads, standing=standing),
        is_measured=False,
        fold_failures=0 if record.reason is FoldReason.SUMMARY else state.fold_failures,
        lasting_bytes=0,
        last_usage=Usage(),
        measured_bytes=0,
    )


def _change(record: ContextReplaced) -> Change | None:
    """What is done to the blocks that stay; for one passage."""
    return withdrawing(record.withdrawn, shortening(record.shortened))


def _results_in(turns: Iterable[Iterable[Said]]) -> set[str]:
    return {result_of(block) for said in turns for role, block in blocks_of(said) if role == "user"}


def _skills_after(
    skills: tuple[LoadedSkill, ...], *, heads: Mapping[str, Block], standing: AbstractSet[str]
) -> tuple[LoadedSkill, ...]:
    """Those whose text is still in the view: where it was loaded, or else in its head."""
    return tuple(
        skill if skill.call_id in standing else msgspec.structs.replace(skill, head=(heads[skill.key],))
        for skill in skills
        if skill.call_id in standing or skill.key in heads
    )


def _lasting_after(view: View, turn: TurnState, starts: tuple[TurnStart, ...], *, record: ContextReplaced) -> int:
    """Where what is for the turn alone begins now."""
    if not turn.lasting_bytes:
        return 0
    lasting = View([view.text()[: turn.lasting_bytes]], 1, "user", size_bytes=turn.lasting_bytes)
    return rebuilt(lasting, starts, head=record.head, change=_change(record))[0].size_bytes
