"""When a part of the view is to be replaced, and how; on running sums, whatever the length of the conversation. Pure.

Before each model call the tokens of the next request are compared with two lines: the *threshold*, a share of the
budget, above which older turns are worth folding; and the *limit*, above which the host would refuse the request or
have no room to answer. What is done depends on what is left to do:

1. over the threshold, or over the profile's allotment or message limit: a summariser folds what is older than the last
   two turns; when it fails, the turn goes on, and the next one may try again. An agent without a summariser has them
   folded without a model;
2. over the limit: the same turns are folded without a model;
3. nothing older left: long tool results of the turns that stay are shortened;
4. still over, or none of them long: every turn but the running one is folded;
5. still over, or the running turn is alone: the turn ends as failed, and says why.

Nothing is tried again before a reply has measured what the last attempt came to. Where the fixed parts alone are over
the threshold, folding cannot bring a request below it, so nobody is asked for summaries; where they are over the limit,
alone or with what a turn begins with, nothing is folded at all.
"""

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from torpor.conversation.budget import Profile, tokens_of_bytes
from torpor.conversation.segments import TurnStart, blocks_of, said_in
from torpor.conversation.state import ConversationState, TurnState
from torpor.conversation.summary import CompactionOptions
from torpor.records.blocks import Block, result_of
from torpor.records.terms import FoldReason

