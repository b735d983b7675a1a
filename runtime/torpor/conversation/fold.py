"""State is a fold: from the records of a journal to what the conversation is.

``fold(records[:n])`` is all there is: a snapshot is this state at ``n``, recovery is this fold and nothing else. One
function per family of records; each takes a state and gives the next. Records that contradict what came before raise
``BadHistory``, which quarantines the conversation: a journal is never bent to fit.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from torpor.conversation.lately import remembered, with_flags, with_preamble
from torpor.conversation.retracting import view_before, without_last_turn, without_waiting
from torpor.conversation.state import (
    BadHistory,
    ConversationState,
    LiveState,
    QueuedMessage,
)
from torpor.conversation.turn_folds import TURN_FOLDS, taken_from
from torpor.conversation.view import Preamble
from torpor.records.blocks import UNREADABLE
from torpor.records.context import WorkingContext
from torpor.records.journal import (
    PUBLIC_RECORDS,
    ContextChanged,
    ConversationArchived,
    ConversationCreated,
    ConversationForked,
    ConversationRenamed,
    ConversationUnarchived,
    FlagsPinned,
    FlagsReturned,
    JournalRecord,
    LiveContextFailed,
    LiveContextOrdered,
    LiveContextReplaced,
    MessageReceived,
    MessageRetracted,
    PreambleChanged,
    PreambleReturned,
    Record,
)
from torpor.records.terms import LiveReason, WhenBusy


def fold(state: ConversationState, records: Iterable[JournalRecord]) -> ConversationState:
    """The state after ``records``.

    Raises: BadHistory: a record's number, turn or content contradicts the state before it, or cannot be read.
    """
    for record in records:
        try:
            state = _advanced(_FOLDS[type(record)](state, record), record)
        except UNREADABLE as exc:
            raise BadHistory(f"record {record.seq} cannot be read: {exc}") from exc
    return state


def _advanced(state: ConversationState, record: Record) -> ConversationState:
    if record.seq != state.seq + 1:
        raise BadHistory(f"record {record.seq} follows record {state.seq}")
    event = state.event + isinstance(record, PUBLIC_RECORDS)
    if record.event not in (0, event) or (record.event == 0) == isinstance(record, PUBLIC_RECORDS):
        raise BadHistory(f"record {record.seq} carries event {record.event}, the last event was {state.event}")
    return msgspec.structs.replace(state, seq=record.seq, event=event)


def _created(state: ConversationState, record: ConversationCreated) -> ConversationState:
    if state.seq:
        raise BadHistory(f"record {record.seq} creates a conversation that exists")
    return msgspec.structs.replace(state, created_us=record.at_us, agent=record.agent, title=record.title)


def _renamed(state: ConversationState, record: ConversationRenamed) -> ConversationState:
    return msgspec.structs.replace(state, title=record.title, changes=state.changes + 1)


def _archived(state: ConversationState, record: ConversationArchived | ConversationUnarchived) -> ConversationState:
    is_archived = isinstance(record, ConversationArchived)
    if is_archived is state.is_archived:
        raise BadHistory(f"record {record.seq} leaves the conversation archived or not, as it was")
    return msgspec.structs.replace(state, is_archived=is_archived, changes=state.changes + 1)


def _forked(state: ConversationState, record: ConversationForked) -> ConversationState:
    """What waited there, was ordered there, works there or may still end there is nothing to this one."""
    waiting = tuple(message.id for message in state.queued)
    if state.turn is not None or waiting != record.messages:
        raise BadHistory(f"record {record.seq} forks with {record.messages!r}, waiting are {waiting!r}, or a turn runs")
    live = msgspec.structs.replace(state.live, ordered="")
    return msgspec.structs.replace(
        state, queued=(), offers=(), lost_calls=(), children=(), live=live, is_archived=False
    )


def _received(state: ConversationState, record: MessageReceived) -> ConversationState:
    """Queue in order of arrival; one that interrupts goes before those that wait, after earlier ones that interrupt."""
    message = QueuedMessage(
        id=record.message_id,
        principal=record.principal,
        blocks=record.blocks,
        when_busy=record.when_busy,
        lookback=record.lookback,
    )
    first = len(state.queued)
    if record.when_busy is WhenBusy.INTERRUPT:
        first = sum(queued.when_busy is WhenBusy.INTERRUPT for queued in state.queued)
    queued = (*state.queued[:first], message, *state.queued[first:])
    return msgspec.structs.replace(state, queued=queued, offers=(), changes=0)


def _message_retracted(state: ConversationState, record: MessageRetracted) -> ConversationState:
    if not record.turn:
        taken_from(state.queued, record.messages, f"record {record.seq}")
        return without_waiting(state, record.messages)
    ended = state.ended
    if state.turn is not None or ended is None or (ended.number, ended.messages) != (record.turn, record.messages):
        raise BadHistory(f"record {record.seq} takes back turn {record.turn}, the last one to end was {ended!r}")
    view = view_before(state, ended)
    if record.link != view.link.hex():
        raise BadHistory(f"record {record.seq} leaves link {record.link}, the view has {view.link.hex()}")
    return without_last_turn(state, ended, view=view, note=record.note)


def _preamble_changed(state: ConversationState, record: PreambleChanged) -> ConversationState:
    return with_preamble(state, Preamble(digest=record.digest, body=record.body))


def _preamble_returned(state: ConversationState, record: PreambleReturned) -> ConversationState:
    if (preamble := remembered(state, record.digest)) is None:
        raise BadHistory(f"record {record.seq} returns to preamble {record.digest}, which was not in use lately")
    return with_preamble(state, preamble)


def _context_changed(state: ConversationState, record: ContextChanged) -> ConversationState:
    version = version_of(state, record.context)
    if record.version != version:
        raise BadHistory(f"record {record.seq} gives the context version {record.version}, it is {version}")
    return msgspec.structs.replace(
        state,
        context=record.context,
        context_version=version,
        context_told=state.context_told + 1,
        context_us=record.at_us,
    )


def version_of(state: ConversationState, context: WorkingContext) -> int:
    """The version that the context has once it is ``context``: another one when another record is selected."""
    before = state.context.selection if state.context is not None else None
    return state.context_version + (context.selection != before or not state.context_version)


def _flags_pinned(state: ConversationState, record: FlagsPinned) -> ConversationState:
    return with_flags(state, record.digest)


def _flags_returned(state: ConversationState, record: FlagsReturned) -> ConversationState:
    if record.digest not in state.flags:
        raise BadHistory(f"record {record.seq} returns to flags {record.digest}, which were not pinned lately")
    return with_flags(state, record.digest)


def _live_ordered(state: ConversationState, record: LiveContextOrdered) -> ConversationState:
    live, orders = state.live, state.live.orders + 1
    live = msgspec.structs.replace(live, ordered=record.job, orders=orders, tried_messages=record.messages)
    return msgspec.structs.replace(state, live=live, changes=state.changes + (record.reason is LiveReason.HAND))


def _live_replaced(state: ConversationState, record: LiveContextReplaced) -> ConversationState:
    """Overwrites the one before."""
    live = LiveState(
        block=(record.block,),
        seq=record.seq,
        made_us=record.at_us,
        made_messages=record.messages,
        orders=state.live.orders,
        tried_messages=record.messages,
    )
    return msgspec.structs.replace(state, live=live)


def _live_failed(state: ConversationState, record: LiveContextFailed) -> ConversationState:
    return msgspec.structs.replace(state, live=msgspec.structs.replace(state.live, ordered="", is_failed=True))


_FOLDS: Final[dict[type[Record], Callable[[ConversationState, Any], ConversationState]]] = {
    ConversationCreated: _created,
    ConversationRenamed: _renamed,
    ConversationArchived: _archived,
    ConversationUnarchived: _archived,
    ConversationForked: _forked,
    MessageReceived: _received,
    MessageRetracted: _message_retracted,
    ContextChanged: _context_changed,
    FlagsPinned: _flags_pinned,
    FlagsReturned: _flags_returned,
    PreambleChanged: _preamble_changed,
    PreambleReturned: _preamble_returned,
    LiveContextOrdered: _live_ordered,
    LiveContextReplaced: _live_replaced,
    LiveContextFailed: _live_failed,
    **TURN_FOLDS,
}
