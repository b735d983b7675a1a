from collections import Counter
from math import inf
from typing import Any

import anyio
import msgspec

from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.options import GatewayOptions
from torpor.gateway.outbox import Outbox
from torpor.records.events import TurnFinishedEvent
from torpor.records.frames import DeltaFrame, Done, ErrorFrame, EventFrame, ProgressFrame
from torpor.records.ids import CallId


def small(**bounds: Any) -> Outbox:
    """Without pauses, unless they are asked for."""
    return Outbox(GatewayOptions(**{"delta_interval_s": 0.0} | bounds))


def event(number: int, *, conversation: str = "c1") -> EventFrame:
    return EventFrame(conversation=conversation, epoch=1, event=TurnFinishedEvent(event=number, at_us=1))


def delta(offset: int, text: str, *, call: str = "call1", conversation: str = "c1") -> DeltaFrame:
    return DeltaFrame(conversation=conversation, call=call, offset=offset, text=text)


def progress(text: str) -> ProgressFrame:
    return ProgressFrame(conversation="c1", call_id=CallId("t1"), name="look", text=text)


def taken(outbox: Outbox) -> list[dict[str, Any]]:
    """Everything that leaves now."""
    frames: list[dict[str, Any]] = []
    while (data := outbox.take()) is not None:
        frames.append(msgspec.json.decode(data))
    return frames


async def test_frames_leave_in_the_order_they_came() -> None:
    outbox = small()
    outbox.put(Done(ref="a"))
    assert outbox.offer(event(1), conversation="c1")
    await outbox.send(event(2), conversation="c1")
    outbox.put_progress(progress("half"))

    assert [frame["frame"] for frame in taken(outbox)] == ["done", "event", "event", "progress"]


async def test_deltas_that_wait_are_joined() -> None:
    outbox = small()
    outbox.put_delta(delta(0, "Hel"))
    outbox.put_delta(delta(3, "lo "))
    outbox.put_delta(delta(6, "wörld"))

    assert taken(outbox) == [
        {"frame": "delta", "conversation": "c1", "call": "call1", "offset": 0, "text": "Hello wörld"}
    ]


async def test_deltas_are_joined_up_to_a_length() -> None:
    outbox = small(delta_bytes_max=180)
    for offset in range(0, 50, 10):
        outbox.put_delta(delta(offset, "0123456789"))

    assert [(frame["offset"], len(frame["text"])) for frame in taken(outbox)] == [(0, 20), (20, 20), (40, 10)]


async def test_deltas_are_not_joined_across_an_event_of_their_conversation() -> None:
    outbox = small()
    outbox.put_delta(delta(0, "a"))
    outbox.offer(event(1, conversation="c2"), conversation="c2")
    outbox.put_delta(delta(1, "b"))
    outbox.offer(event(1), conversation="c1")
    outbox.put_delta(delta(2, "c"))

    assert [frame.get("text", "event") for frame in taken(outbox)] == ["ab", "event", "event", "c"]


async def test_deltas_of_two_conversations_keep_apart() -> None:
    outbox = small()
    for offset, text in enumerate("xyz"):
        outbox.put_delta(delta(offset, text))
        outbox.put_delta(delta(offset, text.upper(), conversation="c2"))

    assert [(frame["conversation"], frame["text"]) for frame in taken(outbox)] == [("c1", "xyz"), ("c2", "XYZ")]


async def test_a_delta_that_has_left_is_not_joined_to() -> None:
    outbox = small()
    outbox.put_delta(delta(0, "a"))
    first = taken(outbox)
    outbox.put_delta(delta(1, "b"))

    assert [first[0]["text"], *(frame["text"] for frame in taken(outbox))] == ["a", "b"]


async def test_a_delta_that_does_not_continue_its_reply_is_dropped() -> None:
    outbox = small()
    outbox.put_delta(delta(5, "unknown beginning"))
    outbox.put_delta(delta(0, "abc"))
    outbox.put_delta(delta(4, "gap"))
    outbox.put_delta(delta(2, "again"))
    outbox.put_delta(delta(3, "other call", call="call2"))

    assert [frame["text"] for frame in taken(outbox)] == ["abc"]
    assert outbox.dropped == 4


async def test_offset_0_begins_a_reply_again() -> None:
    outbox = small()
    outbox.put_delta(delta(0, "abc"))
    outbox.put_delta(delta(0, "abcdef"))
    outbox.put_delta(delta(6, "g"))

    assert [(frame["offset"], frame["text"]) for frame in taken(outbox)] == [(0, "abc"), (0, "abcdefg")]


