"""Watchers of a live conversation read the same bytes as those who are shown it again."""

import msgspec
import pytest

from torpor.errors import InvariantBroken
from torpor.gateway.event_text import EncodedEvent, EventTexts, public
from torpor.records.frames import EventFrame
from torpor.records.ids import MessageId
from torpor.records.journal import ConversationCreated, JournalRecord, TurnFinished, TurnPrepared

RECORDS: list[JournalRecord] = [
    TurnPrepared(seq=number, event=number, at_us=5, turn=number, messages=(MessageId(f"m{number}"),))
    if number % 2
    else TurnFinished(seq=number, event=number, at_us=6, turn=number, cause=MessageId("m"))
    for number in range(1, 60)
]


def test_an_event_is_the_same_whether_it_is_live_or_shown_again() -> None:
    texts = EventTexts()
    for record in RECORDS * 2:
        live = EncodedEvent(conversation="c1", epoch=2, event=texts.of(record))
        again = EventFrame(conversation="c1", epoch=2, event=public(record))
        assert msgspec.json.encode(live) == msgspec.json.encode(again)


def test_what_several_watchers_are_told_is_encoded_once() -> None:
    texts = EventTexts()
    first = [texts.of(record) for record in RECORDS[:16]]
    assert all(texts.of(record) is text for record, text in zip(RECORDS, first, strict=False))


def test_a_record_without_a_public_side_is_no_event() -> None:
    with pytest.raises(InvariantBroken, match="ConversationCreated"):
        EventTexts().of(ConversationCreated(seq=1, agent="a"))
