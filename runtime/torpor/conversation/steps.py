"""What a conversation does next: one pure decision for ordinary progress, cancellation and recovery alike.

The actor performs steps until ``Rest``. A step that acts on the outside counts its attempts in the journal, so a step
that keeps killing its process is given up, not repeated for ever.
"""

from enum import StrEnum
from typing import Final, TypeAlias, assert_never

import msgspec

from torpor.conversation.budget import head_bytes, next_request_tokens, pending_bytes
from torpor.conversation.compaction import Overflow, Window, next_fold
from torpor.conversation.joining import joining
from torpor.conversation.state import PAUSED, ConversationState, TurnState
from torpor.conversation.summary import CompactionOptions
from torpor.records.bounds import Amount, Count
from torpor.records.ids import CallId, MessageId
from torpor.records.terms import FoldReason, WhenBusy


class Lane(StrEnum):
    """What may run side by side in one conversation; each lane is asked for its own next step."""

    TURN = "turn"


class StepOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of a turn."""

    step_limit: Count = 25
    """Model calls in one turn; the next one ends it as failed."""
    attempts_max: Count = 3
    """Attempts at one step, crashes in between, before the turn ends as failed."""
    cuts_max: Amount = 2
    """Replies in one turn whose tool calls the output limit cut off; one more ends it as failed."""
    pauses_max: Amount = 8
    """Replies in one turn that the model's host paused; one more ends it as failed."""


