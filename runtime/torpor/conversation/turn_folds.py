"""What becomes of a state while a turn runs: a function for each kind of record, from its preparation to its end.

Above: ``fold``, which calls them. Each takes a state and gives the next, or raises ``BadHistory``.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from torpor.conversation.budget import tokens_of
from torpor.conversation.replacing import replaced
from torpor.conversation.retracting import uncounted
from torpor.conversation.segments import TurnStart
from torpor.conversation.state import (
    LOST_CALLS_MAX,
    PAUSED,
    RECENT_MAX,
    BadHistory,
    CallState,
    CallStatus,
    ChildState,
    ConversationState,
    EndedTurn,
    LoadedSkill,
    QueuedMessage,
    TurnState,
)
from torpor.conversation.view import View
from torpor.provider_errors import ContextTooLong
from torpor.records.blocks import Block, head_of
from torpor.records.ids import CallId, MessageId
from torpor.records.journal import (
    FOLD_CUT,
    AttemptStarted,
    CompactionFailed,
    ContextReplaced,
    LateResult,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    Record,
    SkillLoaded,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import Effect, Outcome, StepKind, WhenBusy


def _turn_prepared(state: ConversationState, record: TurnPrepared) -> ConversationState:
    if state.turn is not None:
        raise BadHistory(f"record {record.seq} begins turn {record.turn} while turn {state.turn.number} runs")
    if record.turn != state.turns + 1:
        raise BadHistory(f"record {record.seq} begins turn {record.turn}, the last one was {state.turns}")
    taken, rest = taken_from(state.queued, record.messages, f"record {record.seq}")
    kept = state.view.extended("user", (*state.notes, *record.signal, *_said(taken)))
    turn = TurnState(
        number=record.turn,
        messages=record.messages,
        principal=taken[-1].principal,
        began_us=record.at_us,
        base=state.view,
        base_notes=state.notes,
        base_skills=state.skills,
        base_starts=state.starts,
        live=_live_of(state, record),
        kept=kept if record.turn_only else None,
        lasting_bytes=kept.size_bytes if record.turn_only else 0,
        signal_bytes=_size_bytes(record.signal),
        turn_only_bytes=_size_bytes(record.turn_only),
        sections=record.sections,
    )
    start = TurnStart(record.turn, record.seq, state.view.size_bytes, len(taken))
    return msgspec.structs.replace(
        state,
        turns=record.turn,
        turn=turn,
        ended=None,
        queued=rest,
        starts=(*state.starts, start),
        recent=(*state.recent, record.seq)[-RECENT_MAX:],
        said=state.said + len(taken),
        messages=state.messages + len(taken),
        notes=(),
        view=kept.extended("user", record.turn_only) if record.turn_only else kept,
        context_told=0,
        context_us=record.at_us if record.signal else state.context_us,
    )


def _size_bytes(blocks: Iterable[Block]) -> int:
    return sum(len(bytes(block)) for block in blocks)


def taken_from(
    queued: tuple[QueuedMessage, ...], ids: tuple[MessageId, ...], what: str
) -> tuple[list[QueuedMessage], tuple[QueuedMessage, ...]]:
    by_id = {message.id: message for message in queued}
    if not ids or not set(ids) <= by_id.keys():
        raise BadHistory(f"{what} takes messages {ids!r}, waiting are {tuple(by_id)!r}")
    return [by_id[id_] for id_ in ids], tuple(message for message in queued if message.id not in ids)


def _attempt_started(state: ConversationState, record: AttemptStarted) -> ConversationState:
    turn = _running(state, record)
    if record.step is StepKind.COMPACT:
        return msgspec.structs.replace(state, turn=msgspec.structs.replace(turn, folds_begun=record.attempt))
    return msgspec.structs.replace(state, turn=msgspec.structs.replace(turn, attempts=record.attempt))


def requested_view(state: ConversationState, joined: tuple[MessageId, ...]) -> View:
    """What the model sees when it is asked now: the open round closed, then the messages that join."""
    if state.turn is None:
        raise BadHistory("the model is asked outside a turn")
    return _asked(state, state.turn, joined, f"request after record {state.seq}")[0]


def _asked(
    state: ConversationState, turn: TurnState, joined: tuple[MessageId, ...], what: str
) -> tuple[View, list[QueuedMessage], tuple[QueuedMessage, ...]]:
    view = _round_closed(state.view, turn, what)
    if not joined:
        return view, [], state.queued
    taken, rest = taken_from(state.queued, joined, what)
    return view.extended("user", _said(taken)), taken, rest


def _said(messages: Iterable[QueuedMessage]) -> list[Block]:
    return [block for message in messages for block in message.blocks]


def _kept(turn: TurnState, taken: Iterable[QueuedMessage], what: str) -> View | None:
    """The view without what is for this turn alone, grown like the view itself."""
    if turn.kept is None:
        return None
    kept = _round_closed(turn.kept, turn, what)
    return kept.extended("user", said) if (said := _said(taken)) else kept


def _model_requested(state: ConversationState, record: ModelRequested) -> ConversationState:
    turn = _running(state, record)
    if record.round != turn.round + (not turn.call):
        raise BadHistory(f"record {record.seq} asks for round {record.round}, the last one was {turn.round}")
    if record.preamble != state.preamble.digest:
        raise BadHistory(f"record {record.seq} names preamble {record.preamble}, it is {state.preamble.digest}")
    view, taken, rest = _asked(state, turn, record.joined, f"record {record.seq}")
    if record.link != view.link.hex():
        raise BadHistory(f"record {record.seq} requested link {record.link}, the view has {view.link.hex()}")
    if record.live != digest_of(turn.live):
        raise BadHistory(f"record {record.seq} names live context {record.live!r}, it is {digest_of(turn.live)!r}")
    is_again = record.round == turn.round
    requested = msgspec.structs.replace(
        turn,
        messages=(*turn.messages, *record.joined),
        principal=taken[-1].principal if taken else turn.principal,
        round=record.round,
        call=record.call,
        attempts=max(turn.attempts, 1) if is_again else 1,
        asked=turn.asked + 1 if is_again else 1,
        retry_at_us=0,
        model=record.model,
        kept=_kept(turn, taken, f"record {record.seq}"),
        reply=None,
        stop_reason="",
        calls=(),
        note=(),
    )
    asked = msgspec.structs.replace(state, view=view, queued=rest, turn=requested)
    return _counted(asked, len(taken)) if taken else asked


def _counted(state: ConversationState, messages: int) -> ConversationState:
    """The turn that began last has so many messages more."""
    *before, last = state.starts
    grown = msgspec.structs.replace(last, messages=last.messages + messages)
    return msgspec.structs.replace(
        state, starts=(*before, grown), messages=state.messages + messages, said=state.said + messages
    )


def _round_closed(view: View, turn: TurnState, what: str) -> View:
    """The view with the open round's reply and results in it, in the model's order of calls."""
    if not (turn.reply or turn.calls or turn.note):
        return view
    if turn.open_calls:
        raise BadHistory(f"{what} leaves calls {tuple(call.id for call in turn.open_calls)!r} open")
    if turn.reply:
        view = view.extended("assistant", turn.reply)
    said = [call.result for call in turn.calls if call.result is not None]
    said.extend(turn.note)
    return view.extended("user", said) if said else view


def _model_replied(state: ConversationState, record: ModelReplied) -> ConversationState:
    turn = _running(state, record)
    if record.call != turn.call:
        raise BadHistory(f"record {record.seq} replies to call {record.call!r}, open is {turn.call!r}")
    calls = tuple(
        CallState(
            id=CallId(head.id),
            name=head.name,
            arguments=msgspec.Raw(bytes(head.input)),
            unusable=record.unusable.get(head.id, ""),
        )
        for head in map(head_of, record.blocks)
        if head.type == "tool_use"
    )
    replied = msgspec.structs.replace(
        turn,
        call="",
        attempts=0,
        reply=record.blocks,
        stop_reason=record.stop_reason,
        calls=calls,
        note=record.note,
        cuts=turn.cuts + bool(record.note),
        pauses=turn.pauses + (record.stop_reason == PAUSED),
        last_resort=None,
        was_too_long=False,
    )
    usage, measured_bytes = record.usage, state.preamble.size_bytes + state.view.weight_bytes
    if record.dropped:
        # What was left out is in no later request, yet was counted with the rest of the reply.
        usage = msgspec.structs.replace(usage, output_tokens=0)
    else:
        measured_bytes += sum(len(bytes(block)) for block in record.blocks)
    return msgspec.structs.replace(
        state, turn=replied, last_usage=usage, measured_bytes=measured_bytes, is_measured=True
    )


def _model_failed(state: ConversationState, record: ModelFailed) -> ConversationState:
    """One that is asked again is no attempt that a crash interrupted: its end is on record."""
    turn = _running(state, record)
    if record.call != turn.call:
        raise BadHistory(f"record {record.seq} tells the failure of call {record.call!r}, open is {turn.call!r}")
    if not record.retry_at_us:
        return state
    again = msgspec.structs.replace(
        turn,
        attempts=0,
        failures=turn.failures + 1,
        retry_at_us=record.retry_at_us,
        model=record.next_model or turn.model,
        is_too_long=record.code == ContextTooLong.code,
    )
    return msgspec.structs.replace(state, turn=again)


def _tool_started(state: ConversationState, record: ToolStarted) -> ConversationState:
    turn = _running(state, record)
    call = _call(turn, record.call_id, record)
    key = record.idempotency_key
    started = msgspec.structs.replace(call, status=CallStatus.STARTED, effect=record.effect, idempotency_key=key)
    return _with_call(state, turn, started, attempts=max(turn.attempts, 1))


def _tool_finished(state: ConversationState, record: ToolFinished) -> ConversationState:
    turn = _running(state, record)
    call = _call(turn, record.call_id, record)
    settled = msgspec.structs.replace(
        call, status=CallStatus.SETTLED, outcome=record.outcome, result=record.block, arguments=msgspec.Raw(b"{}")
    )
    if call.status is CallStatus.STARTED and call.effect is Effect.WRITE:
        turn = msgspec.structs.replace(turn, executed=(*turn.executed, f"{call.name} ({record.outcome.value})"))
    state = _with_call(state, turn, settled, attempts=turn.attempts)
    if record.outcome is not Outcome.UNKNOWN:
        return state
    return msgspec.structs.replace(state, lost_calls=(*state.lost_calls, record.call_id)[-LOST_CALLS_MAX:])


def _call(turn: TurnState, call_id: CallId, record: Record) -> CallState:
    for call in turn.open_calls:
        if call.id == call_id:
            return call
    raise BadHistory(f"record {record.seq} speaks of call {call_id!r}, which is not open")


def _with_call(state: ConversationState, turn: TurnState, new: CallState, *, attempts: int) -> ConversationState:
    calls = tuple(new if call.id == new.id else call for call in turn.calls)
    return msgspec.structs.replace(state, turn=msgspec.structs.replace(turn, calls=calls, attempts=attempts))


def digest_of(live: Block | None) -> str:
    """sha256 of a live context's block, hex; empty for none."""
    return hashlib.sha256(bytes(live)).hexdigest() if live is not None else ""


