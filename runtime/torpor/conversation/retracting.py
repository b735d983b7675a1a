"""Taking messages back: what may be, and the state without them. Pure.

Above: the fold of the journal, which checks the record against the view that comes of it, and the recorder, which makes
it. Of the turns only the last one can be taken back, and while none runs: whatever came after it stands on it.
"""

from collections.abc import Sequence

import msgspec

from torpor.conversation.segments import before
from torpor.conversation.state import RETRACTED_MAX, ConversationState, EndedTurn
from torpor.conversation.view import View
from torpor.records.blocks import Block
from torpor.records.ids import MessageId
from torpor.records.terms import Usage


def retractable(state: ConversationState, message: MessageId) -> EndedTurn | None:
    """The turn of ``message``, if that can be taken back now."""
    ended = state.ended
    return ended if state.turn is None and ended is not None and message in ended.messages else None


def view_before(state: ConversationState, ended: EndedTurn) -> View:
    """What the model saw before the last turn."""
    start = state.starts[-1]
    assert start.turn == ended.number, "the turn that ended last is the last one in the view"
    return before(state.view, start)


def without_waiting(state: ConversationState, messages: Sequence[MessageId]) -> ConversationState:
    """Without messages that wait."""
    rest = tuple(message for message in state.queued if message.id not in messages)
    return msgspec.structs.replace(state, queued=rest, retracted=_remembered(state, messages))


def without_last_turn(
    state: ConversationState, ended: EndedTurn, *, view: View, note: tuple[Block, ...]
) -> ConversationState:
    """As it was before the turn, but for what came after it, and for ``note``."""
    waiting = list(state.notes)
    for told in ended.note:
        if told in waiting:
            waiting.remove(told)
    starts = state.starts[:-1]
    return msgspec.structs.replace(
        uncounted(state),
        view=view,
        starts=starts,
        messages=sum(start.messages for start in starts),
        notes=(*ended.notes, *waiting, *note),
        skills=state.skills if ended.skills is None else ended.skills,
        lasting_bytes=ended.lasting_bytes,
        offers=(),
        ended=None,
        retracted=_remembered(state, ended.messages),
    )


def uncounted(state: ConversationState) -> ConversationState:
    """Whose last reply has left the view: what it cost, which may be much for what was dropped of it, tells nothing of
    the next request."""
    return msgspec.structs.replace(state, last_usage=Usage(), measured_bytes=0)


def _remembered(state: ConversationState, messages: Sequence[MessageId]) -> tuple[MessageId, ...]:
    return (*state.retracted, *messages)[-RETRACTED_MAX:]
