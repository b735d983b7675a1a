"""Every event once and in order, every reply without a hole, whatever the server repeats or leaves out."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.bucket import Bucket
from torpor.client.follow import TRANSITIONS, Follow, Signal, State, next_state
from torpor.client.items import DeltaItem, ProgressItem, ReloadItem, ResumedItem, StatusItem
from torpor.client.wire import IncomingEvent, IncomingReload, decode
from torpor.errors import IllegalTransition
from torpor.records.events import ReplyFinishedEvent, TurnFinishedEvent
from torpor.records.frames import Cursor, DeltaFrame, EventFrame, ProgressFrame, Reload, Resumed, RunStatus, StatusFrame
from torpor.records.ids import CallId

REST = RunStatus(state="rest")


def event(number: int, *, epoch: int = 1) -> IncomingEvent:
    frame = decode(
        msgspec.json.encode(EventFrame(conversation="c1", epoch=epoch, event=TurnFinishedEvent(event=number, at_us=1)))
    )
    assert isinstance(frame, IncomingEvent)
    return frame


def reply(number: int, call: str) -> IncomingEvent:
    finished = ReplyFinishedEvent(event=number, at_us=1, call=call, text="all of it")
    frame = decode(msgspec.json.encode(EventFrame(conversation="c1", epoch=1, event=finished)))
    assert isinstance(frame, IncomingEvent)
    return frame


def reload(head: int, *, epoch: int = 1) -> IncomingReload:
    frame = decode(
        msgspec.json.encode(
            Reload(
                conversation="c1",
                epoch=epoch,
                head=head,
                status=REST,
                events=(TurnFinishedEvent(event=head, at_us=1),) if head else (),
            )
        )
    )
    assert isinstance(frame, IncomingReload)
    return frame


def resumed(head: int) -> Resumed:
    return Resumed(conversation="c1", epoch=1, head=head, status=REST)


def delta(offset: int, text: str, *, call: str = "call1") -> DeltaFrame:
    return DeltaFrame(conversation="c1", call=call, offset=offset, text=text)


def following(cursor: int = 0, **more: Any) -> tuple[Follow, Bucket]:
    bucket = Bucket(**more)
    follow = Follow("c1", cursor=Cursor(event=cursor), sink=bucket)
    follow.ask()
    follow.on_resumed(resumed(cursor))
    return follow, bucket


@pytest.mark.parametrize("signal", Signal)
@pytest.mark.parametrize("state", State)
def test_every_cell_of_the_table(state: State, signal: Signal) -> None:
    if (state, signal) in TRANSITIONS:
        assert next_state(state, signal) is TRANSITIONS[state, signal]
    else:
        with pytest.raises(IllegalTransition):
            next_state(state, signal)


def test_a_reload_sets_the_cursor_and_events_go_on_after_its_head() -> None:
    bucket = Bucket()
    follow = Follow("c1", cursor=None, sink=bucket)
    assert follow.ask().cursor is None
    follow.on_reload(reload(7))
    assert follow.on_event(event(7))
    assert follow.on_event(event(8))

    assert isinstance(bucket.items[0], ReloadItem)
    assert [known.event for known in bucket.items[0].events] == [7]
    assert bucket.numbers == [8]
    assert follow.ask().cursor == Cursor(epoch=1, event=8)


def test_a_resume_is_told_with_the_status() -> None:
    _, bucket = following(4)

    assert bucket.items == [ResumedItem(conversation="c1", epoch=1, head=4, status=REST)]


def test_repeated_events_are_dropped_and_a_missing_one_is_noticed() -> None:
    follow, bucket = following(3)

    assert [follow.on_event(event(number)) for number in (2, 3, 4, 4, 6)] == [True, True, True, True, False]
    assert bucket.numbers == [4]


def test_an_event_of_another_epoch_is_a_missing_one() -> None:
    follow, bucket = following(3)

    assert not follow.on_event(event(4, epoch=2))
    assert bucket.numbers == []


def test_between_question_and_answer_nothing_is_taken() -> None:
    follow, bucket = following(3)
    follow.ask()
    follow.on_event(event(4))
    follow.on_delta(delta(0, "abc"))
    follow.on_progress(ProgressFrame(conversation="c1", call_id=CallId("t1"), name="look", text="half"))

    assert len(bucket.items) == 1


def test_a_changed_status_is_shown_unless_an_answer_with_a_newer_one_is_awaited() -> None:
    follow, bucket = following(3)
    held = StatusFrame(conversation="c1", status=RunStatus(state="quarantined"))
    follow.on_status(held)
    follow.ask()
    follow.on_status(held)

    assert bucket.items[1:] == [StatusItem(conversation="c1", status=held.status)]


def test_an_event_of_an_unknown_type_moves_the_cursor_and_is_not_shown() -> None:
    follow, bucket = following(3)
    frame = decode('{"frame":"event","conversation":"c1","epoch":1,"event":{"type":"from.the.future","event":4}}')
    assert isinstance(frame, IncomingEvent)

    assert follow.on_event(frame)
    assert follow.on_event(event(5))
    assert bucket.numbers == [5]


def test_without_room_nothing_is_lost_but_asked_for_again() -> None:
    follow, bucket = following(3, room=2)
    for number in (4, 5, 6):
        assert follow.on_event(event(number))
    assert follow.is_behind
    follow.on_resumed(resumed(9))
    follow.on_reload(reload(9))
    bucket.room = 100

    assert follow.ask().cursor == Cursor(event=4)
    follow.on_resumed(resumed(6))
    for number in (5, 6):
        follow.on_event(event(number))
    assert bucket.numbers == [4, 5, 6]


def test_a_reload_without_room_is_asked_for_again() -> None:
    bucket = Bucket(room=0)
    follow = Follow("c1", cursor=None, sink=bucket)
    follow.ask()
    follow.on_reload(reload(7))

    assert follow.is_behind
    assert follow.ask().cursor is None


def test_a_reply_told_again_from_its_beginning_goes_on_where_it_was() -> None:
    follow, bucket = following()
    follow.on_delta(delta(0, "The three "))
    follow.ask()
    follow.on_resumed(resumed(0))
    follow.on_delta(delta(0, "The three causes"))
    follow.on_delta(delta(16, " are"))

    assert [item.offset for item in bucket.items if isinstance(item, DeltaItem)] == [0, 10, 16]
    assert bucket.text == "The three causes are"


def test_deltas_with_a_hole_wait_for_the_finished_reply() -> None:
    follow, bucket = following()
    follow.on_delta(delta(0, "abc"))
    follow.on_delta(delta(5, "fgh"))
    follow.on_delta(delta(8, "ijk"))

    assert bucket.text == "abc"


def test_deltas_without_room_are_a_hole() -> None:
    follow, bucket = following(room=2)
    follow.on_delta(delta(0, "abc"))
    follow.on_delta(delta(3, "def"))
    bucket.room = 100
    follow.on_delta(delta(6, "ghi"))

    assert bucket.text == "abc"
    assert not follow.is_behind


def test_a_new_call_begins_a_new_reply() -> None:
    follow, bucket = following()
    follow.on_delta(delta(0, "lost"))
    follow.on_delta(delta(0, "again", call="call2"))

    assert [(item.call, item.offset) for item in bucket.items if isinstance(item, DeltaItem)] == [
        ("call1", 0),
        ("call2", 0),
    ]


def test_after_a_reply_has_finished_nothing_of_it_is_shown() -> None:
    follow, bucket = following()
    follow.on_delta(delta(0, "abc"))
    follow.on_event(reply(1, "call1"))
    follow.on_delta(delta(0, "abcdef"))

    assert bucket.text == "abc"


def test_after_a_reload_the_reply_is_shown_from_its_beginning() -> None:
    follow, bucket = following()
    follow.on_delta(delta(0, "abc"))
    follow.ask()
    follow.on_reload(reload(9, epoch=2))
    follow.on_delta(delta(0, "abcd"))

    assert [(item.offset, item.text) for item in bucket.items if isinstance(item, DeltaItem)] == [
        (0, "abc"),
        (0, "abcd"),
    ]


def test_progress_is_shown() -> None:
    follow, bucket = following()
    frame = ProgressFrame(conversation="c1", call_id=CallId("t1"), name="look", text="half", type="research.progress")
    follow.on_progress(frame)

    item = bucket.items[-1]
    assert isinstance(item, ProgressItem)
    assert (item.name, item.text, item.type) == ("look", "half", "research.progress")


def test_repr_shows_state_and_cursor() -> None:
    follow, _ = following(3)

    assert repr(follow) == "<Follow 'c1' FOLLOWING cursor=(1, 3)>"


@given(
    st.lists(st.one_of(st.integers(1, 12), st.just("ask"), st.tuples(st.just("resumed"), st.integers(0, 12)))),
    st.integers(0, 6),
)
def test_whatever_the_server_sends_events_come_once_and_in_order(script: list[Any], room: int) -> None:
    bucket = Bucket(room=room)
    follow = Follow("c1", cursor=Cursor(event=0), sink=bucket)
    for step in script:
        match step:
            case int():
                follow.on_event(event(step))
            case "ask":
                bucket.room += 3
                follow.ask()
            case _:
                follow.on_resumed(resumed(step[1]))

    assert bucket.numbers == list(range(1, len(bucket.numbers) + 1))


@given(st.text(max_size=30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=20))
def test_whatever_pieces_come_what_is_shown_is_a_beginning_of_the_reply(
    text: str, pieces: list[tuple[int, int]]
) -> None:
    follow, bucket = following()
    for start, length in pieces:
        if start <= len(text):
            follow.on_delta(delta(start, text[start : start + length]))

    assert text.startswith(bucket.text)