def _live_of(state: ConversationState, record: TurnPrepared) -> Block | None:
    """What the turn says its requests hold."""
    if record.live not in (0, state.live.seq):
        raise BadHistory(f"record {record.seq} uses the live context of record {record.live}, it is {state.live.seq}")
    return state.live.block[0] if record.live else None


def _context_replaced(state: ConversationState, record: ContextReplaced) -> ConversationState:
    turn = _running(state, record)
    if not any(start.turn == record.kept_from for start in state.starts):
        raise BadHistory(f"record {record.seq} keeps the view from turn {record.kept_from}, which does not begin in it")
    after = replaced(state, turn, record)
    if record.link != after.view.link.hex():
        raise BadHistory(f"record {record.seq} leaves link {record.link}, the view has {after.view.link.hex()}")
    return after


def _compaction_failed(state: ConversationState, record: CompactionFailed) -> ConversationState:
    turn = msgspec.structs.replace(_running(state, record), folds_begun=0, has_fold_failed=True)
    if record.code == FOLD_CUT:
        return msgspec.structs.replace(state, turn=turn)
    return msgspec.structs.replace(state, turn=turn, fold_failures=state.fold_failures + 1, fold_failed_us=record.at_us)


def _skill_loaded(state: ConversationState, record: SkillLoaded) -> ConversationState:
    _running(state, record)
    others = tuple(skill for skill in state.skills if skill.key != record.skill)
    loaded = LoadedSkill(
        key=record.skill, digest=record.digest, allowed_tools=record.allowed_tools, call_id=record.call_id
    )
    return msgspec.structs.replace(state, skills=(*others, loaded))