async def test_an_event_takes_the_room_of_deltas_and_the_rest_of_their_reply_is_dropped() -> None:
    outbox = small(outbox_frames_max=2)
    outbox.put_delta(delta(0, "a"))
    outbox.put_delta(delta(0, "b", conversation="c2"))

    assert outbox.offer(event(1), conversation="c1")
    outbox.put_delta(delta(1, "after the hole"))
    assert [frame["frame"] for frame in taken(outbox)] == ["event"]
    assert outbox.dropped == 3


async def test_a_reply_after_dropped_deltas_is_shown_again() -> None:
    outbox = small(outbox_frames_max=1)
    outbox.put_delta(delta(0, "lost"))
    outbox.offer(event(1), conversation="c1")
    taken(outbox)
    outbox.put_delta(delta(0, "next", call="call2"))

    assert [frame["text"] for frame in taken(outbox)] == ["next"]


async def test_a_delta_without_room_is_dropped_and_so_is_what_follows_it() -> None:
    outbox = small(outbox_bytes_max=300)
    outbox.put(Done(ref="x" * 200))
    outbox.put_delta(delta(0, "y" * 100))
    taken(outbox)
    outbox.put_delta(delta(100, "z"))

    assert taken(outbox) == []


async def test_joined_deltas_stay_within_the_bound() -> None:
    outbox = small(outbox_bytes_max=1_000, delta_bytes_max=10_000)
    for offset in range(0, 100_000, 100):
        outbox.put_delta(delta(offset, "x" * 100))

    (frame,) = taken(outbox)
    assert frame["offset"] == 0
    assert len(frame["text"]) == 800


async def test_progress_without_room_is_dropped() -> None:
    outbox = small(outbox_frames_max=1)
    outbox.put_progress(progress("one"))
    outbox.put_progress(progress("two"))

    assert [frame["text"] for frame in taken(outbox)] == ["one"]
    assert outbox.dropped == 1


async def test_an_event_without_room_is_left_to_the_caller() -> None:
    outbox = small(outbox_frames_max=2)

    assert [outbox.offer(event(number), conversation="c1") for number in (1, 2, 3)] == [True, True, False]
    assert outbox.closing is None
    assert [frame["event"]["event"] for frame in taken(outbox)] == [1, 2]


async def test_an_answer_without_room_closes_the_connection_and_drops_what_waits() -> None:
    outbox = small(outbox_frames_max=2)
    for ref in "abc":
        outbox.put(Done(ref=ref))

    assert outbox.closing is CloseReason.OVERFLOW
    assert outbox.take() is None


async def test_a_frame_larger_than_the_bound_passes_when_it_is_alone() -> None:
    outbox = small(outbox_bytes_max=100)
    large = Done(ref="x" * 1_000)
    outbox.put(large)

    assert len(taken(outbox)) == 1
    assert outbox.closing is None


async def test_a_replay_waits_until_half_of_the_outbox_is_free() -> None:
    outbox = small(outbox_frames_max=4)
    sent: list[int] = []

    async def replay() -> None:
        for number in range(6):
            await outbox.send(event(number), conversation="c1")
            sent.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(replay)
        await anyio.wait_all_tasks_blocked()
        assert sent == [0, 1]
        assert outbox.offer(event(100, conversation="c2"), conversation="c2")
        for _ in range(2):
            outbox.take()
        await anyio.wait_all_tasks_blocked()
        assert sent == [0, 1, 2]
        assert len(taken(outbox)) >= 2
        await anyio.wait_all_tasks_blocked()
        taken(outbox)
        await anyio.wait_all_tasks_blocked()
        taken(outbox)

    assert sent == [0, 1, 2, 3, 4, 5]


async def test_closing_ends_whoever_waits_for_room() -> None:
    full = small(outbox_frames_max=1)
    full.put(Done(ref="a"))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: full.send(event(1), conversation="c1"))
            tasks.start_soon(full.room)
            await anyio.wait_all_tasks_blocked()
            full.close(CloseReason.GOING_AWAY)

    assert [frame["frame"] for frame in taken(full)] == ["done"]


async def test_closing_sends_what_waits_and_takes_nothing_more() -> None:
    outbox = small()
    outbox.put(Done(ref="a"))
    outbox.close(CloseReason.UNAUTHENTICATED)
    outbox.put(Done(ref="b"))
    outbox.put_delta(delta(0, "c"))
    outbox.close(CloseReason.OVERFLOW)

    assert [frame["ref"] for frame in taken(outbox)] == ["a"]
    assert outbox.closing is CloseReason.UNAUTHENTICATED


async def test_a_forgotten_conversation_has_no_reply_to_continue() -> None:
    outbox = small()
    outbox.put_delta(delta(0, "a"))
    outbox.forget("c1")
    outbox.put_delta(delta(1, "b"))

    assert [frame["text"] for frame in taken(outbox)] == ["a"]


