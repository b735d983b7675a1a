"""When a part of the view is to be replaced, and how; on running sums, whatever the length of the conversation. Pure.

Before each model call the tokens of the next request are compared with two lines: the *threshold*, a share of the
budget, above which older turns are worth folding; and the *limit*, above which the host would refuse the request or
have no room to answer. What is done depends on what is left to do:

1. over the threshold, or over the profile's allotment or message limit: a summariser folds what is older than the last
   two turns; when it fails, the turn goes on, and the next one may try again;
2. over the limit: the same turns are folded without a model;
3. nothing older left: long tool results of the turns that stay are shortened;
4. still over: every turn but the running one is folded;
5. still over: the turn ends as failed, and says why.

Nothing is tried again before a reply has measured what the last attempt came to.
"""

from enum import StrEnum
from typing import Final

import msgspec

from torpor.conversation.budget import tokens_of_bytes
from torpor.conversation.segments import TurnStart
from torpor.conversation.state import ConversationState, TurnState
from torpor.conversation.summary import CompactionOptions
from torpor.records.journal import FoldReason

KEPT_TURNS: Final = 2
"""Turns before the running one that stay as they were said."""


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


def is_foldable(state: ConversationState) -> bool:
    """Whether there is anything older than the turns that stay."""
    return len(state.starts) > KEPT_TURNS + (state.turn is not None)


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

    Args: tokens: of the next request, estimated.  view_bytes: size of its messages.
    """
    if not window.budget_tokens:
        return None
    is_over_limit = tokens > window.limit_tokens or turn.is_too_long
    if not is_over_limit and not _is_worth_folding(
        state, tokens=tokens, view_bytes=view_bytes, window=window, options=options
    ):
        return None
    fixed_tokens = round(state.preamble.size_bytes / window.bytes_per_token)
    is_fixed_alone = fixed_tokens > options.threshold_share * window.budget_tokens
    if (
        is_foldable(state)
        and not is_fixed_alone
        and _may_summarise(state, turn, window=window, options=options, now_us=now_us)
    ):
        return FoldReason.SUMMARY
    if not is_over_limit:
        return None
    if is_foldable(state):
        return FoldReason.MECHANICAL
    if turn.last_resort is None:
        return FoldReason.SHORTENED
    if turn.last_resort is FoldReason.SHORTENED and len(state.starts) > 1:
        return FoldReason.EVERYTHING
    return Overflow.FIXED if is_fixed_alone else Overflow.TURN


def _is_worth_folding(
    state: ConversationState, *, tokens: int, view_bytes: int, window: Window, options: CompactionOptions
) -> bool:
    threshold = min(options.threshold_share * window.budget_tokens, window.limit_tokens)
    return (
        tokens > threshold
        or 0 < window.conversation_tokens < tokens_of_bytes(view_bytes)
        or 0 < window.messages_max < state.messages
        or 0 < window.exchanges_max < len(state.starts)
    )


def _may_summarise(
    state: ConversationState, turn: TurnState, *, window: Window, options: CompactionOptions, now_us: int
) -> bool:
    if not window.has_summariser or not state.is_measured or turn.has_fold_failed:
        return False
    cooled_us = state.fold_failed_us + round(options.cool_down_s * 1_000_000)
    return state.fold_failures < options.failures_max or now_us >= cooled_us
