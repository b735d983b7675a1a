"""Small numbered journals for tests of the stores; what the records say matters to nobody here."""

from torpor.records.blocks import text_block
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import (
    ConversationCreated,
    JournalRecord,
    MessageReceived,
    ModelRequested,
    TurnFinished,
)

KEY = ConversationKey("acme", "ann", "c_1")
START_US = 1_700_000_000_000_000


def conversation(number: int) -> ConversationKey:
    """The ``number``-th conversation of the same owner."""
    return ConversationKey("acme", "ann", f"c_{number}")


def created(*, agent: str = "clerk", title: str = "", at_us: int = START_US) -> ConversationCreated:
    """Always record 1."""
    return ConversationCreated(seq=1, at_us=at_us, agent=agent, title=title)


def message(seq: int, *, event: int, text: str = "hello", at_us: int = START_US) -> MessageReceived:
    """A public record whose message id is ``m_<seq>``."""
    return MessageReceived(
        seq=seq,
        at_us=at_us,
        event=event,
        message_id=MessageId(f"m_{seq}"),
        principal="ann",
        blocks=(text_block(text),),
    )


def requested(seq: int, *, at_us: int = START_US) -> ModelRequested:
    """A record without a public side."""
    return ModelRequested(
        seq=seq, at_us=at_us, turn=1, call=f"call_{seq}", round=1, preamble="ab" * 32, link="cd" * 32, sections={}
    )


def finished(seq: int, *, event: int, at_us: int = START_US) -> TurnFinished:
    """A public record."""
    return TurnFinished(seq=seq, at_us=at_us, turn=1, event=event)


def receipt(message_id: str, *, event: int = 1) -> Receipt:
    return Receipt(message_id=MessageId(message_id), event=event, at_us=START_US)


def opening(*, agent: str = "clerk", title: str = "", text: str = "hello") -> tuple[JournalRecord, ...]:
    """Records 1 and 2, event 1."""
    return (created(agent=agent, title=title), message(2, event=1, text=text))
