"""Numbers for new records, and the message behind them: they follow from the state, so the one writer gives them before
anything is written."""

from collections.abc import Iterable
from typing import Any

import msgspec

from torpor.conversation.state import ConversationState
from torpor.records.ids import NO_MESSAGE
from torpor.records.journal import PUBLIC_RECORDS, JournalRecord, SubagentFinished, TurnPrepared


def numbered(state: ConversationState, drafts: Iterable[JournalRecord], *, at_us: int) -> tuple[JournalRecord, ...]:
    """``drafts`` with the sequence, event number, time and cause they get when they follow ``state``."""
    seq, event = state.seq, state.event
    records: list[JournalRecord] = []
    cause = next(iter(state.turn.messages), NO_MESSAGE) if state.turn is not None else NO_MESSAGE
    causes = {child.child: child.cause for child in state.children}
    for draft in drafts:
        seq += 1
        is_public = isinstance(draft, PUBLIC_RECORDS)
        event += is_public
        known = cause if is_public and draft.turn else NO_MESSAGE
        if isinstance(draft, SubagentFinished):
            known = causes.get(draft.child, cause)  # its turn may be over
        if isinstance(draft, TurnPrepared):
            cause, known = next(iter(draft.messages), NO_MESSAGE), NO_MESSAGE  # it names them itself
        numbers: dict[str, Any] = {"seq": seq, "event": event if is_public else 0, "cause": known}
        records.append(msgspec.structs.replace(draft, at_us=at_us, **numbers))
    return tuple(records)
