"""Which of the messages that wait to steer a turn join its next request: in order, as many as fit. Pure.

A message never makes the turn that it joins fail, nor does it cost that turn what was said last: for its sake older
turns are folded once at most, as before any request. What does not fit waits, with what came after it, and begins the
next turns.
"""

import math

from torpor.conversation.budget import next_request_tokens, pending_bytes
from torpor.conversation.compaction import WORTH_FOLDING_BYTES, Window, is_foldable, kept_starts
from torpor.conversation.state import ConversationState
from torpor.records.ids import MessageId
from torpor.records.terms import WhenBusy


def joining(state: ConversationState, *, window: Window) -> tuple[MessageId, ...]:
    """Of the messages that wait; none where the next request is one that is asked again, without them.

    Args: window: what the agent's requests may take.
    """
    if state.turn is None or state.turn.call:
        return ()
    waiting = tuple(message.id for message in state.queued if message.when_busy is WhenBusy.STEER)
    if not window.budget_tokens:
        return waiting
    gone_bytes = _older_bytes(state) if waiting and state.is_measured else 0
    for count in range(len(waiting), 0, -1):
        joined = waiting[:count]
        if _fits(state, joined, window=window, gone_bytes=gone_bytes):
            return joined
    return ()


def _fits(state: ConversationState, joined: tuple[MessageId, ...], *, window: Window, gone_bytes: int) -> bool:
    """Whether the request is within the limit as it is, or without ``gone_bytes`` of it."""
    view_bytes, ratio = state.view.weight_bytes + pending_bytes(state, joined), window.bytes_per_token
    if next_request_tokens(state, view_bytes, bytes_per_token=ratio) <= window.limit_tokens:
        return True
    left_bytes = state.preamble.size_bytes + view_bytes - gone_bytes
    return gone_bytes > 0 and math.ceil(left_bytes / ratio) <= window.limit_tokens


def _older_bytes(state: ConversationState) -> int:
    """What a fold of the older turns takes away if its summary is as short as one can be; 0 when there is none. What
    stands for longer ones is found out by the fold, which the turn that the message begins would need as well."""
    return state.view.weight_before(kept_starts(state)[0].size_bytes) - WORTH_FOLDING_BYTES if is_foldable(state) else 0
