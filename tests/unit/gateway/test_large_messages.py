"""Conversations of large messages: who reads quickly gets them all, and for who does not read little is kept."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.support.gateway_line import Line, principal
from tests.support.gateway_world import World
from torpor.gateway.options import GatewayOptions
from torpor.records.blocks import text_block
from torpor.records.frames import Cursor, EventFrame, ReadHistory, Result, Resumed, Subscribe, Subscription
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord, MessageReceived

KEY = ConversationKey("default", "alice", "c1")
LARGE = 200_000
Opened = Callable[..., AbstractAsyncContextManager[Line]]


class Counted(World):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    async def _records(self, *args: Any, **asked: Any) -> tuple[JournalRecord, ...]:
        found = await super()._records(*args, **asked)
        self.read += len(found)
        return found


@pytest.fixture
def world() -> Counted:
    world = Counted()
    for number in range(30):
        blocks = (text_block("x" * LARGE),)
        world.commit(KEY, MessageReceived(message_id=MessageId(f"m{number}"), principal="alice", blocks=blocks))
    return world


@pytest.fixture
def opened(world: World) -> Opened:
    """Alice's line for the length of a block."""

    @asynccontextmanager
    async def open_line(**options: Any) -> Any:
        async with anyio.create_task_group() as tasks:
            line = Line(world, tasks, options=GatewayOptions(**options), principal=principal("alice"))
            yield line
            line.session.end()
            tasks.cancel_scope.cancel()

    return open_line


async def test_many_pages_asked_for_at_once_come_one_after_the_other(opened: Opened) -> None:
    async with opened() as line:
        for number in range(15):
            line.say(ReadHistory(ref=f"r{number}", conversation="c1", before=31 - 2 * number, limit=2))
        results = [await line.hear_a(Result) for _ in range(15)]

    assert {row["event"] for result in results for row in result.rows} == set(range(1, 31))


async def test_for_who_reads_no_answer_no_further_one_is_made(world: Counted, opened: Opened) -> None:
    async with opened() as line:
        for number in range(40):
            line.say(ReadHistory(ref=f"r{number}", conversation="c1", limit=2))
        await anyio.wait_all_tasks_blocked()

        assert line.outbox.closing is None
        assert line.outbox.size_bytes < line.options.outbox_bytes_max
        assert world.read < 30


async def test_a_replay_of_large_messages_is_read_as_the_client_reads(world: Counted, opened: Opened) -> None:
    async with opened() as line:
        line.say(Subscribe(subscription=Subscription(conversation="c1", cursor=Cursor(epoch=1, event=1))))
        await line.hear_a(Resumed)
        await anyio.wait_all_tasks_blocked()
        assert world.read < 10

        events = [(await line.hear_a(EventFrame)).event.event for _ in range(29)]
        await anyio.wait_all_tasks_blocked()
        world.converse(KEY, turns=1)
        assert (await line.hear_a(EventFrame)).event.event == 31
    assert events == list(range(2, 31))
