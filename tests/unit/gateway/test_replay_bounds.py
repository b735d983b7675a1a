"""How far back a cursor may be and still be continued."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.support.gateway_line import Line
from tests.support.gateway_world import World
from torpor.records.frames import Cursor, EventFrame, Reload, Resumed, Subscribe, Subscription
from torpor.records.ids import ConversationKey

KEY = ConversationKey("default", "alice", "c1")
Opened = Callable[..., AbstractAsyncContextManager[Line]]


def watch(cursor: int) -> Subscribe:
    return Subscribe(subscription=Subscription(conversation="c1", cursor=Cursor(event=cursor)))


def numbers(frames: list[Any]) -> list[int]:
    return [frame.event.event for frame in frames if isinstance(frame, EventFrame)]


def is_event(number: int) -> Callable[[Any], bool]:
    return lambda frame: isinstance(frame, EventFrame) and frame.event.event == number


@pytest.mark.parametrize(("behind", "is_replayed"), [(8, True), (9, False)])
async def test_a_cursor_that_is_too_far_behind_is_reloaded(
    behind: int, is_replayed: bool, world: World, opened: Opened
) -> None:
    world.converse(KEY, turns=5)
    async with opened(replay_events_max=8, reload_events_max=2) as line:
        line.say(watch(20 - behind))
        answer = await line.hear()
        if is_replayed:
            assert isinstance(answer, Resumed)
            assert numbers(await line.hear_until(is_event(20))) == list(range(13, 21))
        else:
            assert isinstance(answer, Reload)
            assert [event.event for event in answer.events] == [19, 20]


@pytest.mark.parametrize(("after_s", "is_replayed"), [(3600, True), (3601, False)])
async def test_events_that_are_too_old_are_not_replayed(
    after_s: float, is_replayed: bool, world: World, opened: Opened
) -> None:
    world.converse(KEY, turns=1)
    async with opened(replay_age_max_s=3600.0) as line:
        line.clock.advance(after_s)
        line.say(watch(3))
        assert isinstance(await line.hear(), Resumed if is_replayed else Reload)


async def test_a_cursor_at_the_head_is_resumed_however_old_that_is(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    async with opened(replay_age_max_s=3600.0, replay_events_max=0) as line:
        line.clock.advance(9_999_999)
        line.say(watch(4))
        await line.hear_a(Resumed)
