"""From the outbox to the socket: at once while the system takes it, by a task where it does not."""

from collections.abc import AsyncIterator

import anyio
import pytest

from tests.support.gateway_house import House, gateway_house
from torpor.gateway.writer import UNSENT_BYTES_MAX
from torpor.records.events import MessageReceivedEvent
from torpor.records.frames import Accepted, DeltaFrame, EventFrame, Reload, Resumed, Send
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import TurnPrepared

KEY = ConversationKey("default", "alice", "c1")
BY_TASK = "gateway:write"


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with gateway_house() as opened:
        yield opened


def writers() -> list[str | None]:
    """Names of the tasks that write now."""
    return [task.name for task in anyio.get_running_tasks() if task.name and BY_TASK in task.name]


async def test_frames_that_the_system_takes_need_no_task(house: House) -> None:
    seen: list[str | None] = []
    async with house.call() as caller:
        await caller.watch()
        await caller.hear_a(Reload)
        for number in range(20):
            await caller.say(Send(conversation="c1", message_id=MessageId(f"m{number}"), text="hello"))
            await caller.hear_until(lambda frame: isinstance(frame, Accepted))
            seen += writers()

    assert seen == []


async def test_frames_larger_than_the_system_takes_come_whole_and_in_order(house: House) -> None:
    texts = [str(number) * UNSENT_BYTES_MAX * 4 for number in range(4)]
    async with house.call(buffer_bytes=4_096) as caller:
        await caller.watch(cursor=0)
        await caller.hear_a(Resumed)
        for number, text in enumerate(texts):
            await caller.say(Send(conversation="c1", message_id=MessageId(f"m{number}"), text=text))
        frames = await caller.hear_until(lambda frame: isinstance(frame, EventFrame) and frame.event.event == 4)
        await anyio.wait_all_tasks_blocked()
        left = writers()

    events = [frame.event for frame in frames if isinstance(frame, EventFrame)]
    assert [event.text for event in events if isinstance(event, MessageReceivedEvent)] == texts
    assert left == [], "the task ends when everything is sent"


async def test_deltas_that_waited_for_each_other_leave_by_themselves() -> None:
    async with gateway_house(delta_interval_s=1.0) as house, house.call() as caller:
        await caller.watch()
        await caller.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        house.world.commit(KEY, TurnPrepared(messages=(), turn=1))
        for offset, text in enumerate("abc"):
            house.world.say(KEY, "call1", offset=offset, text=text)
            await anyio.wait_all_tasks_blocked()
        frames = await caller.hear_until(lambda frame: isinstance(frame, DeltaFrame) and frame.text.endswith("c"))

    assert [frame.text for frame in frames if isinstance(frame, DeltaFrame)] == ["a", "bc"]


async def test_nothing_more_is_written_to_a_client_that_is_found_gone(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [ConversationKey("default", "alice", f"c{number}") for number in range(10)]
    async with house.call() as caller:
        for key in keys:
            await caller.watch(key.conversation)
            await caller.hear_a(Reload)
            house.world.commit(key, TurnPrepared(messages=(), turn=1))
            await caller.hear_a(EventFrame)
        caller.reset()
        await anyio.lowlevel.checkpoint()  # the system knows of it now, the server does not
        for key in keys:
            house.world.say(key, "call1", offset=0, text="hello")
        await house.empty()

    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
