"""Whoever watches a conversation is told when it is quarantined and when it is released, in the right order."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.support.gateway_line import Line, principal
from tests.support.gateway_world import World
from torpor.gateway.options import GatewayOptions
from torpor.records.frames import (
    Cursor,
    Done,
    ErrorFrame,
    QuarantineConversation,
    ReleaseConversation,
    Reload,
    Resumed,
    StatusFrame,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord
from torpor.supervisor.contract import LiveStatus

KEY = ConversationKey("default", "alice", "c1")
OPERATOR = principal("ops", scopes=("operator",))
Opened = Callable[..., AbstractAsyncContextManager[Line]]


@pytest.fixture
def world() -> World:
    world = World()
    world.converse(KEY, turns=1)
    return world


@pytest.fixture
def opened(world: World) -> Opened:
    @asynccontextmanager
    async def open_line(who: Any = None) -> Any:
        async with anyio.create_task_group() as tasks:
            line = Line(world, tasks, options=GatewayOptions(), principal=who or principal("alice"))
            yield line
            line.session.end()
            tasks.cancel_scope.cancel()

    return open_line


def watch(event: int | None = None) -> Subscribe:
    return Subscribe(
        subscription=Subscription(conversation="c1", cursor=None if event is None else Cursor(event=event))
    )


async def test_a_watcher_hears_of_a_quarantine_and_of_the_release(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(watch())
        assert (await line.hear_a(Reload)).status.state == "rest"
        await world.quarantine(KEY, reason="odd")
        assert (await line.hear_a(StatusFrame)).status.state == "quarantined"
        world.due.add(KEY)
        await world.release(KEY)
        frame = await line.hear_a(StatusFrame)
        assert (frame.conversation, frame.status.state) == ("c1", "running")


async def test_the_status_after_a_release_is_that_of_a_live_actor(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(watch(4))
        await line.hear_a(Resumed)
        world.live[KEY] = LiveStatus(state="running", turn=2, waiting=1)
        await world.release(KEY)
        status = (await line.hear_a(StatusFrame)).status
        assert (status.state, status.turn, status.waiting) == ("running", 2, 1)


async def test_one_that_happens_while_a_watch_begins_is_told_behind_its_beginning(
    world: World, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = world.events_after

    async def events_after(key: ConversationKey, *, event: int, limit: int, **more: Any) -> tuple[JournalRecord, ...]:
        monkeypatch.undo()  # by now the watch has looked at how the conversation stands
        await world.quarantine(KEY, reason="odd")
        return await original(key, event=event, limit=limit)

    monkeypatch.setattr(world, "events_after", events_after)
    async with opened() as line:
        line.say(watch(3))
        assert (await line.hear_a(Resumed)).status.state == "rest"
        assert (await line.hear_a(StatusFrame)).status.state == "quarantined"


async def test_whoever_watches_no_more_hears_nothing_of_it(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(watch(4))
        await line.hear_a(Resumed)
        line.say(Unsubscribe(conversation="c1", ref="u"))
        await line.hear_a(Done)
        await world.quarantine(KEY, reason="odd")
        await anyio.wait_all_tasks_blocked()
        assert line.outbox.take() is None


async def test_an_operator_sets_aside_and_releases_with_a_reason_that_is_kept(world: World, opened: Opened) -> None:
    async with opened(OPERATOR) as line:
        line.say(QuarantineConversation(ref="q", path="default/alice/c1", reason="  a customer\x00 asked "))
        assert (await line.hear_a(Done)).ref == "q"
        assert world.quarantined == {KEY: "a customer\u2400 asked"}
        line.say(ReleaseConversation(ref="r", path="default/alice/c1"))
        assert (await line.hear_a(Done)).ref == "r"
        assert world.quarantined == {}


@pytest.mark.parametrize("reason", ["", " \n ", "x" * 501])
async def test_a_quarantine_without_a_reason_or_with_a_novel_is_refused(
    world: World, opened: Opened, reason: str
) -> None:
    async with opened(OPERATOR) as line:
        line.say(QuarantineConversation(ref="q", path="default/alice/c1", reason=reason))
        assert (await line.hear_a(ErrorFrame)).code == "bad_frame"
        assert world.quarantined == {}