class Folding(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's requests may take, and how its history is folded."""

    window: Window = Window()
    options: CompactionOptions = CompactionOptions()


NEVER: Final = Folding()


class PrepareTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Begin a turn with these waiting messages."""

    turn: int
    messages: tuple[MessageId, ...]


class CallModel(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the model; ``joined`` steer the turn and enter the view with this call. Others may have to wait: see
    ``joining``."""

    turn: int
    round: int
    attempt: int
    joined: tuple[MessageId, ...] = ()
    not_before_us: int = 0
    """UTC, microseconds: a call that failed is asked again then; 0 for at once."""


class Compact(msgspec.Struct, frozen=True, kw_only=True):
    """Replace a part of the view before the model is asked."""

    turn: int
    round: int
    attempt: int
    reason: FoldReason
    tokens: int
    """Of the next request, estimated."""


class RunTools(msgspec.Struct, frozen=True, kw_only=True):
    """Settle these calls; those already started were interrupted by a crash."""

    turn: int
    round: int
    attempt: int
    calls: tuple[CallId, ...]


class TurnEnd(StrEnum):
    """How a turn ends by decision of the core; a client's cancel comes from outside it."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    """A message asked to be next."""
    FAILED = "failed"
    REFUSED = "refused"
    """The model refused to answer."""


class FinishTurn(msgspec.Struct, frozen=True, kw_only=True):
    """End the turn."""

    turn: int
    end: TurnEnd
    code: str = ""
    detail: str = ""


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing to do until somebody asks."""


REFUSAL: Final = "refusal"
"""The reason to stop of a reply that says no; whatever it had said until then is dropped."""

Step: TypeAlias = PrepareTurn | Compact | CallModel | RunTools | FinishTurn | Rest


def next_step(
    state: ConversationState, lane: Lane, options: StepOptions, now_us: int, *, folding: Folding = NEVER
) -> Step:
    """The one thing to do now; total over every state that a fold can reach.

    Args: now_us: UTC, microseconds.  folding: what the running turn's agent may spend; without it nothing is folded.
    """
    del lane
    turn = state.turn
    if turn is None:
        if not state.queued:
            return Rest()
        return PrepareTurn(turn=state.turns + 1, messages=(state.queued[0].id,))
    if any(message.when_busy is WhenBusy.INTERRUPT for message in state.queued):
        return FinishTurn(turn=turn.number, end=TurnEnd.INTERRUPTED)
    step = _next_in_turn(state, turn, options)
    return (
        _folded_first(state, step, options=options, folding=folding, now_us=now_us)
        if isinstance(step, CallModel)
        else step
    )


def _folded_first(
    state: ConversationState, step: CallModel, *, options: StepOptions, folding: Folding, now_us: int
) -> Step:
    """What has to happen to the view before the model is asked; the step itself when nothing has.

    A call that was lost is asked again as it was, unless its host said that it does not fit, or the view was replaced
    since, after which it may still be too long.
    """
    turn = state.turn
    assert turn is not None, "the model is asked within a turn"
    if turn.call and not turn.is_too_long and state.is_measured:
        return step
    if step.joined:  # not where a fold, which may be for their sake, keeps killing its process
        joined = joining(state, window=folding.window) if turn.folds_begun < options.attempts_max else ()
        step = msgspec.structs.replace(step, joined=joined)
    view_bytes = state.view.weight_bytes + pending_bytes(state, step.joined)
    tokens = next_request_tokens(state, view_bytes, bytes_per_token=folding.window.bytes_per_token)
    fold = next_fold(
        state,
        turn,
        tokens=tokens,
        view_bytes=view_bytes,
        window=folding.window,
        options=folding.options,
        now_us=now_us,
    )
    match fold:
        case None:
            return step
        case Overflow():
            detail = _too_long(state, tokens=tokens, window=folding.window)
            return FinishTurn(turn=turn.number, end=TurnEnd.FAILED, code=fold.value, detail=detail)
        case FoldReason() if fold is not FoldReason.SUMMARY and turn.folds_begun >= options.attempts_max:
            detail = f"folding older turns did not survive {turn.folds_begun} attempts"
            return FinishTurn(turn=turn.number, end=TurnEnd.FAILED, code="crashed", detail=detail)
        case FoldReason():
            return Compact(turn=turn.number, round=step.round, attempt=turn.folds_begun + 1, reason=fold, tokens=tokens)
        case _:
            assert_never(fold)


def _too_long(state: ConversationState, *, tokens: int, window: Window) -> str:
    """How much it is, of what, and how much would fit."""
    fixed, head = (round(size / window.bytes_per_token) for size in (state.preamble.size_bytes, head_bytes(state)))
    parts = f"{fixed} for prompt, tools and index of skills, {head} for what stands for folded turns"
    return f"the request has about {tokens} tokens, {window.limit_tokens} fit; of them {parts}"


def _next_in_turn(state: ConversationState, turn: TurnState, options: StepOptions) -> Step:
    open_calls = turn.open_calls
    if (turn.call or open_calls) and turn.attempts >= options.attempts_max:
        what = "a model call" if turn.call else f"tools {', '.join(sorted({call.name for call in open_calls}))}"
        detail = f"{what} of round {turn.round} did not survive {turn.attempts} attempts"
        return FinishTurn(turn=turn.number, end=TurnEnd.FAILED, code="crashed", detail=detail)
    if open_calls:
        return RunTools(
            turn=turn.number,
            round=turn.round,
            attempt=turn.attempts + 1,
            calls=tuple(call.id for call in open_calls),
        )
    if turn.call:
        return CallModel(turn=turn.number, round=turn.round, attempt=turn.attempts + 1, not_before_us=turn.retry_at_us)
    joined = tuple(message.id for message in state.queued if message.when_busy is WhenBusy.STEER)
    if turn.reply is not None and (end := _end_by_reply(turn, options)) is not None:
        return end
    if turn.round >= options.step_limit:
        detail = f"{turn.round} model calls in one turn, the limit is {options.step_limit}"
        return FinishTurn(turn=turn.number, end=TurnEnd.FAILED, code="step_limit", detail=detail)
    return CallModel(turn=turn.number, round=turn.round + 1, attempt=1, joined=joined)


CUT_SHORT: Final = frozenset({"max_tokens", "model_context_window_exceeded"})
"""Reasons to stop of a reply that a limit cut off."""
_KNOWN: Final = frozenset({"end_turn", "stop_sequence", "tool_use", PAUSED}) | CUT_SHORT
"""Reasons to stop that mean something here; after any other a reply is no answer."""


def _end_by_reply(turn: TurnState, options: StepOptions) -> FinishTurn | None:
    """How the last reply ends the turn; None when the model is to be asked again."""
    if turn.calls:
        return None
    if turn.stop_reason == REFUSAL:
        return FinishTurn(turn=turn.number, end=TurnEnd.REFUSED, code="refused")
    if turn.stop_reason == PAUSED and turn.pauses <= options.pauses_max:
        return None
    if turn.note and turn.cuts <= options.cuts_max and turn.stop_reason in _KNOWN:
        return None
    code, detail = "", ""
    if turn.stop_reason == PAUSED:
        code, detail = "paused_too_often", f"the host paused {turn.pauses} times, the limit is {options.pauses_max}"
    elif turn.stop_reason not in _KNOWN:
        code, detail = "unknown_stop_reason", f"the host stopped for {turn.stop_reason!r}, which is not known"
    elif turn.note:
        code, detail = "output_limit", f"{turn.cuts} replies were cut off in the middle of a tool call"
    elif turn.stop_reason in CUT_SHORT and not turn.reply:
        code, detail = "output_limit", f"the reply was cut off ({turn.stop_reason}) before it said anything"
    end = TurnEnd.FAILED if code else TurnEnd.FINISHED
    return FinishTurn(turn=turn.number, end=end, code=code, detail=detail)
