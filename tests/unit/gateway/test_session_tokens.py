"""A token that is renewed, that ends, and that has to wait for the key that checks it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.support.gateway_line import Line, ManualClock, token_for
from tests.support.gateway_world import World
from tests.support.issuer import issued, issuer_options, key_set, public_jwk
from torpor.gateway.authenticator import Trusted
from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.key_set import KeySet, read_key_set
from torpor.gateway.options import GatewayOptions
from torpor.records.frames import (
    Accepted,
    ClientFrame,
    ErrorFrame,
    EventFrame,
    Hello,
    ListJobs,
    Reload,
    Result,
    Send,
    Subscribe,
    Subscription,
    Welcome,
)
from torpor.records.ids import ConversationKey, MessageId

Opened = Callable[..., AbstractAsyncContextManager[Line]]
OWN, FOREIGN = ConversationKey("default", "alice", "c1"), ConversationKey("default", "bob", "c1")


class Shelf:
    """Keys whose look for newer ones ends when a test says so; implements ``Keys``."""

    def __init__(self) -> None:
        self.keys: KeySet = read_key_set(key_set(public_jwk("ES256")))
        self.looked = anyio.Event()
        self.is_well = True

    async def renewed(self) -> bool:
        await self.looked.wait()
        if self.is_well:
            self.keys = read_key_set(key_set(public_jwk("ES256"), public_jwk("ES256", "next")))
        return self.is_well


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def opened(world: World, clock: ManualClock) -> Opened:
    """A line for the length of a block, of nobody yet."""

    @asynccontextmanager
    async def open_line(shelf: Shelf | None = None, **options: Any) -> Any:
        trusted = Trusted(keys=shelf, options=issuer_options()) if shelf is not None else None
        async with anyio.create_task_group() as tasks:
            line = Line(world, tasks, clock=clock, options=GatewayOptions(**options), trusted=trusted)
            yield line
            line.session.end()
            tasks.cancel_scope.cancel()

    return open_line


def send(message_id: str) -> Send:
    return Send(ref=message_id, conversation="c1", message_id=MessageId(message_id), text="hello")


def watch(conversation: str) -> ClientFrame:
    return Subscribe(subscription=Subscription(conversation=conversation))


async def test_subscriptions_live_on_when_the_token_is_renewed(
    world: World, opened: Opened, clock: ManualClock
) -> None:
    async with opened() as line:
        line.say(Hello(token=token_for("alice", clock=clock, lifetime_s=60)))
        line.say(watch("c1"))
        await line.hear_until(lambda frame: isinstance(frame, Reload))
        line.say(Hello(token=token_for("alice", clock=clock, lifetime_s=6_000)))
        await line.hear_a(Welcome)
        clock.advance(600)
        line.session.check()
        assert line.outbox.closing is None
        world.converse(OWN, turns=1)

        events = [await line.hear_a(EventFrame) for _ in range(4)]
    assert [frame.event.event for frame in events] == [1, 2, 3, 4]


async def test_a_newer_token_decides_at_once_what_may_be_done(opened: Opened, clock: ManualClock) -> None:
    async with opened() as line:
        for scopes in (("chat",), ("operator",), ("chat",)):
            line.say(Hello(token=token_for("alice", clock=clock, scopes=scopes)))
            line.say(ListJobs(ref="r"))

        answers = [await line.hear() for _ in range(6)]
    assert [type(answer) for answer in answers if not isinstance(answer, Welcome)].count(Result) == 1
    errors = [answer for answer in answers if isinstance(answer, ErrorFrame)]
    assert [error.code for error in errors] == ["not_permitted", "not_permitted"]


async def test_what_an_operator_watched_of_others_ends_with_the_scope(
    world: World, opened: Opened, clock: ManualClock
) -> None:
    async with opened() as line:
        line.say(Hello(token=token_for("alice", clock=clock, scopes=("operator",))))
        for name in ("bob/c1", "c1"):
            line.say(watch(name))
            await line.hear_until(lambda frame: isinstance(frame, Reload))
        line.say(Hello(token=token_for("alice", clock=clock)))
        error = await line.hear_a(ErrorFrame)
        await line.hear_a(Welcome)
        world.converse(FOREIGN, turns=1)
        world.converse(OWN, turns=1)
        events = [await line.hear_a(EventFrame) for _ in range(4)]

    assert (error.code, error.conversation) == ("unknown_conversation", "bob/c1")
    assert {frame.conversation for frame in events} == {"c1"}


async def test_without_the_scope_to_chat_nothing_is_watched(world: World, opened: Opened, clock: ManualClock) -> None:
    async with opened() as line:
        line.say(Hello(token=token_for("alice", clock=clock)))
        line.say(watch("c1"))
        await line.hear_until(lambda frame: isinstance(frame, Reload))
        line.say(Hello(token=token_for("alice", clock=clock, scopes=())))

        assert (await line.hear_a(ErrorFrame)).conversation == "c1"
        await line.hear_a(Welcome)


async def test_a_frame_after_the_end_of_the_token_closes_with_a_code_of_its_own(
    opened: Opened, clock: ManualClock
) -> None:
    async with opened() as line:
        line.say(Hello(token=token_for("alice", clock=clock, lifetime_s=60)))
        await line.hear_a(Welcome)
        clock.advance(66)
        line.say(send("m1"))

        assert (await line.hear_a(ErrorFrame)).code == "token_expired"
        assert await line.hear() is None
        assert line.outbox.closing is CloseReason.TOKEN_EXPIRED


async def test_a_newer_token_comes_in_time_until_the_very_end(opened: Opened, clock: ManualClock) -> None:
    async with opened() as line:
        line.say(Hello(token=token_for("alice", clock=clock, lifetime_s=60)))
        await line.hear_a(Welcome)
        clock.advance(66)
        line.say(Hello(token=token_for("alice", clock=clock, lifetime_s=60)))
        await line.hear_a(Welcome)
        line.session.check()
        line.say(send("m1"))

        await line.hear_a(Accepted)


async def test_frames_behind_a_hello_that_waits_for_a_key_are_held(
    world: World, opened: Opened, clock: ManualClock
) -> None:
    shelf = Shelf()
    async with opened(shelf) as line:
        line.say(send("m0"))
        line.say(Hello(ref="h", token=issued(clock, "ES256", "next")))
        line.say(send("m1"))
        line.say(Hello(ref="i", token=issued(clock, "ES256", "next", scope="operator")))
        line.say(send("m2"))
        await anyio.wait_all_tasks_blocked()
        assert world.posted == []
        shelf.looked.set()
        frames = [await line.hear() for _ in range(5)]

    welcomes = [(frame.ref, frame.scopes) for frame in frames if isinstance(frame, Welcome)]
    assert welcomes == [("h", ("chat",)), ("i", ("operator",))]
    assert [getattr(command, "message_id", "") for _, command in world.posted] == ["m0", "m1", "m2"]


async def test_a_known_person_is_served_while_the_key_of_a_newer_token_is_looked_for(
    world: World, opened: Opened, clock: ManualClock
) -> None:
    shelf = Shelf()
    async with opened(shelf, held_frames_max=2) as line:
        line.say(Hello(token=issued(clock, "ES256")))
        await line.hear_a(Welcome)
        line.say(Hello(ref="h", token=issued(clock, "ES256", "next")))
        await anyio.wait_all_tasks_blocked()
        for number in range(5):
            line.say(send(f"m{number}"))
            await line.hear_a(Accepted)
        assert line.outbox.closing is None
        shelf.looked.set()

        assert (await line.hear_a(Welcome)).ref == "h"


async def test_a_known_person_is_served_again_when_the_newer_token_cannot_be_checked(
    opened: Opened, clock: ManualClock
) -> None:
    shelf = Shelf()
    shelf.is_well = False
    async with opened(shelf) as line:
        line.say(Hello(token=issued(clock, "ES256")))
        await line.hear_a(Welcome)
        line.say(Hello(ref="h", token=issued(clock, "ES256", "next")))
        line.say(send("m1"))
        shelf.looked.set()

        await line.hear_a(Accepted)
        assert (await line.hear_a(ErrorFrame)).code == "keys_unavailable"
        line.say(send("m2"))
        await line.hear_a(Accepted)


async def test_nobody_yet_is_told_to_come_again_when_the_token_cannot_be_checked(
    world: World, opened: Opened, clock: ManualClock
) -> None:
    shelf = Shelf()
    shelf.is_well = False
    async with opened(shelf) as line:
        line.say(Hello(token=issued(clock, "ES256", "next")))
        line.say(send("m1"))
        shelf.looked.set()

        assert (await line.hear_a(ErrorFrame)).code == "keys_unavailable"
        assert await line.hear() is None
        assert line.outbox.closing is CloseReason.KEYS_UNAVAILABLE
        assert world.posted == []


async def test_a_newer_token_of_somebody_else_changes_nothing(opened: Opened, clock: ManualClock) -> None:
    shelf = Shelf()
    async with opened(shelf) as line:
        line.say(Hello(token=issued(clock, "ES256")))
        await line.hear_a(Welcome)
        line.say(Hello(token=issued(clock, "ES256", "next", sub="eve")))
        shelf.looked.set()
        assert (await line.hear_a(ErrorFrame)).code == "bad_frame"
        line.say(send("m1"))

        await line.hear_a(Accepted)


async def test_waiting_for_a_key_is_bounded_like_waiting_for_hello(opened: Opened, clock: ManualClock) -> None:
    async with opened(Shelf(), held_frames_max=3, hello_deadline_s=10) as line:
        line.say(Hello(token=issued(clock, "ES256", "next")))
        for number in range(4):
            line.say(send(f"m{number}"))
        assert line.outbox.closing is CloseReason.HELD_TOO_MUCH
    async with opened(Shelf(), hello_deadline_s=10) as line:
        line.say(Hello(token=issued(clock, "ES256", "next")))
        clock.advance(10.1)
        line.session.check()
        assert line.outbox.closing is CloseReason.HELLO_OVERDUE


async def test_a_client_that_leaves_meanwhile_is_not_let_in(world: World, opened: Opened, clock: ManualClock) -> None:
    shelf = Shelf()
    async with opened(shelf) as line:
        line.say(Hello(token=issued(clock, "ES256", "next")))
        line.say(send("m1"))
        await anyio.wait_all_tasks_blocked()
        line.session.end()
        shelf.looked.set()
        await anyio.wait_all_tasks_blocked()

        assert world.posted == []
        assert "ENDED" in repr(line.session)
