"""The beginning of a conversation as that of another one: which records those are, and what follows them. Pure.

Above: the directory, which reads the journal and writes the other one. A copy ends before a turn began, so that nothing
runs in it: a turn that was copied half-way would do again what its tools did.
"""

from collections.abc import Iterable, Sequence

import msgspec

from torpor.conversation.fold import fold
from torpor.conversation.number import numbered
from torpor.conversation.state import ConversationState
from torpor.errors import NotForkable
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import (
    ConversationForked,
    ConversationRenamed,
    JournalRecord,
    MessageReceived,
    MessageRetracted,
    ModelRequested,
    TurnPrepared,
)


class ForkConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for."""

    source: ConversationKey
    into: ConversationKey
    before: MessageId
    """Empty for the message that the last turn began with."""
    title: str
    """Empty for the one that the source has."""
    principal: str
    is_operators: bool = False
    """Whether it may be of a conversation that is quarantined."""

    def is_made_by(self, records: Iterable[JournalRecord]) -> bool:
        """Whether ``records`` say that this was done already."""
        return any(
            isinstance(record, ConversationForked)
            and record.source == self.source.conversation
            and self.before in {"", record.before}
            for record in records
        )


def copied(fork: ForkConversation, records: Sequence[JournalRecord], *, now_us: int) -> tuple[JournalRecord, ...]:
    """All records of the other conversation. Args: records: the whole journal of the source, or what there is of it.

    Raises: NotForkable: no turn took the message.
    """
    begun, before = _place(fork, records)
    prefix = tuple(records[: begun.seq - 1])
    state = fold(ConversationState(), prefix)
    forked = ConversationForked(
        source=fork.source.conversation,
        before=before,
        messages=tuple(message.id for message in state.queued),
        principal=fork.principal,
    )
    renamed = (ConversationRenamed(title=fork.title, principal=fork.principal),) if fork.title else ()
    return (*prefix, *numbered(state, (forked, *renamed), at_us=now_us))


def receipts_of(records: Iterable[JournalRecord]) -> dict[MessageId, Receipt]:
    """Those of the messages in ``records``."""
    return {
        record.message_id: Receipt(message_id=record.message_id, event=record.event, at_us=record.at_us)
        for record in records
        if isinstance(record, MessageReceived)
    }


def _place(fork: ForkConversation, records: Iterable[JournalRecord]) -> tuple[TurnPrepared, MessageId]:
    """The turn before which the copy ends, and the message that it was asked for by."""
    begun: list[TurnPrepared] = []
    for record in records:
        match record:
            case TurnPrepared():
                begun.append(record)
                taken: tuple[MessageId, ...] = record.messages
            case ModelRequested():
                taken = record.joined
            case MessageRetracted() if record.turn and not fork.before:
                begun = [turn for turn in begun if turn.turn != record.turn]
                continue
            case _:
                continue
        if fork.before and fork.before in taken:
            return begun[-1], fork.before
    if fork.before or not begun:
        why = f"no turn took message {fork.before!r} yet" if fork.before else "no message was answered in it"
        raise NotForkable(f"conversation {fork.source.conversation!r} cannot be forked there, {why}")
    return begun[-1], begun[-1].messages[0]
