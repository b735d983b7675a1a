"""A live context is made anew when a client says so, and when somebody comes back after a long while."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.support.gateway_line import Line, principal
from tests.support.gateway_world import World
from torpor.errors import StoreUnavailable
from torpor.gateway.options import GatewayOptions
from torpor.records.commands import RefreshLiveContext
from torpor.records.frames import Done, ErrorFrame, EventFrame, Refresh, Reload, Subscribe, Subscription
from torpor.records.ids import ConversationKey

KEY = ConversationKey("default", "alice", "c1")
OPTIONS = GatewayOptions(reopened_after_s=60.0)
Opened = Callable[..., AbstractAsyncContextManager[Line]]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def opened(world: World) -> Opened:
    """A line for the length of a block, of Alice unless said otherwise."""

    @asynccontextmanager
    async def open_line(who: Any = None) -> Any:
        async with anyio.create_task_group() as tasks:
            line = Line(world, tasks, options=OPTIONS, principal=who or principal("alice"))
            yield line
            line.session.end()
            tasks.cancel_scope.cancel()

    return open_line


async def test_a_refresh_is_done_once_it_is_ordered(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    async with opened() as line:
        line.say(Refresh(ref="r1", conversation="c1"))
        assert (await line.hear_a(Done)).ref == "r1"
        line.say(Refresh(ref="r2", conversation="c9"))
        refused = await line.hear_a(ErrorFrame)

    assert world.posted == [(KEY, RefreshLiveContext())]
    assert (refused.ref, refused.code, refused.conversation) == ("r2", "unknown_conversation", "c9")


async def test_operators_refresh_what_is_somebody_elses(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    async with opened(principal("ops", scopes=("chat", "operator"))) as line:
        line.say(Refresh(ref="r", conversation="alice/c1"))
        await line.hear_a(Done)

    assert world.posted == [(KEY, RefreshLiveContext())]


def subscribing(name: str = "c1") -> Subscribe:
    return Subscribe(subscription=Subscription(conversation=name))


@pytest.mark.parametrize(
    ("idle_s", "posted"),
    [(59.0, []), (61.0, [(KEY, RefreshLiveContext(is_opened=True))])],
)
async def test_a_conversation_that_nobody_used_for_long_is_looked_after_when_it_is_opened(
    idle_s: float, posted: list[Any], world: World, opened: Opened
) -> None:
    world.converse(KEY, turns=1)
    async with opened() as line:
        line.clock.us = 1_000 + round(idle_s * 1_000_000)
        line.say(subscribing())
        await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()

    assert world.posted == posted


async def test_a_conversation_that_does_not_exist_yet_is_opened_without_a_look(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(subscribing("new"))
        await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()

    assert world.posted == []


async def test_watching_goes_on_where_nobody_can_look_after_the_conversation(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    world.refusals.append(StoreUnavailable("no"))
    async with opened() as line:
        line.say(subscribing())
        await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        world.converse(KEY, turns=1)
        heard = await line.hear_a(EventFrame)

    assert heard.conversation == "c1"
