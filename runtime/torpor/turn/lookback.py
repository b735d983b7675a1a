"""How much of the exchanges that a message asks to have quoted there is room for. Pure.

Above: ``prepare``, which puts what fits into the blocks for one turn alone. A quotation never makes a request worth
folding: it takes what is left below that line, and below the profile's allotment for the conversation.
"""

import math
from typing import Final

from torpor.conversation.budget import BYTES_PER_TOKEN, next_request_tokens, tokens_of_bytes
from torpor.conversation.quoting import Lookback, lookback_of
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import Folding
from torpor.records.blocks import Block, text_block
from torpor.turn.earlier import Exchanges

_MARGIN_TOKENS: Final = 32
"""What stands around blocks, and what is lost in rounding."""


def quoted(
    state: ConversationState,
    exchanges: Exchanges,
    *,
    said: tuple[Block, ...],
    preamble_bytes: int,
    folding: Folding,
) -> Lookback:
    """The last of ``exchanges`` that fit beside the request as it would be without them.

    Args: said: what else the turn begins with, notes and the messages among it.  preamble_bytes: of the turn.
    """
    if not exchanges:
        return Lookback()
    said_bytes = state.view.size_bytes + sum(len(memoryview(block)) + 1 for block in said)
    room_bytes = _room_bytes(state, said_bytes=said_bytes, preamble_bytes=preamble_bytes, folding=folding)
    lookback = lookback_of(exchanges, bytes_max=room_bytes)
    while lookback.turns and (over := len(memoryview(text_block(lookback.text))) - room_bytes) > 0:
        # As JSON it is longer, by every line break and quotation mark.
        lookback = lookback_of(exchanges, bytes_max=len(lookback.text.encode()) - over)
    return lookback


def _room_bytes(state: ConversationState, *, said_bytes: int, preamble_bytes: int, folding: Folding) -> int:
    window, share = folding.window, folding.options.threshold_share
    ratio = window.bytes_per_token
    grown_bytes = preamble_bytes - state.preamble.size_bytes
    tokens = next_request_tokens(state, said_bytes + grown_bytes, bytes_per_token=ratio)
    threshold_tokens = min(share * window.budget_tokens, window.limit_tokens)
    room_bytes = math.floor((threshold_tokens - tokens - _MARGIN_TOKENS) * ratio)
    if window.conversation_tokens:
        left_tokens = window.conversation_tokens - tokens_of_bytes(said_bytes) - _MARGIN_TOKENS
        room_bytes = min(room_bytes, left_tokens * BYTES_PER_TOKEN)
    return max(room_bytes, 0)
