"""Joining journal and bus: no gap, no duplicate, whatever happens in the middle of a read."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import msgspec
import pytest

from tests.support.gateway_line import Line
from tests.support.gateway_world import World, replied
from torpor.errors import IllegalTransition, JournalCorrupt, StoreUnavailable
from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.subscription import TRANSITIONS, Signal, State, next_state
from torpor.records.blocks import text_block
from torpor.records.events import Progress
from torpor.records.frames import (
    Cursor,
    DeltaFrame,
    Done,
    ErrorFrame,
    EventFrame,
    ProgressFrame,
    Reload,
    Resumed,
    StatusFrame,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from torpor.records.ids import CallId, ConversationKey, MessageId
from torpor.records.journal import MessageReceived, TurnCancelled, TurnFailed, TurnFinished, TurnPrepared
from torpor.supervisor.contract import LiveStatus

KEY = ConversationKey("default", "alice", "c1")
Opened = Callable[..., AbstractAsyncContextManager[Line]]


def watch(cursor: int | None = None, *, epoch: int = 1) -> Subscribe:
    known = None if cursor is None else Cursor(epoch=epoch, event=cursor)
    return Subscribe(subscription=Subscription(conversation="c1", cursor=known))


def numbers(frames: list[Any]) -> list[int]:
    return [frame.event.event for frame in frames if isinstance(frame, EventFrame)]


def is_event(number: int) -> Callable[[Any], bool]:
    return lambda frame: isinstance(frame, EventFrame) and frame.event.event == number


@pytest.mark.parametrize("signal", Signal)
@pytest.mark.parametrize("state", State)
def test_every_cell_of_the_table(state: State, signal: Signal) -> None:
    if (state, signal) in TRANSITIONS:
        assert next_state(state, signal) is TRANSITIONS[state, signal]
    else:
        with pytest.raises(IllegalTransition):
            next_state(state, signal)


async def test_what_was_never_written_is_new_and_can_be_watched_from_its_first_event(
    world: World, opened: Opened
) -> None:
    async with opened() as line:
        line.say(watch())
        reload = await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        world.converse(KEY, turns=1)
        frames = await line.hear_until(is_event(4))

    assert (reload.head, reload.status.state, reload.events) == (0, "new", ())
    assert numbers(frames) == [1, 2, 3, 4]


async def test_without_a_cursor_a_reload_brings_the_latest_events(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=5)
    async with opened(reload_events_max=6) as line:
        line.say(watch())
        reload = await line.hear_a(Reload)

    assert (reload.epoch, reload.head, reload.status.state) == (1, 20, "rest")
    assert [event.event for event in reload.events] == [15, 16, 17, 18, 19, 20]


async def test_the_events_of_a_reload_are_bounded_in_bytes(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=5)
    async with opened(reload_bytes_max=250) as line:
        line.say(watch())
        reload = await line.hear_a(Reload)

    assert 1 <= len(reload.events) < 5
    assert reload.events[-1].event == 20
    assert sum(len(msgspec.json.encode(event)) for event in reload.events) <= 250


async def test_with_a_cursor_the_events_after_it_follow_page_by_page(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=5)
    async with opened(replay_page=3) as line:
        line.say(watch(7))
        resumed = await line.hear_a(Resumed)
        frames = await line.hear_until(is_event(20))

    assert (resumed.epoch, resumed.head) == (1, 20)
    assert numbers(frames) == list(range(8, 21))


async def test_a_page_of_one_record_gets_on(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=2)
    async with opened(replay_page=1) as line:
        line.say(watch(0))
        await line.hear_a(Resumed)

        assert numbers(await line.hear_until(is_event(8))) == list(range(1, 9))


async def test_a_cursor_at_the_head_is_resumed_with_nothing(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    async with opened() as line:
        line.say(watch(4))
        await line.hear_a(Resumed)
        await anyio.wait_all_tasks_blocked()
        world.converse(KEY, turns=1)

        assert numbers(await line.hear_until(is_event(8))) == [5, 6, 7, 8]


@pytest.mark.parametrize(("event", "epoch"), [(5, 1), (2**70, 1), (2, 2), (2, 0), (-1, 1)])
async def test_a_cursor_ahead_of_the_journal_or_of_another_epoch_is_reloaded(
    event: int, epoch: int, world: World, opened: Opened
) -> None:
    world.converse(KEY, turns=1)
    async with opened() as line:
        line.say(watch(event, epoch=epoch))
        reload = await line.hear_a(Reload)

    assert reload.head == 4


@pytest.mark.parametrize(
    ("live", "due", "state"),
    [
        (None, False, "rest"),
        (None, True, "running"),
        (LiveStatus(state="running", turn=3, waiting=2), False, "running"),
        (LiveStatus(state="idle"), True, "rest"),
        (LiveStatus(state="hibernating"), False, "rest"),
        (LiveStatus(state="thawing"), True, "running"),
        (LiveStatus(state="thawing"), False, "rest"),
    ],
)
async def test_the_status_comes_with_the_answer(
    live: LiveStatus | None, due: bool, state: str, world: World, opened: Opened
) -> None:
    world.converse(KEY, turns=1)
    if live is not None:
        world.live[KEY] = live
    if due:
        world.due.add(KEY)
    async with opened() as line:
        line.say(watch(4))
        resumed = await line.hear_a(Resumed)

    assert resumed.status.state == state
    assert (resumed.status.turn, resumed.status.waiting) == ((3, 2) if live and live.turn else (0, 0))


async def test_a_quarantined_conversation_says_so_and_shows_what_can_be_read(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    world.quarantined[KEY] = "bad record"
    async with opened() as line:
        line.say(watch())
        reload = await line.hear_a(Reload)

    assert reload.status.state == "quarantined"
    assert len(reload.events) == 4


async def test_events_committed_while_the_status_is_read_come_once(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    world.live[KEY] = LiveStatus(state="idle")
    commits = iter([1])

    async def commit_meanwhile() -> None:
        if next(commits, None):
            world.live[KEY] = LiveStatus(state="running", turn=2)
            world.converse(KEY, turns=1)

    world.after_read = commit_meanwhile
    async with opened() as line:
        line.say(watch(2))
        resumed = await line.hear_a(Resumed)
        frames = await line.hear_until(is_event(8))

    assert (resumed.head, resumed.status.state) == (8, "running"), "head and status are of different moments"
    assert numbers(frames) == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("reads_before", range(4))
@pytest.mark.parametrize("moment", ["before_read", "after_read"])
async def test_events_committed_during_any_read_come_once_and_in_order(
    moment: str, reads_before: int, world: World, opened: Opened
) -> None:
    world.converse(KEY, turns=2)
    reads = 0

    async def commit_meanwhile() -> None:
        nonlocal reads
        reads += 1
        if reads == reads_before + 1:
            world.converse(KEY, turns=1)

    async with opened(replay_page=4) as line:
        setattr(world, moment, commit_meanwhile)
        line.say(watch(1))
        await line.hear_a(Resumed)
        frames = await line.hear_until(is_event(12))
        await anyio.wait_all_tasks_blocked()
        world.converse(KEY, turns=1)
        frames += await line.hear_until(is_event(16))

    assert numbers(frames) == list(range(2, 17))
    assert reads > reads_before, "the commit never happened"


async def test_a_late_joiner_gets_the_reply_so_far_as_one_delta_and_then_live_ones(
    world: World, opened: Opened
) -> None:
    world.commit(KEY, TurnPrepared(messages=(), turn=1))
    world.say(KEY, "call1", offset=0, text="The three ")
    world.say(KEY, "call1", offset=10, text="causes ")
    async with opened() as line:
        line.say(watch())
        await line.hear_a(Reload)
        so_far = await line.hear_a(DeltaFrame)
        world.say(KEY, "call1", offset=17, text="are")
        live = await line.hear_a(DeltaFrame)

    assert (so_far.call, so_far.offset, so_far.text) == ("call1", 0, "The three causes ")
    assert (live.call, live.offset, live.text) == ("call1", 17, "are")


async def test_the_reply_so_far_waits_for_room(world: World, opened: Opened) -> None:
    world.commit(KEY, TurnPrepared(messages=(), turn=1))
    world.say(KEY, "call1", offset=0, text="The three causes")
    async with opened(outbox_frames_max=1) as line:
        line.say(watch())
        await anyio.wait_all_tasks_blocked()
        await line.hear_a(Reload)

        assert (await line.hear_a(DeltaFrame)).text == "The three causes"


async def test_deltas_during_the_replay_are_part_of_the_reply_so_far(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=2)
    world.commit(KEY, TurnPrepared(messages=(), turn=3))
    offset = 0

    async def speak() -> None:
        nonlocal offset
        world.say(KEY, "call9", offset=offset, text="abc")
        offset += 3

    world.before_read = world.after_read = speak
    async with opened(replay_page=3) as line:
        line.say(watch(2))
        await line.hear_a(Resumed)
        frames = await line.hear_until(lambda frame: isinstance(frame, DeltaFrame))
        world.before_read = world.after_read = anyio.lowlevel.checkpoint

    assert numbers(frames) == list(range(3, 10))
    assert (frames[-1].offset, frames[-1].text) == (0, "abc" * (offset // 3))


@pytest.mark.parametrize(
    "end",
    [
        replied("call1", "the reply", turn=1),
        TurnCancelled(turn=1, reason="client", note=text_block("cut")),
        TurnFailed(turn=1, code="x", detail="y", note=text_block("lost")),
        TurnFinished(turn=1),
    ],
    ids=lambda record: type(record).__name__,
)
@pytest.mark.parametrize("cursor", [None, 0, 1, 2])
async def test_a_reply_whose_end_is_in_the_journal_already_is_not_shown_as_running(
    cursor: int | None, end: Any, world: World, opened: Opened
) -> None:
    world.commit(KEY, TurnPrepared(messages=(), turn=1))
    world.say(KEY, "call1", offset=0, text="the re")
    unpublished = world.commit(KEY, end, publish=False)
    async with opened() as line:
        line.say(watch(cursor))
        await line.hear()
        await anyio.wait_all_tasks_blocked()
        world.publish(KEY, *unpublished)
        world.commit(KEY, TurnPrepared(messages=(), turn=2))
        frames = await line.hear_until(is_event(3))

    assert not [frame for frame in frames if isinstance(frame, DeltaFrame)]
    assert numbers(frames) == list(range(3 if cursor is None else cursor + 1, 4))


async def test_a_number_missing_on_the_bus_is_read_from_the_journal(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(watch())
        await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        world.commit(KEY, TurnPrepared(messages=(), turn=1), publish=False)
        world.commit(KEY, TurnFinished(turn=1))

        assert numbers(await line.hear_until(is_event(2))) == [1, 2]


async def test_events_told_twice_are_shown_once(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(watch())
        await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        records = world.commit(KEY, TurnPrepared(messages=(), turn=1))
        world.publish(KEY, *records)
        world.commit(KEY, TurnFinished(turn=1))

        assert numbers(await line.hear_until(is_event(2))) == [1, 2]


async def test_a_client_that_reads_slowly_gets_everything_from_the_journal(world: World, opened: Opened) -> None:
    async with opened(outbox_frames_max=8) as line:
        line.say(watch())
        await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        world.converse(KEY, turns=50)
        frames = await line.hear_until(is_event(200))
        await anyio.wait_all_tasks_blocked()
        world.converse(KEY, turns=1)
        frames += await line.hear_until(is_event(204))

    assert numbers(frames) == list(range(1, 205))
    assert line.outbox.closing is None


async def test_deltas_with_a_gap_are_not_forwarded_and_the_committed_reply_is(world: World, opened: Opened) -> None:
    world.commit(KEY, TurnPrepared(messages=(), turn=1))
    async with opened() as line:
        line.say(watch())
        await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        world.say(KEY, "call1", offset=0, text="abc")
        first = await line.hear_a(DeltaFrame)
        world.say(KEY, "call1", offset=7, text="hij")
        world.commit(KEY, replied("call1", "abcdefghij"))
        (event,) = await line.hear_until(lambda frame: not isinstance(frame, DeltaFrame))

    assert first.text == "abc"
    assert event.event.text == "abcdefghij"


async def test_progress_of_a_tool_is_forwarded(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(watch())
        await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        world.bus.publish_progress(KEY, Progress(call_id=CallId("t1"), name="look", text="half"))

        assert (await line.hear_a(ProgressFrame)).text == "half"

        by_a_sub_agent = Progress(call_id=CallId("t1"), name="scout", text="uses look", type="research.progress")
        world.bus.publish_progress(KEY, by_a_sub_agent)

        heard = await line.hear_a(ProgressFrame)
        assert (heard.type, heard.name, heard.text) == ("research.progress", "scout", "uses look")


async def test_subscribing_again_begins_again_from_the_new_cursor(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=2)
    async with opened() as line:
        line.say(watch(0))
        await line.hear_a(Resumed)
        await line.hear_until(is_event(8))
        line.say(watch(6))
        await line.hear_a(Resumed)
        again = await line.hear_until(is_event(8))
        await anyio.wait_all_tasks_blocked()
        world.converse(KEY, turns=1)
        live = await line.hear_until(is_event(12))

    assert (numbers(again), numbers(live)) == ([7, 8], [9, 10, 11, 12])


async def test_subscribing_twice_at_once_is_answered_by_the_second_only(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=2)
    async with opened() as line:
        line.say(watch(0))
        line.say(watch(5))
        await line.hear_a(Resumed)
        frames = await line.hear_until(is_event(8))
        await anyio.wait_all_tasks_blocked()
        world.converse(KEY, turns=1)
        frames += await line.hear_until(is_event(12))

    assert numbers(frames) == [6, 7, 8, 9, 10, 11, 12]


async def test_after_unsubscribing_nothing_follows(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=2)
    async with opened() as line:
        line.say(watch(0))
        line.say(Unsubscribe(conversation="c1", ref="r1"))
        assert (await line.hear_a(Done)).ref == "r1"
        world.converse(KEY, turns=1)
        line.say(Unsubscribe(conversation="c1", ref="r2"))

        assert (await line.hear_a(Done)).ref == "r2"
        assert not world.bus.is_watched(KEY)


async def test_after_unsubscribing_in_the_middle_of_a_read_nothing_follows(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=2)
    gate = anyio.Event()
    world.after_read = gate.wait
    async with opened() as line:
        line.say(watch(0))
        await anyio.wait_all_tasks_blocked()
        line.say(Unsubscribe(conversation="c1", ref="r1"))
        gate.set()
        await line.hear_a(Done)
        await anyio.wait_all_tasks_blocked()
        line.say(Unsubscribe(conversation="c1", ref="r2"))

        assert (await line.hear_a(Done)).ref == "r2"


@pytest.mark.parametrize("reads_before", range(5))
async def test_after_unsubscribing_just_as_a_read_is_over_nothing_follows(
    reads_before: int, world: World, opened: Opened
) -> None:
    world.converse(KEY, turns=2)
    reads = 0

    async def leave() -> None:
        nonlocal reads
        reads += 1
        if reads == reads_before + 1:  # nothing is awaited between this and what the read is for
            line.say(Unsubscribe(conversation="c1", ref="r1"))

    world.after_read = leave
    async with opened(replay_page=4) as line:
        line.say(watch(1))
        await line.hear_until(lambda frame: isinstance(frame, Done))
        await anyio.wait_all_tasks_blocked()
        line.say(Unsubscribe(conversation="c1", ref="r2"))

        assert (await line.hear_a(Done)).ref == "r2"
    assert reads == reads_before + 1, "it went on reading"


async def test_a_session_that_ends_watches_nothing(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(watch())
        await line.hear_a(Reload)
        assert world.bus.is_watched(KEY)

    assert not world.bus.is_watched(KEY)
    world.converse(KEY, turns=1)


async def test_ending_during_a_read_ends_the_read(world: World, opened: Opened) -> None:
    world.before_read = anyio.sleep_forever
    async with opened() as line:
        line.say(watch())
        await anyio.wait_all_tasks_blocked()

    assert not world.bus.is_watched(KEY)


async def test_a_journal_that_cannot_be_read_ends_its_subscription_and_no_other(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    world.unreadable = JournalCorrupt(KEY.path, reason="torn")
    async with opened() as line:
        line.say(watch())
        reload = await line.hear_a(Reload)
        error = await line.hear_a(ErrorFrame)
        world.unreadable = None
        line.say(watch())
        again = await line.hear_a(Reload)

    assert (reload.head, reload.events) == (4, ())
    assert (error.code, error.conversation) == ("quarantined", "c1")
    assert "torn" not in error.message
    assert len(again.events) == 4


BAD = MessageReceived(message_id=MessageId("bad"), principal="alice", blocks=(msgspec.Raw(b"5"),))
"""Decodes, and cannot be shown."""


@pytest.mark.parametrize("cursor", [None, 4])
async def test_a_record_that_cannot_be_shown_sets_its_conversation_aside_and_no_other(
    world: World, opened: Opened, cursor: int | None
) -> None:
    other = ConversationKey("default", "alice", "c2")
    world.converse(KEY, turns=1)
    world.commit(KEY, BAD)
    async with opened() as line, opened() as neighbour:
        neighbour.say(watch(5))
        await neighbour.hear_a(Resumed)
        line.say(Subscribe(subscription=Subscription(conversation="c2")))
        await line.hear_a(Reload)
        line.say(watch(cursor))
        joined = await line.hear()
        told = await line.hear()
        await neighbour.hear_until(lambda frame: isinstance(frame, StatusFrame))
        await anyio.wait_all_tasks_blocked()
        world.converse(other, turns=1)
        await line.hear_until(is_event(4))

    assert isinstance(joined, Reload if cursor is None else Resumed)
    if cursor is None:
        assert isinstance(told, StatusFrame)
        assert told.status.state == "quarantined"
    else:
        assert isinstance(told, ErrorFrame)
        assert (told.code, told.conversation) == ("quarantined", "c1")
    assert world.quarantined[KEY].startswith("record 5 cannot be shown")


async def test_a_record_that_cannot_be_shown_when_it_is_published_harms_nobody(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(watch())
        await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        world.converse(KEY, turns=1)
        world.commit(KEY, BAD)
        frames = await line.hear_until(lambda frame: isinstance(frame, ErrorFrame))
        await anyio.wait_all_tasks_blocked()

    assert numbers(frames) == [1, 2, 3, 4]
    assert frames[-1].code == "quarantined"
    assert world.quarantined[KEY].startswith("record 5 cannot be shown")


async def test_a_gap_in_the_journal_is_a_corrupt_journal(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    del world.journals[KEY][1]
    async with opened() as line:
        line.say(watch(0))
        frames = await line.hear_until(lambda frame: isinstance(frame, ErrorFrame))

    assert numbers(frames) == [1]
    assert frames[-1].code == "quarantined"


async def test_a_store_that_cannot_be_read_closes_the_connection_so_that_the_client_resumes(
    world: World, opened: Opened
) -> None:
    world.converse(KEY, turns=1)
    world.unreadable = StoreUnavailable("disk on fire")
    async with opened() as line:
        line.say(watch(1))
        assert await line.hear() is None
        assert line.outbox.closing is CloseReason.UNAVAILABLE


async def test_an_event_that_is_published_and_not_readable_closes_the_connection(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(watch())
        await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        world.publish(KEY, TurnFinished(event=7))

        assert await line.hear() is None
        assert line.outbox.closing is CloseReason.UNAVAILABLE


async def test_a_bug_in_a_read_closes_the_connection(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    world.unreadable = ZeroDivisionError()
    async with opened() as line:
        line.say(watch(1))
        assert await line.hear() is None
        assert line.outbox.closing is CloseReason.INTERNAL
