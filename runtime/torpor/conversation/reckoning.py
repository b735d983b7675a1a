"""What a replaced part of the view comes to: the request that follows it, with all that will be in it. Pure."""

import math

import msgspec

from torpor.conversation.budget import pending_bytes
from torpor.conversation.compaction import Window
from torpor.conversation.joining import joining
from torpor.conversation.replacing import replaced
from torpor.conversation.state import ConversationState
from torpor.conversation.view import Preamble
from torpor.records.ids import MessageId
from torpor.records.journal import ContextReplaced


def reckoned(
    state: ConversationState, record: ContextReplaced, *, preamble: Preamble, window: Window
) -> ContextReplaced:
    """The record with the tokens of the next request, messages that join it among them: before, as it would have been,
    and after. Costs a passage over the view.

    Args: preamble: of the request after.
    """
    after = follows(state, record, preamble=preamble)
    joined = joining(after, window=window)
    return msgspec.structs.replace(
        record,
        before_tokens=_tokens(state, joined, window=window),
        after_tokens=_tokens(after, joined, window=window),
    )


def follows(state: ConversationState, record: ContextReplaced, *, preamble: Preamble) -> ConversationState:
    """The state after ``record``, which is not in the journal yet, and after ``preamble``."""
    assert state.turn is not None, "the view is replaced within a turn"
    return msgspec.structs.replace(replaced(state, state.turn, record), preamble=preamble)


def has_room(state: ConversationState, *, window: Window) -> bool:
    """Whether the next request fits after a fold, nobody joining it."""
    return not window.budget_tokens or _tokens(state, (), window=window) <= window.limit_tokens


def _tokens(state: ConversationState, joined: tuple[MessageId, ...], *, window: Window) -> int:
    """By its size: after a fold there is no other measure, and two measures would not compare."""
    size_bytes = state.preamble.size_bytes + state.view.weight_bytes + pending_bytes(state, joined)
    return math.ceil(size_bytes / window.bytes_per_token)
