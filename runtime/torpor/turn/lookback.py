"""How much of the exchanges that a message asks to have quoted there is room for. Pure.

Above: ``opening``, which has what fits put into the blocks for one turn alone. A quotation never makes a request worth
folding: it takes what is left below that line, and below the profile's allotment for the conversation.
"""

import math
from typing import Final

from torpor.conversation.budget import BYTES_PER_TOKEN, next_request_tokens, pending_bytes, tokens_of_bytes
from torpor.conversation.quoting import Lookback, lookback_of
from torpor.conversation.steps import Folding
from torpor.records.blocks import text_block
from torpor.turn.earlier import Exchanges
from torpor.turn.foresight import Foreseen

_MARGIN_TOKENS: Final = 32
"""What stands around blocks, and what is lost in rounding."""


def quoted(ahead: Foreseen, exchanges: Exchanges, *, folding: Folding) -> Lookback:
    """The last of ``exchanges`` that fit beside the first request of the turn as it would be without them."""
    if not exchanges:
        return Lookback()
    said_bytes = ahead.state.view.weight_bytes + pending_bytes(ahead.state, ahead.joined)
    note_bytes = _room_bytes(ahead, said_bytes, folding=folding)
    room_bytes = note_bytes
    if folding.window.conversation_tokens:
        left_tokens = folding.window.conversation_tokens - tokens_of_bytes(said_bytes) - _MARGIN_TOKENS
        room_bytes = min(room_bytes, max(left_tokens, 0) * BYTES_PER_TOKEN)
    lookback = lookback_of(exchanges, bytes_max=room_bytes, note_bytes_max=note_bytes)
    while lookback.turns and (over := len(memoryview(text_block(lookback.text))) - room_bytes) > 0:
        # As JSON it is longer, by every line break and quotation mark.
        shorter_bytes = len(lookback.text.encode()) - over
        lookback = lookback_of(exchanges, bytes_max=shorter_bytes, note_bytes_max=note_bytes)
    return lookback


def _room_bytes(ahead: Foreseen, said_bytes: int, *, folding: Folding) -> int:
    """Below the line for folding with the summary that is expected, and what fits at all with the longest one."""
    window, share = folding.window, folding.options.threshold_share
    ratio = window.bytes_per_token
    tokens = next_request_tokens(ahead.state, said_bytes, bytes_per_token=ratio)
    limit_tokens = window.limit_tokens - ahead.growth_bytes / ratio
    threshold_tokens = min(share * window.budget_tokens, limit_tokens)
    return max(math.floor((threshold_tokens - tokens - _MARGIN_TOKENS) * ratio), 0)