def _subagent_started(state: ConversationState, record: SubagentStarted) -> ConversationState:
    call = _call(_running(state, record), record.call_id, record)
    if call.status is not CallStatus.STARTED:
        raise BadHistory(f"record {record.seq} starts a sub-agent of call {record.call_id!r}, which is not running")
    if any(child.child == record.child for child in state.children):
        raise BadHistory(f"record {record.seq} starts sub-agent {record.child!r}, which is running")
    child = ChildState(
        call_id=record.call_id,
        name=record.name,
        child=record.child,
        turn=record.turn,
        cause=record.cause,
        told_as=record.told_as,
    )
    return msgspec.structs.replace(state, children=(*state.children, child))


def _subagent_finished(state: ConversationState, record: SubagentFinished) -> ConversationState:
    """Its turn may be over: one that is cancelled does not wait for it."""
    ended = (record.call_id, record.name, record.child, record.turn, record.told_as)
    left = tuple(
        each for each in state.children if (each.call_id, each.name, each.child, each.turn, each.told_as) != ended
    )
    if len(left) == len(state.children):
        raise BadHistory(
            f"record {record.seq} ends sub-agent {record.child!r} of call {record.call_id!r} in turn {record.turn}, "
            f"running are {tuple(each.child for each in state.children)!r}"
        )
    turn = state.turn
    if turn is not None and turn.number == record.turn:
        turn = msgspec.structs.replace(turn, children_tokens=turn.children_tokens + tokens_of(record.usage))
    return msgspec.structs.replace(state, children=left, turn=turn)


