"""What clients hear, by the names they know."""

from typing import get_args

import msgspec
import pytest

from torpor.records.events import AnyEvent, Delta, Event, MessageReceivedEvent, Progress, TurnFinishedEvent
from torpor.records.ids import CallId, MessageId

NAMES = [
    "message.received",
    "message.retracted",
    "conversation.renamed",
    "conversation.archived",
    "conversation.unarchived",
    "conversation.forked",
    "context.changed",
    "turn.started",
    "reply.finished",
    "model.failed",
    "tool.started",
    "tool.finished",
    "context.replaced",
    "compaction.failed",
    "live_context.replaced",
    "live_context.failed",
    "skill.loaded",
    "subagent.started",
    "subagent.finished",
    "research.started",
    "research.finished",
    "tool.late",
    "turn.finished",
    "turn.cancelled",
    "turn.failed",
    "turn.refused",
]


def test_the_names_of_events_stay_what_they_are() -> None:
    assert [kind.__struct_config__.tag for kind in get_args(AnyEvent)] == NAMES
    assert {kind.__struct_config__.tag_field for kind in get_args(AnyEvent)} == {"type"}
    assert all(issubclass(kind, Event) for kind in get_args(AnyEvent))


def test_an_event_is_written_without_what_goes_without_saying() -> None:
    event = MessageReceivedEvent(event=1, at_us=7, message_id=MessageId("m"), principal="ann", text="hi")
    assert msgspec.json.decode(msgspec.json.encode(event)) == {
        "type": "message.received",
        "event": 1,
        "at_us": 7,
        "message_id": "m",
        "principal": "ann",
        "text": "hi",
    }


def test_an_event_is_read_back_as_it_was_and_later_fields_are_ignored() -> None:
    text = b'{"type":"turn.finished","event":3,"at_us":7,"turn":1,"mood":"good"}'
    assert msgspec.json.decode(text, type=AnyEvent) == TurnFinishedEvent(event=3, at_us=7, turn=1)


@pytest.mark.parametrize(
    "live", [Delta(call="1-1-1", offset=0, text="hi"), Progress(call_id=CallId("a"), name="pay", text="half way")]
)
def test_what_is_only_live_carries_no_number(live: Delta | Progress) -> None:
    assert "event" not in live.__struct_fields__
