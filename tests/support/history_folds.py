"""What may replace a part of a told history: every kind of fold that the state allows, made by the real functions."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from torpor.conversation.compaction import KEPT_TURNS, long_results
from torpor.conversation.folding import carried_so_far, folded, plan_of, shortened
from torpor.conversation.state import ConversationState
from torpor.conversation.summary import CompactionOptions, Proposal, carried
from torpor.conversation.view import Role, View
from torpor.records.blocks import Block, canonical
from torpor.records.journal import (
    CompactionFailed,
    ContextReplaced,
    JournalRecord,
    MessageRetracted,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.summary import Closing, ItemKind, Summary
from torpor.records.terms import FoldReason, Usage

Pick = Callable[[Sequence[Any]], Any]

COMPACTION: Final = CompactionOptions(result_bytes=30, items_max=3, skills_tokens=40, skill_tokens=30)
SUMMARIES: Final = (
    Summary(facts=("ok.",)),
    Summary(facts=('she said "no"',), decisions=("[,]",), entities=("Ann: naïve \U0001f600",)),
)


def reasons(state: ConversationState) -> list[FoldReason]:
    """Those for which there is something to replace."""
    found: list[FoldReason] = []
    if has_older(state):
        found += [*[FoldReason.SUMMARY] * 4, *[FoldReason.MECHANICAL] * 2]
    if long_results(state, bytes_max=COMPACTION.result_bytes):
        found.append(FoldReason.SHORTENED)
    if len(state.starts) > 1:
        found.append(FoldReason.EVERYTHING)
    return found


def has_older(state: ConversationState) -> bool:
    """Whether there is anything older than the turns that stay, however little."""
    return len(state.starts) > KEPT_TURNS + (state.turn is not None)


def replaced(state: ConversationState, reason: FoldReason, *, pick: Pick, skills: Sequence[str]) -> ContextReplaced:
    """The record of that fold. Args: skills: all there are."""
    if reason is FoldReason.SHORTENED:
        return shortened(state, options=COMPACTION)
    plan, summary, items = plan_of(state, reason), None, carried_so_far(state)
    if reason is FoldReason.SUMMARY:
        summary = pick(SUMMARIES)
        items = carried(
            items,
            Proposal(summary=summary, opened=_opened(state, pick), closed=_closed(state, pick)),
            generation=state.generation + 1,
            last_turn=plan.folded[-1][0],
            options=COMPACTION,
        )
    return folded(
        state,
        plan,
        reason=reason,
        summary=summary,
        carried=items,
        skills=frozenset(skills[pick((0, 0, 1)) :]),
        options=COMPACTION,
    )


def compaction_failed(state: ConversationState, *, pick: Pick) -> CompactionFailed:
    """The record of a summariser that gave nothing."""
    assert state.turn is not None
    code = pick(("bad_summary", "deadline"))
    return CompactionFailed(turn=state.turn.number, code=code, detail="", usage=Usage(input_tokens=3), calls=2)


class Firsts:
    """Where turns begin, in blocks; counted, and not by the sizes that the state keeps."""

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}
        """By turn: how many blocks stand before it."""

    def see(self, before: ConversationState, record: JournalRecord) -> None:
        """Args: before: the state that ``record`` follows."""
        match record:
            case TurnPrepared():
                self.blocks[record.turn] = before.view.blocks
            case TurnRefused():
                del self.blocks[record.turn]
            case MessageRetracted() if record.turn:
                del self.blocks[record.turn]
            case ContextReplaced():
                gone = self.blocks[record.kept_from] - len(record.head)
                self.blocks = {turn: first - gone for turn, first in self.blocks.items() if turn >= record.kept_from}

    def of(self, turn: int, view: View) -> int:
        """Blocks of ``view`` before ``turn``; all of them when it begins behind them."""
        return min(self.blocks[turn], view.blocks)


def said(view: View) -> list[tuple[Role, Block]]:
    """Every block, read back from the request that it would be."""
    return [
        (message["role"], canonical(block)) for message in json.loads(view.messages()) for block in message["content"]
    ]


def after_fold(view: View, record: ContextReplaced, *, first: int) -> View:
    """``view`` as the record leaves it, told from what it says. Args: first: the block with which what stays begins."""
    new = View().extended("user", record.head)
    for role, block in said(view)[first:]:
        call_id = json.loads(bytes(block)).get("tool_use_id", "")
        new = new.extended(role, [record.shortened.get(call_id, block)])
    return new


def _opened(state: ConversationState, pick: Pick) -> tuple[tuple[ItemKind, str, int], ...]:
    kind = pick(tuple(ItemKind))
    items = ((kind, "the same", 1), (kind, f"open since turn {state.turns}", state.turns))
    return items[: pick((0, 1, 2))]


def _closed(state: ConversationState, pick: Pick) -> tuple[Closing, ...]:
    if not state.items or not pick((False, True)):
        return ()
    item = pick(state.items)
    return (Closing(id=item.id, turn=pick((item.turn, 99))), Closing(id="i9-9", turn=1))