def _late_result(state: ConversationState, record: LateResult) -> ConversationState:
    if record.call_id not in state.lost_calls:
        raise BadHistory(f"record {record.seq} tells the end of call {record.call_id!r}, which was not lost")
    lost = tuple(call_id for call_id in state.lost_calls if call_id != record.call_id)
    return msgspec.structs.replace(state, lost_calls=lost, notes=(*state.notes, record.note))


def _turn_finished(state: ConversationState, record: TurnFinished) -> ConversationState:
    turn = _running(state, record)
    ended = _ended(state, turn)
    state = _counted(_lasting(state, turn), 1)
    over = _turn_over(state, _left_behind(state, turn, f"record {record.seq}"), ())
    return msgspec.structs.replace(over, ended=ended)


def _ended(state: ConversationState, turn: TurnState, *, note: tuple[Block, ...] = ()) -> EndedTurn:
    return EndedTurn(
        number=turn.number,
        messages=turn.messages,
        notes=turn.base_notes,
        note=note,
        skills=None if turn.base_skills == state.skills else turn.base_skills,
        lasting_bytes=state.lasting_bytes,
        executed=turn.executed,
    )


def _lasting(state: ConversationState, turn: TurnState) -> ConversationState:
    return msgspec.structs.replace(state, lasting_bytes=turn.lasting_bytes) if turn.lasting_bytes else state


def _left_behind(state: ConversationState, turn: TurnState, what: str) -> View:
    """The view that a turn leaves: its last round closed, and nothing in it that was for this turn alone."""
    return _round_closed(state.view if turn.kept is None else turn.kept, turn, what)


def _turn_cut(state: ConversationState, record: TurnCancelled | TurnFailed) -> ConversationState:
    """Whatever of the reply was kept stays said; the note waits for the next user message."""
    turn = _running(state, record)
    view = _left_behind(state, turn, f"record {record.seq}")
    if record.partial:
        view = view.extended("assistant", record.partial)
    over = _turn_over(_lasting(state, turn), view, (record.note,))
    over = msgspec.structs.replace(over, ended=_ended(state, turn, note=(record.note,)))
    if isinstance(record, TurnFailed) and not over.queued:  # what waits goes first, and is about something else
        return msgspec.structs.replace(over, offers=record.offers)
    return over


def _turn_refused(state: ConversationState, record: TurnRefused) -> ConversationState:
    """Nothing of the turn stays in the view, nor of what its reply cost; the notes it had taken wait again."""
    turn = _running(state, record)
    _round_closed(state.view, turn, f"record {record.seq}")
    notes = (*turn.base_notes, *state.notes)
    state = msgspec.structs.replace(
        state,
        notes=notes,
        skills=turn.base_skills,
        starts=turn.base_starts,
        messages=sum(start.messages for start in turn.base_starts),
    )
    return _turn_over(uncounted(state), turn.base, (record.note,))


def _turn_over(state: ConversationState, view: View, notes: tuple[Block, ...]) -> ConversationState:
    """Steers that found no further model call wait like any other message."""
    queued = tuple(
        message if message.when_busy is WhenBusy.QUEUE else msgspec.structs.replace(message, when_busy=WhenBusy.QUEUE)
        for message in state.queued
    )
    settled = view.settled(state.turn.base) if state.turn is not None else view
    return msgspec.structs.replace(state, view=settled, turn=None, queued=queued, notes=(*state.notes, *notes))


def _running(state: ConversationState, record: Record) -> TurnState:
    if state.turn is None or state.turn.number != record.turn:
        running = state.turn.number if state.turn else "none"
        raise BadHistory(f"record {record.seq} belongs to turn {record.turn}, running is {running}")
    return state.turn


TURN_FOLDS: Final[dict[type[Record], Callable[[ConversationState, Any], ConversationState]]] = {
    TurnPrepared: _turn_prepared,
    AttemptStarted: _attempt_started,
    ModelRequested: _model_requested,
    ModelReplied: _model_replied,
    ModelFailed: _model_failed,
    ToolStarted: _tool_started,
    ToolFinished: _tool_finished,
    ContextReplaced: _context_replaced,
    CompactionFailed: _compaction_failed,
    SkillLoaded: _skill_loaded,
    SubagentStarted: _subagent_started,
    SubagentFinished: _subagent_finished,
    LateResult: _late_result,
    TurnFinished: _turn_finished,
    TurnCancelled: _turn_cut,
    TurnFailed: _turn_cut,
    TurnRefused: _turn_refused,
}