OLDER_SHARE: Final = 0.5
"""Of a profile's allotment for the conversation, or of its limits: less than this is not folded for its sake."""
OLDER_TURNS: Final = 2
"""That many turns are: a fold costs a call of a summariser."""
KEPT_TURNS: Final = 2
"""Turns before the running one that stay as they were said."""
WORTH_FOLDING_BYTES: Final = 400
"""Older turns of less would be longer as a summary, of which the frame alone is half of it."""
WORTH_SHORTENING: Final = 2
"""Times the length it would be shortened to: what a result has to have at least."""
HEAD_PARTS: Final = 6
"""Summary and skills get such a part each of what a conversation may take, open items two, and not more."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's requests may take, in tokens."""

    budget_tokens: int = 0
    """Request and reply; 0 for a conversation that is never folded."""
    reserve_tokens: int = 0
    """Of it, for the reply."""
    conversation_tokens: int = 0
    messages_max: int = 0
    exchanges_max: int = 0
    bytes_per_token: float = 4.0
    has_summariser: bool = False

    @property
    def limit_tokens(self) -> int:
        """A larger request does not fit."""
        return max(self.budget_tokens - self.reserve_tokens, self.budget_tokens // 2)


def fitted(options: CompactionOptions, window: Window, *, fixed_bytes: int) -> CompactionOptions:
    """``options`` with the caps of a summary brought down to what ``window`` has room for: a summary that took most of
    it would be what bloats. Args: fixed_bytes: of what stands before the messages."""
    if not window.budget_tokens:
        return options
    room_tokens = window.limit_tokens - round(fixed_bytes / window.bytes_per_token)
    room_tokens = min(room_tokens, window.conversation_tokens or room_tokens)
    part_tokens = max(room_tokens // HEAD_PARTS, 1)
    return msgspec.structs.replace(
        options,
        summary_tokens=min(options.summary_tokens, part_tokens),
        items_tokens=min(options.items_tokens, 2 * part_tokens),
        skill_tokens=min(options.skill_tokens, part_tokens),
        skills_tokens=min(options.skills_tokens, part_tokens),
    )


def tight_limits(profile: Profile, options: CompactionOptions) -> Iterator[str]:
    """Limits of a profile that the turns that stay, or a summary, are beyond in any conversation."""
    turns = KEPT_TURNS + 1
    for name, need in (("exchanges_max", turns), ("messages_max", 2 * turns)):
        if 0 < (limit := getattr(profile, name)) <= need:
            yield (
                f"{name} {limit} asks for a summary every {OLDER_TURNS} turns, as the last {KEPT_TURNS} stay beside "
                f"the running one; expected more than {need}"
            )
    need = HEAD_PARTS * options.item_tokens
    if 0 < profile.conversation_tokens < need:
        yield f"conversation_tokens {profile.conversation_tokens} has no room for a summary, expected {need} or more"


class Overflow(StrEnum):
    """Why nothing can be done about a request that does not fit."""

    FIXED = "fixed_context_too_large"
    """Prompt, tools and skills alone are too much."""
    TURN = "context_too_long"
    """The running turn alone is."""


def kept_starts(state: ConversationState) -> tuple[TurnStart, ...]:
    """Beginnings of the turns that stay, the running one last: the last two that ended, and whatever runs."""
    count = KEPT_TURNS + (state.turn is not None)
    return state.starts[-count:]


def is_foldable(state: ConversationState, *, kept: int = KEPT_TURNS) -> bool:
    """Whether there is anything older than the turns that stay that is worth a summary.

    Args: kept: turns that stay beside the running one.
    """
    kept += state.turn is not None
    return len(state.starts) > kept and state.view.weight_before(state.starts[-kept].size_bytes) > WORTH_FOLDING_BYTES


def can_shrink(state: ConversationState, options: CompactionOptions) -> bool:
    """Whether anything can be done about a request that does not fit. May cost a passage over the turns that stay."""
    return is_foldable(state, kept=0) or bool(long_results(state, bytes_max=options.result_bytes))


def long_results(state: ConversationState, *, bytes_max: int) -> Mapping[str, tuple[int, Block]]:
    """Results in the view and of the open round that are worth shortening to ``bytes_max``, by the id of their call,
    with their turn. The texts of loaded skills are spared, and so is what was shortened before."""
    results = {
        result_of(block): (start.turn, block)
        for start, said in zip(state.starts, said_in(state.view, state.starts), strict=True)
        for role, block in blocks_of(said)
        if role == "user"
    }
    if state.turn is not None:
        number = state.turn.number
        results |= {call.id: (number, call.result) for call in state.turn.calls if call.result is not None}
    spared = {"", *(skill.call_id for skill in state.skills)}
    return {
        call_id: (turn, block)
        for call_id, (turn, block) in results.items()
        if call_id not in spared and len(memoryview(block)) > WORTH_SHORTENING * bytes_max
    }


def next_fold(
    state: ConversationState,
    turn: TurnState,
    *,
    tokens: int,
    view_bytes: int,
    window: Window,
    options: CompactionOptions,
    now_us: int,
) -> FoldReason | Overflow | None:
    """What is to be done before the model is asked; None to ask it.

    Args: tokens: of the next request, estimated.  view_bytes: what its messages weigh.
    """
    if not window.budget_tokens:
        return None
    is_over_limit = tokens > window.limit_tokens or turn.is_too_long
    history_bytes = view_bytes - turn.signal_bytes - turn.turn_only_bytes
    if not is_over_limit and not _is_worth_folding(
        state, tokens=tokens, history_bytes=history_bytes, window=window, options=options
    ):
        return None
    fixed_tokens = round(state.preamble.size_bytes / window.bytes_per_token)
    if fixed_tokens > window.limit_tokens:
        return Overflow.FIXED
    is_fixed_alone = fixed_tokens > options.threshold_share * window.budget_tokens
    overflow = Overflow.FIXED if is_fixed_alone else Overflow.TURN
    if is_over_limit and not turn.round and _is_hopeless(state, view_bytes=view_bytes, window=window):
        return overflow
    if is_foldable(state) and state.is_measured and not is_fixed_alone:
        if not window.has_summariser:
            return FoldReason.MECHANICAL
        if _may_summarise(state, turn, options=options, now_us=now_us):
            return FoldReason.SUMMARY
    if not is_over_limit:
        return None
    if is_foldable(state):
        return FoldReason.MECHANICAL
    return _last_resort(state, turn, options) or overflow


def _is_hopeless(state: ConversationState, *, view_bytes: int, window: Window) -> bool:
    """Whether what the turn begins with does not fit even alone, so that others would be folded in vain."""
    earlier_bytes = state.view.weight_before(state.starts[-1].size_bytes) if state.starts else 0
    alone_bytes = state.preamble.size_bytes + view_bytes - earlier_bytes
    return math.ceil(alone_bytes / window.bytes_per_token) > window.limit_tokens


def _last_resort(state: ConversationState, turn: TurnState, options: CompactionOptions) -> FoldReason | None:
    if turn.last_resort is None and long_results(state, bytes_max=options.result_bytes):
        return FoldReason.SHORTENED
    if turn.last_resort is not FoldReason.EVERYTHING and is_foldable(state, kept=0):
        return FoldReason.EVERYTHING
    return None


def _is_worth_folding(
    state: ConversationState, *, tokens: int, history_bytes: int, window: Window, options: CompactionOptions
) -> bool:
    threshold = min(options.threshold_share * window.budget_tokens, window.limit_tokens)
    if tokens > threshold:
        return True
    # Turns that stay may exceed a limit alone; then each new turn would be folded at once, for little.
    kept = kept_starts(state)
    older_turns = len(state.starts) - len(kept)
    if older_turns < OLDER_TURNS:
        return False
    older_messages = state.messages - sum(start.messages for start in kept)
    return any(
        0 < limit < said and gone >= math.floor(OLDER_SHARE * limit)
        for limit, said, gone in (
            (window.conversation_tokens, tokens_of_bytes(history_bytes), tokens_of_bytes(_older_bytes(state))),
            (window.messages_max, state.messages, older_messages),
            (window.exchanges_max, len(state.starts), older_turns),
        )
    )


def _older_bytes(state: ConversationState) -> int:
    """Size of what was said before the turns that stay, the summary left out."""
    kept = kept_starts(state)
    if not kept:
        return 0
    before, since = (state.view.weight_before(start.size_bytes) for start in (kept[0], state.starts[0]))
    return before - since


def left_alone_until_us(state: ConversationState, options: CompactionOptions, *, now_us: int) -> int:
    """Until when a summariser that fails now is not asked again; 0 where the next turn may."""
    is_open = state.fold_failures + 1 >= options.failures_max
    return now_us + round(options.cool_down_s * 1_000_000) if is_open else 0


def _may_summarise(state: ConversationState, turn: TurnState, *, options: CompactionOptions, now_us: int) -> bool:
    """At most one attempt a turn after a failure, and none while the circuit is open."""
    if turn.has_fold_failed:
        return False
    since_us = now_us - state.fold_failed_us  # less than nothing after a clock was set back: nobody knows how long
    return state.fold_failures < options.failures_max or not 0 <= since_us < round(options.cool_down_s * 1_000_000)
