"""A conversation that is deleted while people watch it, and its id in a second life."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from tests.support.gateway_line import Line, principal
from tests.support.gateway_world import World
from torpor.gateway.options import GatewayOptions
from torpor.records.frames import (
    Cursor,
    Delete,
    Done,
    ErrorFrame,
    EventFrame,
    Reload,
    Resumed,
    Send,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from torpor.records.ids import ConversationKey, MessageId

_Kind = TypeVar("_Kind")
KEY = ConversationKey("default", "alice", "c1")


@asynccontextmanager
async def lines(world: World, count: int = 1, **options: float) -> AsyncIterator[list[Line]]:
    async with anyio.create_task_group() as tasks:
        opened = [
            Line(
                world,
                tasks,
                options=GatewayOptions(**{"replay_age_max_s": 1e12, **options}),  # type: ignore[arg-type]  # some are int
                principal=principal("alice"),
            )
            for _ in range(count)
        ]
        yield opened
        for line in opened:
            line.session.end()
        tasks.cancel_scope.cancel()


async def next_of(line: Line, kind: type[_Kind]) -> _Kind:
    """The next frame of this kind, whatever comes before."""
    *_, last = await line.hear_until(lambda heard: isinstance(heard, kind))
    assert isinstance(last, kind)
    return last


def watching(cursor: Cursor | None = None, *, name: str = "c1") -> Subscribe:
    return Subscribe(subscription=Subscription(conversation=name, cursor=cursor))


async def test_who_deletes_is_told_when_it_is_done_and_who_watches_that_it_is_gone() -> None:
    world = World()
    world.converse(KEY, turns=1)
    async with lines(world, 2) as (one, other):
        other.say(watching())
        assert (await other.hear_a(Reload)).head == 4
        await anyio.wait_all_tasks_blocked()
        one.say(Delete(ref="r", conversation="c1"))
        assert (await one.hear_a(Done)).ref == "r"
        told = await other.hear_a(ErrorFrame)
        assert (told.code, told.conversation, told.ref) == ("conversation_deleted", "c1", "")
        assert not world.bus.is_watched(KEY)
        one.say(Delete(ref="again", conversation="c1"))
        assert (await one.hear_a(ErrorFrame)).code == "unknown_conversation"


async def test_a_cursor_of_the_life_before_is_answered_by_reload() -> None:
    world = World()
    world.converse(KEY, turns=2)
    async with lines(world) as (line,):
        line.say(watching())
        before = await line.hear_a(Reload)
        await world.delete(KEY, principal="alice")
        world.converse(KEY, turns=3)
        line.say(watching(Cursor(epoch=before.epoch, event=before.head)))
        after = await next_of(line, Reload)
        assert after.epoch > before.epoch
        line.say(watching(Cursor(epoch=after.epoch, event=8)))
        assert (await line.hear_a(Resumed)).epoch == after.epoch
        assert [(await line.hear_a(EventFrame)).epoch for _ in range(4)] == [after.epoch] * 4


async def test_what_begins_while_it_is_watched_goes_on_with_the_numbers_that_were_told() -> None:
    world = World()
    async with lines(world) as (line,):
        line.say(watching())
        told = await line.hear_a(Reload)
        assert (told.head, told.status.state) == (0, "new")
        await anyio.wait_all_tasks_blocked()
        line.say(Send(ref="s", conversation="c1", message_id=MessageId("m1"), text="hello"))
        event = await next_of(line, EventFrame)
        assert (event.epoch, event.event.event) == (told.epoch, 1)


async def test_where_another_deletion_came_between_the_client_is_told_the_epoch_anew() -> None:
    world = World()
    other = ConversationKey("default", "bob", "c1")
    world.converse(other, turns=1)
    async with lines(world) as (line,):
        line.say(watching())
        told = await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        await world.delete(other, principal="bob")
        line.say(Send(ref="s", conversation="c1", message_id=MessageId("m1"), text="hello"))
        again = await next_of(line, Reload)
        assert again.epoch > told.epoch
        world.converse(KEY, turns=1)
        assert (await next_of(line, EventFrame)).epoch == again.epoch


async def test_what_is_gone_takes_no_place_among_those_watched() -> None:
    world = World()
    world.converse(KEY, turns=1)
    async with lines(world, subscriptions_max=1) as (line,):
        line.say(watching())
        await line.hear_a(Reload)
        await world.delete(KEY, principal="alice")
        assert (await line.hear_a(ErrorFrame)).code == "conversation_deleted"
        line.say(watching(name="c2"))
        assert (await line.hear_a(Reload)).conversation == "c2"
        line.say(Unsubscribe(conversation="c1", ref="u"))
        assert (await line.hear_a(Done)).ref == "u"
