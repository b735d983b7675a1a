"""What one person may do to the server over all their connections."""

import heapq
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.support.gateway_line import Line, ManualClock, principal, token_for
from tests.support.gateway_world import Durable, World
from torpor.errors import TooManyFrames
from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.limits import Limits, Share
from torpor.gateway.options import GatewayOptions
from torpor.records.frames import (
    Accepted,
    Cursor,
    Done,
    ErrorFrame,
    Hello,
    Refresh,
    Reload,
    Resumed,
    Send,
    Subscribe,
    Subscription,
    Unsubscribe,
    Welcome,
)
from torpor.records.ids import ConversationKey, MessageId

KEY = ConversationKey("default", "alice", "c1")
NOTHING = Unsubscribe(ref="r", conversation="c1")
Opened = Callable[..., AbstractAsyncContextManager[Line]]


class House:
    """The limits that several connections share."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.options = GatewayOptions(**options)
        self.limits = Limits(self.options, now_s=self.clock.monotonic_s)
        self.world = World()

    @asynccontextmanager
    async def line(self, who: Any = None) -> Any:
        async with anyio.create_task_group() as tasks:
            line = Line(self.world, tasks, clock=self.clock, options=self.options, principal=who, limits=self.limits)
            yield line
            line.session.end()
            tasks.cancel_scope.cancel()


async def test_the_time_to_wait_is_told_in_milliseconds() -> None:
    house = House(frames_per_s=3.0, frames_burst=1)
    async with house.line(principal("alice")) as line:
        for _ in range(2):
            line.say(NOTHING)
        await line.hear_a(Done)
        assert (await line.hear_a(ErrorFrame)).retry_after_s == 0.333


async def test_frames_beyond_the_rate_are_refused_with_the_time_to_wait() -> None:
    house = House(frames_per_s=2.0, frames_burst=3)
    async with house.line(principal("alice")) as line:
        for _ in range(3):
            line.say(NOTHING)
            await line.hear_a(Done)
        line.say(Subscribe(subscription=Subscription(conversation="c2")))
        assert (await line.hear_a(ErrorFrame)).conversation == "c2"
        house.clock.advance(0.25)
        line.say(Refresh(ref="x", conversation="c1"))
        refused = await line.hear_a(ErrorFrame)
        assert (refused.code, refused.ref, refused.conversation) == ("too_many_frames", "x", "c1")
        assert refused.retry_after_s == pytest.approx(0.75), (
            "the one before it comes first, half a second after it came"
        )
        assert house.world.posted == []

        house.clock.advance(refused.retry_after_s)
        line.say(NOTHING)
        await line.hear_a(Done)


def test_all_who_come_back_when_they_were_told_to_are_served_at_the_rate() -> None:
    share = Share(rate=50.0, burst=100, now_s=0.0)
    waiting = [(0.0, number) for number in range(300)]
    times: list[float] = []
    while waiting and len(times) < 10_000:
        now_s, number = heapq.heappop(waiting)
        times.append(now_s)
        try:
            share.pay(now_s=now_s)
        except TooManyFrames as refused:
            heapq.heappush(waiting, (now_s + (refused.retry_after_s or 0.0), number))
    assert waiting == []
    assert times[-1] < 300 / 50.0 + 0.1


async def test_the_rate_is_of_the_person_over_all_connections_and_of_nobody_else() -> None:
    house = House(frames_per_s=1.0, frames_burst=2)
    async with house.line(principal("alice")) as one, house.line(principal("alice")) as two:
        one.say(NOTHING)
        two.say(NOTHING)
        two.say(NOTHING)
        await one.hear_a(Done)
        await two.hear_a(Done)
        assert (await two.hear_a(ErrorFrame)).code == "too_many_frames"
        async with house.line(principal("bob")) as three:
            three.say(NOTHING)
            await three.hear_a(Done)


async def test_leaving_and_coming_back_gains_nothing() -> None:
    house = House(frames_per_s=1.0, frames_burst=1)
    for expected in (Done, ErrorFrame):
        async with house.line(principal("alice")) as line:
            line.say(NOTHING)
            await line.hear_a(expected)
        house.limits.sweep()


async def test_frames_that_cannot_be_read_count_too_and_a_flood_is_closed() -> None:
    house = House(frames_per_s=1.0, frames_burst=3)
    async with house.line(principal("alice")) as line:
        for _ in range(6):
            line.say("no frame")
        codes = [(await line.hear_a(ErrorFrame)).code for _ in range(6)]
        assert codes == ["bad_frame"] * 3 + ["too_many_frames"] * 3
        assert await line.hear() is None
        assert line.outbox.closing is CloseReason.TOO_MANY_FRAMES


async def test_each_subscription_of_a_hello_counts_as_a_frame() -> None:
    house = House(frames_per_s=1.0, frames_burst=3)
    async with house.line(principal("alice")) as line:
        watched = tuple(Subscription(conversation=f"c{number}") for number in range(4))
        line.say(Hello(ref="h", subscriptions=watched))
        frames = [await line.hear() for _ in range(5)]

    refused = [frame for frame in frames if isinstance(frame, ErrorFrame)]
    assert [(frame.code, frame.ref, frame.conversation) for frame in refused] == [
        ("too_many_frames", "h", "c2"),
        ("too_many_frames", "h", "c3"),
    ]
    assert {frame.conversation for frame in frames if isinstance(frame, Reload)} == {"c0", "c1"}


async def test_a_hello_with_more_subscriptions_than_may_be_watched_begins_none() -> None:
    house = House(subscriptions_max=2)
    async with house.line(principal("alice")) as line:
        line.say(Hello(ref="h", subscriptions=(Subscription(conversation="c1"),) * 3))
        await line.hear_a(Welcome)
        error = await line.hear_a(ErrorFrame)
        line.say(NOTHING)
        await line.hear_a(Done)

    assert (error.code, error.ref) == ("too_many_subscriptions", "h")
    assert not house.world.bus.is_watched(KEY)


async def test_a_conversation_that_a_hello_names_twice_is_watched_once_from_the_last_cursor() -> None:
    house = House(frames_per_s=1.0, frames_burst=2)
    house.world.converse(KEY, turns=1)
    async with house.line(principal("alice")) as line:
        places = (Subscription(conversation="c1"), Subscription(conversation="c1", cursor=Cursor(event=4)))
        line.say(Hello(subscriptions=places))
        await line.hear_a(Welcome)
        await line.hear_a(Resumed)
        await anyio.wait_all_tasks_blocked()
        assert line.outbox.take() is None


async def test_binary_frames_count_too() -> None:
    house = House(frames_per_s=1.0, frames_burst=1)
    async with house.line(principal("alice")) as line:
        line.session.receive_binary(b"")
        line.session.receive_binary(b"")
        assert [(await line.hear_a(ErrorFrame)).code for _ in range(2)] == ["bad_frame", "too_many_frames"]


async def test_a_flood_before_hello_is_closed_whatever_is_in_it() -> None:
    house = House(held_frames_max=3)
    async with house.line() as line:
        for _ in range(4):
            line.say("no frame")
        assert line.outbox.closing is CloseReason.HELD_TOO_MUCH


async def test_connections_of_one_person_are_bounded() -> None:
    house = House(connections_per_principal_max=2, connections_retry_s=7.0)
    async with house.line(principal("alice")), house.line() as two:
        two.say(Hello(token=token_for("alice", clock=house.clock)))
        await two.hear_a(Welcome)
        for who in (principal("alice"), None):
            async with house.line(who) as three:
                if who is None:
                    three.say(Hello(ref="h", token=token_for("alice", clock=house.clock)))
                refused = await three.hear_a(ErrorFrame)
                assert (refused.code, refused.retry_after_s) == ("too_many_connections", 7.0)
                assert await three.hear() is None
                assert three.outbox.closing is CloseReason.TOO_MANY_CONNECTIONS
        async with house.line(principal("bob")) as other:
            other.say(NOTHING)
            await other.hear_a(Done)


async def test_a_place_is_free_again_when_a_connection_ends() -> None:
    house = House(connections_per_principal_max=1)
    for _ in range(3):
        async with house.line(principal("alice")) as line:
            line.say(Hello(token=token_for("alice", clock=house.clock)))  # a newer token takes no second place
            await line.hear_a(Welcome)
            line.session.end()


async def test_whom_nothing_is_to_be_remembered_of_is_forgotten() -> None:
    house = House(frames_per_s=1.0, frames_burst=5)
    for number in range(50):
        async with house.line(principal(f"guest-{number}")) as line:
            line.say(NOTHING)
            await line.hear_a(Done)
    house.limits.sweep()
    assert repr(house.limits) == "<Limits people=50>"
    house.clock.advance(1)
    house.limits.sweep()
    assert repr(house.limits) == "<Limits people=0>"


@pytest.mark.parametrize("what", ["nothing", "watching", "watched what is gone", "waiting", "speaking"])
async def test_a_connection_on_which_nothing_goes_on_is_closed(what: str) -> None:
    house = House(idle_timeout_s=60.0)
    is_idle = what in {"nothing", "watched what is gone"}
    async with house.line(principal("alice")) as line:
        if what.startswith("watch"):
            line.say(Subscribe(subscription=Subscription(conversation="c1")))
            await line.hear_a(Reload)
        if what == "watched what is gone":
            house.world.bus.publish_gone(KEY)
            assert (await line.hear_a(ErrorFrame)).code == "conversation_deleted"
        if what == "waiting":
            house.world.durable = Durable()
            line.say(Send(conversation="c1", message_id=MessageId("m1"), text="hello"))
            await anyio.wait_all_tasks_blocked()
        house.clock.advance(59)
        line.session.check()
        assert line.outbox.closing is None
        if what == "speaking":
            line.say(NOTHING)
        house.clock.advance(1)
        line.session.check()
        assert line.outbox.closing is (CloseReason.IDLE if is_idle else None)
        if house.world.durable is not None:
            house.world.durable.set()
            await line.hear_a(Accepted)


async def test_a_client_that_stays_slow_is_closed_and_one_that_catches_up_is_not() -> None:
    house = House(outbox_frames_max=4, slow_deadline_s=0.05)
    house.world.converse(KEY, turns=4)
    async with house.line(principal("alice")) as line:
        line.say(Subscribe(subscription=Subscription(conversation="c1")))
        await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        for catches_up in (True, False):
            house.world.converse(KEY, turns=4)
            await anyio.wait_all_tasks_blocked()
            if catches_up:
                for _ in range(16):
                    await line.hear()
            with anyio.fail_after(5):
                while not catches_up and not line.outbox.is_behind(for_s=0.05):
                    await anyio.lowlevel.checkpoint()
            line.session.check()
            assert line.outbox.closing is (None if catches_up else CloseReason.OVERFLOW)
