"""What becomes of a model call, as records: one defined answer to every reply and to every fault. Pure.

A fault is met by asking again only while nothing of the reply was shown and the host's trouble may pass, or once when
the request was too long and can be made shorter; the pause, and the fallback model after some failures, are on record.
Otherwise the turn fails where people can see it, what was said is kept as partial, and the client is offered what can
be done about it.
"""

import hashlib
from typing import Final

from torpor.conversation.retry import RetryOptions, pause_s
from torpor.conversation.state import TurnState
from torpor.errors import Retry
from torpor.model.contract import ModelReply
from torpor.provider_errors import (
    AttachmentNotTaken,
    AttachmentsUnavailable,
    ContextTooLong,
    ProviderError,
    RequestInvalid,
    RequestTooLarge,
)
from torpor.records.blocks import Block, head_of
from torpor.records.ids import ConversationKey
from torpor.records.journal import ModelFailed, ModelReplied, TurnFailed
from torpor.records.terms import Offer
from torpor.turn import notes
from torpor.turn.storable import was_cut

_MICROSECONDS: Final = 1_000_000
_STORAGE_WAIT_S: Final = 45.0
"""In a turn, for files that cannot be read: the call with which it is over is the last."""


def replied(turn: TurnState, reply: ModelReply) -> ModelReplied:
    """The record of a complete reply that was made storable."""
    return ModelReplied(
        turn=turn.number,
        call=turn.call,
        round=turn.round,
        blocks=reply.blocks,
        stop_reason=reply.stop_reason,
        usage=reply.usage,
        model=reply.model,
        request_id=reply.request_id,
        unusable={head_of(reply.blocks[place]).id: why for place, why in reply.unusable.items()},
        dropped=reply.dropped,
        note=(notes.calls_cut(reply.stop_reason),) if was_cut(reply) else (),
    )


def failed(
    turn: TurnState,
    fault: ProviderError,
    *,
    key: ConversationKey,
    was_shown: bool,
    fallback: str,
    can_shrink: bool = False,
    is_without_files: bool = False,
    options: RetryOptions,
    now_us: int,
) -> ModelFailed:
    """The record of a call that gave no reply; it says whether and when it is asked again, and of which model.

    Args: can_shrink: whether something can be done about a request that is too long.  is_without_files: whether the
        files that it speaks of are taken out, and what is left is asked again.
    """
    pause = None
    if fault.retry is Retry.SAFE and not was_shown and not _waited_enough(turn, fault):
        jitter = _jitter(key, turn.call)
        pause = pause_s(options, failures=turn.failures, retry_after_s=fault.retry_after_s, jitter=jitter)
    is_once = isinstance(fault, ContextTooLong) and can_shrink and not turn.was_too_long and not was_shown
    is_without = is_without_files and not was_shown
    if is_once or is_without:
        pause = 0.0  # the view is made smaller first
    falls_back = (
        not (is_once or is_without) and fallback and not turn.model and turn.failures + 1 >= options.fallback_after
    )
    return ModelFailed(
        turn=turn.number,
        call=turn.call,
        round=turn.round,
        code=fault.code,
        detail=str(fault),
        retry_at_us=0 if pause is None else now_us + round(pause * _MICROSECONDS),
        next_model=fallback if falls_back and pause is not None else "",
    )


def _waited_enough(turn: TurnState, fault: ProviderError) -> bool:
    """A storage that lets everybody wait until a deadline is asked twice; one that refuses at once, as others are."""
    return isinstance(fault, AttachmentsUnavailable) and (turn.failures + 1) * fault.waited_s > _STORAGE_WAIT_S


def told(fault: ProviderError, *, is_of_file: bool) -> ProviderError:
    """What went wrong, in the words for it: a host may speak of documents where a request has none."""
    if isinstance(fault, AttachmentNotTaken) and not is_of_file:
        return RequestInvalid(str(fault))
    return fault


def given_up(turn: TurnState, fault: ProviderError, *, partial: tuple[Block, ...]) -> TurnFailed:
    """The end of a turn whose model call is not asked again."""
    offers = (Offer.CONTINUE,) if partial else ()
    if not isinstance(fault, ContextTooLong | RequestTooLarge | RequestInvalid):
        offers = (*offers, Offer.RETRY)
    return TurnFailed(
        turn=turn.number,
        code=fault.code,
        detail=str(fault),
        note=notes.turn_failed(fault.code),
        partial=partial,
        offers=offers,
    )


def offers_after(code: str) -> tuple[Offer, ...]:
    """What the client is offered when the core itself has ended the turn as failed, by the code it gives."""
    return _OFFERS.get(code, ())


_OFFERS: Final = {
    "step_limit": (Offer.CONTINUE,),
    "paused_too_often": (Offer.CONTINUE,),
    "unknown_stop_reason": (Offer.CONTINUE, Offer.RETRY),
    "output_limit": (Offer.RETRY,),
    "crashed": (Offer.RETRY,),
}


def _jitter(key: ConversationKey, call: str) -> float:
    """0 up to 1: the same for the same call, spread over conversations, and drawn from no generator."""
    return int.from_bytes(hashlib.sha256(f"{key.path}\0{call}".encode()).digest()[:4]) / 2**32
