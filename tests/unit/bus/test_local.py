"""Fan-out within one process: in place, in order, and bounded by whoever listens."""

from collections.abc import Sequence

import pytest

from torpor.bus.contract import LiveReply
from torpor.bus.local import LocalBus
from torpor.records.blocks import text_block
from torpor.records.events import Delta, Progress
from torpor.records.ids import CallId, ConversationKey, MessageId
from torpor.records.journal import (
    JournalRecord,
    MessageReceived,
    ModelReplied,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
)

KEY = ConversationKey("acme", "ann", "c_1")
OTHER = ConversationKey("acme", "ann", "c_2")
RECEIVED = MessageReceived(seq=1, event=1, message_id=MessageId("m"), principal="ann", blocks=(text_block("hi"),))
PROGRESS = Progress(call_id=CallId("a"), name="pay", text="half way")


class Listener:
    """Implements ``bus.contract.Subscriber``."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def on_records(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
        self.heard.append((key, tuple(records)))

    def on_delta(self, key: ConversationKey, delta: Delta) -> None:
        self.heard.append((key, delta))

    def on_standing(self, key: ConversationKey) -> None: ...

    def on_gone(self, key: ConversationKey) -> None: ...

    def on_progress(self, key: ConversationKey, progress: Progress) -> None:
        self.heard.append((key, progress))


def delta(text: str, *, call: str = "1-1-1", offset: int = 0) -> Delta:
    return Delta(call=call, offset=offset, text=text)


def test_a_subscriber_hears_everything_of_its_conversation_in_order() -> None:
    bus, listener = LocalBus(), Listener()
    bus.subscribe(KEY, listener)
    bus.publish(KEY, [RECEIVED])
    bus.publish_delta(KEY, delta("hel"))
    bus.publish_progress(KEY, PROGRESS)
    assert listener.heard == [(KEY, (RECEIVED,)), (KEY, delta("hel")), (KEY, PROGRESS)]


def test_a_subscriber_hears_nothing_of_other_conversations() -> None:
    bus, listener = LocalBus(), Listener()
    bus.subscribe(KEY, listener)
    bus.publish(OTHER, [RECEIVED])
    bus.publish_delta(OTHER, delta("hel"))
    bus.publish_progress(OTHER, PROGRESS)
    assert listener.heard == []


def test_subscribing_twice_is_once() -> None:
    bus, listener = LocalBus(), Listener()
    bus.subscribe(KEY, listener)
    bus.subscribe(KEY, listener)
    bus.publish(KEY, [RECEIVED])
    assert len(listener.heard) == 1
    bus.unsubscribe(KEY, listener)
    assert not bus.is_watched(KEY)


def test_nothing_reaches_a_subscriber_that_left_and_leaving_twice_is_no_error() -> None:
    bus, listener, other = LocalBus(), Listener(), Listener()
    bus.subscribe(KEY, listener)
    bus.subscribe(KEY, other)
    bus.unsubscribe(KEY, listener)
    bus.unsubscribe(KEY, listener)
    bus.unsubscribe(OTHER, listener)
    bus.publish(KEY, [RECEIVED])
    assert (listener.heard, len(other.heard)) == ([], 1)
    assert bus.is_watched(KEY)
    bus.unsubscribe(KEY, other)
    assert repr(bus) == "<LocalBus watched=0 live=0>"


def test_a_subscriber_may_leave_while_it_is_told() -> None:
    bus, last = LocalBus(), Listener()

    class Leaves(Listener):
        def on_records(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
            super().on_records(key, records)
            bus.unsubscribe(key, self)

    first = Leaves()
    bus.subscribe(KEY, first)
    bus.subscribe(KEY, last)
    bus.publish(KEY, [RECEIVED])
    bus.publish(KEY, [RECEIVED])
    assert (len(first.heard), len(last.heard)) == (1, 2)


def test_the_reply_so_far_is_what_the_deltas_of_the_latest_call_say() -> None:
    bus = LocalBus()
    assert bus.live_reply(KEY) is None
    bus.publish_delta(KEY, delta("hel"))
    bus.publish_delta(KEY, delta("lo", offset=3))
    assert bus.live_reply(KEY) == LiveReply(call="1-1-1", text="hello")
    bus.publish_delta(KEY, delta("again", call="1-1-2"))
    assert bus.live_reply(KEY) == LiveReply(call="1-1-2", text="again")
    assert bus.live_reply(OTHER) is None


@pytest.mark.parametrize(
    "end",
    [
        ModelReplied(call="1-1-1", round=1, blocks=(), stop_reason="end_turn"),
        TurnFinished(),
        TurnCancelled(reason="client", note=text_block("[cut]")),
        TurnFailed(code="crashed", detail="", note=text_block("[failed]")),
    ],
)
def test_the_reply_so_far_ends_with_the_reply_or_the_turn(end: JournalRecord) -> None:
    bus = LocalBus()
    bus.publish_delta(KEY, delta("hello"))
    bus.publish(KEY, [RECEIVED, end])
    assert bus.live_reply(KEY) is None
    bus.publish(KEY, [end])


def test_the_reply_so_far_goes_on_while_other_things_happen() -> None:
    bus = LocalBus()
    bus.publish_delta(KEY, delta("hello"))
    bus.publish(KEY, [RECEIVED, TurnPrepared(messages=(MessageId("m"),))])
    assert bus.live_reply(KEY) is not None
