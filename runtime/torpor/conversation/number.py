"""Numbers for new records: they follow from the state, so the one writer gives them before anything is written."""

from collections.abc import Iterable

import msgspec

from torpor.conversation.state import ConversationState
from torpor.records.journal import PUBLIC_RECORDS, JournalRecord


def numbered(state: ConversationState, drafts: Iterable[JournalRecord], *, at_us: int) -> tuple[JournalRecord, ...]:
    """``drafts`` with the sequence, event number and time they get when they follow ``state``."""
    seq, event, records = state.seq, state.event, []
    for draft in drafts:
        seq += 1
        is_public = isinstance(draft, PUBLIC_RECORDS)
        event += is_public
        records.append(msgspec.structs.replace(draft, seq=seq, at_us=at_us, event=event if is_public else 0))
    return tuple(records)
