"""What a conversation was offered lately: preambles and flags that a turn may go back to by naming their digest.

A flag that is switched to and fro, or a file that is edited and restored, would otherwise store the same text with
every turn. What is remembered is part of the fold, so whoever has the journal knows what a digest stands for; what was
forgotten is stored again.
"""

from typing import Final

import msgspec

from torpor.conversation.state import ConversationState
from torpor.conversation.view import Preamble
from torpor.records.journal import PreambleChanged, PreambleReturned

PREAMBLES_MAX: Final = 3
"""Beside the one in use: two flags that flap by themselves make four. Each is whole in the state and in snapshots."""
FLAGS_MAX: Final = 7
"""Likewise, of digests alone: three flags that flap by themselves make eight."""


def preamble_record(state: ConversationState, preamble: Preamble) -> PreambleChanged | PreambleReturned:
    """What makes ``preamble`` the one in use: its text where it is not remembered."""
    if remembered(state, preamble.digest) is not None:
        return PreambleReturned(digest=preamble.digest)
    return PreambleChanged(digest=preamble.digest, body=preamble.body)


def remembered(state: ConversationState, digest: str) -> Preamble | None:
    """The preamble of this digest that was in use lately."""
    return next((each for each in state.preambles if each.digest == digest), None)


def with_preamble(state: ConversationState, preamble: Preamble) -> ConversationState:
    """It is in use; the one before is remembered, and the least recently used one beyond the bound is not."""
    others = [each for each in (*state.preambles, state.preamble) if each.digest not in ("", preamble.digest)]
    return msgspec.structs.replace(state, preamble=preamble, preambles=tuple(others[-PREAMBLES_MAX:]))


def with_flags(state: ConversationState, digest: str) -> ConversationState:
    """They are pinned; those before are remembered likewise."""
    others = [each for each in (*state.flags, state.flags_digest) if each not in ("", digest)]
    return msgspec.structs.replace(state, flags_digest=digest, flags=tuple(others[-FLAGS_MAX:]))