def test_repr_shows_what_waits() -> None:
    outbox = small()
    outbox.put(Done(ref="a"))

    assert repr(outbox) == "<Outbox frames=1 bytes=26 dropped=0 closing=None>"


LONG_S = 3600.0


def waits(outbox: Outbox) -> bool:
    """Whether something waits and does not leave yet."""
    return outbox.take() is None and 0 < outbox.pause_s() < inf


async def pausing() -> Outbox:
    """An outbox that sent the first delta of a reply, and in which those after it wait for each other."""
    outbox = small(delta_interval_s=LONG_S)
    outbox.put_delta(delta(0, "a"))
    assert [frame["text"] for frame in taken(outbox)] == ["a"]
    outbox.put_delta(delta(1, "b"))
    assert waits(outbox)
    outbox.put_delta(delta(2, "c"))
    assert waits(outbox)
    return outbox


async def test_the_first_delta_of_a_reply_leaves_at_once_and_sends_those_before_it_on_their_way() -> None:
    outbox = await pausing()
    outbox.put_delta(delta(0, "first", conversation="c2"))

    assert [frame["text"] for frame in taken(outbox)] == ["bc", "first"]


async def test_deltas_wait_for_each_other_until_something_else_comes() -> None:
    outbox = await pausing()
    outbox.put(Done(ref="a"))

    assert [frame.get("text", "done") for frame in taken(outbox)] == ["bc", "done"]


async def test_a_full_frame_of_deltas_does_not_wait_for_more() -> None:
    outbox = small(delta_interval_s=LONG_S, delta_bytes_max=180)
    outbox.put_delta(delta(0, "a"))
    taken(outbox)
    outbox.put_delta(delta(1, "0123456789"))
    assert waits(outbox)
    outbox.put_delta(delta(11, "0123456789abcdef"))

    assert [frame["offset"] for frame in taken(outbox)] == [1, 11]


async def test_deltas_that_wait_for_each_other_leave_before_the_connection_closes() -> None:
    outbox = await pausing()
    outbox.close(CloseReason.GOING_AWAY)

    assert [frame["text"] for frame in taken(outbox)] == ["bc"]
    assert outbox.take() is None


async def test_deltas_that_wait_for_each_other_leave_once_the_time_is_up() -> None:
    outbox = small(delta_interval_s=0.001)
    outbox.put_delta(delta(0, "a"))
    outbox.take()
    outbox.put_delta(delta(1, "b"))
    with anyio.fail_after(5):
        while (pause_s := outbox.pause_s()) > 0:
            assert pause_s <= 0.001
            await anyio.sleep(pause_s)

    assert [frame["text"] for frame in taken(outbox)] == ["b"]


async def test_the_writer_is_told_of_what_may_leave_and_of_the_end() -> None:
    outbox, told = small(delta_interval_s=LONG_S), list[float]()
    outbox.on_ready = lambda: told.append(outbox.pause_s())
    outbox.put(Done(ref="a"))
    taken(outbox)
    assert outbox.pause_s() == inf
    outbox.put_delta(delta(0, "a"))
    taken(outbox)
    outbox.put_delta(delta(1, "b"))
    outbox.close(CloseReason.GOING_AWAY)

    assert [pause_s == 0 for pause_s in told] == [True, True, False, True]


async def test_an_event_that_takes_the_room_of_deltas_does_not_wait_for_others() -> None:
    outbox = small(outbox_frames_max=1, delta_interval_s=LONG_S)
    outbox.put_delta(delta(0, "a"))
    taken(outbox)
    outbox.put_delta(delta(1, "b"))
    assert outbox.offer(event(1), conversation="c1")
    assert [frame["frame"] for frame in taken(outbox)] == ["event"]
    outbox.put_delta(delta(0, "next", call="call2"))
    assert [frame["text"] for frame in taken(outbox)] == ["next"]


async def test_errors_are_counted_when_they_are_to_be_sent() -> None:
    errors = Counter[str]()
    outbox = Outbox(GatewayOptions(outbox_frames_max=2), errors=errors)
    for _ in range(5):
        outbox.put(ErrorFrame(code="bad_frame", message="no"))

    assert outbox.closing is CloseReason.OVERFLOW
    assert errors == {"bad_frame": 2}


async def test_a_long_answer_waits_until_there_is_room_and_closes_nothing() -> None:
    outbox = small(outbox_bytes_max=200)
    outbox.put(Done(ref="a" * 150))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.send_answer, Done(ref="b" * 150))
        await anyio.wait_all_tasks_blocked()
        assert [frame["ref"][0] for frame in taken(outbox)] == ["a"]
        await anyio.wait_all_tasks_blocked()
        assert [frame["ref"][0] for frame in taken(outbox)] == ["b"]
    assert outbox.closing is None
