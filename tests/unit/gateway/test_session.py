"""Who a client is, and that its frames are taken in any order, one after the other."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import permutations
from typing import Any

import anyio
import pytest

from tests.support.gateway_line import Line, ManualClock, principal, token_for
from tests.support.gateway_world import Durable, World
from torpor.errors import IllegalTransition
from torpor.gateway.auth import mint
from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.options import GatewayOptions
from torpor.gateway.session import TRANSITIONS, Signal, State, next_state
from torpor.records.binary import packed
from torpor.records.commands import CancelTurn, SendMessage
from torpor.records.frames import (
    Accepted,
    Ack,
    Cancel,
    ClientFrame,
    Cursor,
    ErrorFrame,
    EventFrame,
    Hello,
    Reload,
    Resumed,
    Send,
    Subscribe,
    Subscription,
    Welcome,
)
from torpor.records.ids import ConversationKey, MessageId

KEY = ConversationKey("default", "alice", "c1")
Opened = Callable[..., AbstractAsyncContextManager[Line]]


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
    async def open_line(*, principal: Any = None, **options: Any) -> Any:
        async with anyio.create_task_group() as tasks:
            line = Line(world, tasks, clock=clock, options=GatewayOptions(**options), principal=principal)
            yield line
            line.session.end()
            tasks.cancel_scope.cancel()

    return open_line


def send(message_id: str = "m1", text: str = "hello") -> Send:
    return Send(ref=message_id, conversation="c1", message_id=MessageId(message_id), text=text)


def watch(cursor: int | None = None) -> Subscribe:
    return Subscribe(subscription=_watched(cursor))


def _watched(cursor: int | None) -> Subscription:
    return Subscription(conversation="c1", cursor=None if cursor is None else Cursor(event=cursor))


@pytest.mark.parametrize("signal", Signal)
@pytest.mark.parametrize("state", State)
def test_every_cell_of_the_table(state: State, signal: Signal) -> None:
    if (state, signal) in TRANSITIONS:
        assert next_state(state, signal) is TRANSITIONS[state, signal]
    else:
        with pytest.raises(IllegalTransition):
            next_state(state, signal)


async def test_hello_is_answered_by_who_one_is(opened: Opened, clock: ManualClock) -> None:
    token = token_for("alice", clock=clock, owner="ward-7", tenant="clinic", scopes=("chat", "operator"))
    async with opened() as line:
        line.say(Hello(ref="r1", token=token))

        assert await line.hear_a(Welcome) == Welcome(
            principal="alice",
            tenant="clinic",
            owner="ward-7",
            scopes=("chat", "operator"),
            expires_at_us=clock.now_us() + 3_600_000_000,
            frame_bytes_max=GatewayOptions().frame_bytes_max,
            ref="r1",
        )


async def test_hello_begins_its_subscriptions(world: World, opened: Opened, clock: ManualClock) -> None:
    world.converse(KEY, turns=1)
    async with opened() as line:
        line.say(Hello(token=token_for("alice", clock=clock), subscriptions=(_watched(3), _watched(3))))
        await line.hear_a(Welcome)
        await line.hear_a(Resumed)

        assert (await line.hear_a(EventFrame)).event.event == 4


async def test_whatever_answers_a_subscription_carries_the_ref_of_its_frame(
    world: World, opened: Opened, clock: ManualClock
) -> None:
    world.converse(KEY, turns=1)
    async with opened() as line:
        line.say(Hello(ref="h", token=token_for("alice", clock=clock), subscriptions=(_watched(4),)))
        await line.hear_a(Welcome)
        assert (await line.hear_a(Resumed)).ref == "h"
        line.say(Subscribe(ref="s", subscription=_watched(None)))
        assert (await line.hear_a(Reload)).ref == "s"


async def test_one_bad_subscription_in_hello_costs_no_other_one(
    world: World, opened: Opened, clock: ManualClock
) -> None:
    world.converse(KEY, turns=1)
    bad = Subscription(conversation="no such name!")
    async with opened() as line:
        line.say(Hello(ref="r1", token=token_for("alice", clock=clock), subscriptions=(bad, _watched(None))))
        await line.hear_a(Welcome)
        error = await line.hear_a(ErrorFrame)
        await line.hear_a(Reload)

    assert (error.code, error.ref, error.conversation) == ("bad_frame", "r1", "no such name!")


@pytest.mark.parametrize("order", [*permutations(range(4))])
async def test_first_frames_in_any_order_have_the_same_effect(
    order: tuple[int, ...], world: World, opened: Opened, clock: ManualClock
) -> None:
    world.converse(KEY, turns=1)
    frames: list[ClientFrame] = [Hello(token=token_for("alice", clock=clock)), watch(2), watch(2), send()]
    async with opened() as line:
        for index in order:
            line.say(frames[index])
        first = await line.hear_a(Welcome)
        heard = await line.hear_until(lambda frame: isinstance(frame, EventFrame) and frame.event.event == 5)
        if not any(isinstance(frame, Accepted) for frame in heard):
            heard += await line.hear_until(lambda frame: isinstance(frame, Accepted))

    assert first.owner == "alice"
    assert [frame.event.event for frame in heard if isinstance(frame, EventFrame)] == [3, 4, 5]
    assert len([frame for frame in heard if isinstance(frame, Resumed)]) == 1
    assert len([command for _, command in world.posted if isinstance(command, SendMessage)]) == 1


async def test_frames_before_hello_are_served_in_their_order(world: World, opened: Opened, clock: ManualClock) -> None:
    async with opened() as line:
        for number in range(5):
            line.say(send(f"m{number}"))
        line.say(Cancel(conversation="c1"))
        assert world.posted == []
        line.say(Hello(token=token_for("alice", clock=clock)))
        await line.hear_a(Welcome)

    assert [getattr(command, "message_id", "cancel") for _, command in world.posted] == [
        "m0",
        "m1",
        "m2",
        "m3",
        "m4",
        "cancel",
    ]


@pytest.mark.parametrize("bounds", [{"held_frames_max": 3}, {"held_bytes_max": 300}])
async def test_too_much_before_hello_closes_the_connection(bounds: dict[str, int], opened: Opened) -> None:
    async with opened(**bounds) as line:
        for number in range(4):
            line.say(send(f"m{number}"))

        assert await line.hear() is None
        assert line.outbox.closing is CloseReason.HELD_TOO_MUCH


async def test_a_token_in_the_header_needs_no_hello(world: World, opened: Opened) -> None:
    async with opened(principal=principal("alice")) as line:
        line.say(send())

        assert (await line.hear_a(Accepted)).message_id == "m1"


async def test_hello_without_a_token_is_enough_after_a_header(opened: Opened) -> None:
    async with opened(principal=principal("alice")) as line:
        line.say(Hello())

        assert (await line.hear_a(Welcome)).principal == "alice"


def wrong_tokens(clock: ManualClock) -> dict[str, str]:
    return {
        "none": "",
        "garbage": "garbage",
        "expired": token_for("alice", clock=clock, lifetime_s=-60),
        "of another secret": mint(b"x" * 32, subject="alice", now_us=clock.now_us(), lifetime_s=60),
    }


@pytest.mark.parametrize("kind", wrong_tokens(ManualClock()))
async def test_hello_with_a_wrong_token_is_told_so_and_closed(
    kind: str, world: World, opened: Opened, clock: ManualClock
) -> None:
    async with opened() as line:
        line.say(send())
        line.say(Hello(ref="r1", token=wrong_tokens(clock)[kind]))
        error = await line.hear_a(ErrorFrame)

        code, reason = {
            "expired": ("token_expired", CloseReason.TOKEN_EXPIRED),
        }.get(kind, ("unauthenticated", CloseReason.UNAUTHENTICATED))
        assert (error.code, error.ref) == (code, "r1")
        assert await line.hear() is None
        assert line.outbox.closing is reason
        line.say(Hello(token=token_for("alice", clock=clock)))
        assert world.posted == []


async def test_hello_again_is_harmless_and_renews_the_token(world: World, opened: Opened, clock: ManualClock) -> None:
    async with opened() as line:
        line.say(Hello(token=token_for("alice", clock=clock, lifetime_s=60)))
        line.say(Hello(token=token_for("alice", clock=clock, lifetime_s=600, scopes=("chat", "operator"))))
        await line.hear_a(Welcome)
        assert (await line.hear_a(Welcome)).scopes == ("chat", "operator")
        clock.advance(300)
        line.session.check()
        line.say(send())

        await line.hear_a(Accepted)


async def test_frames_before_hello_are_served_once(world: World, opened: Opened, clock: ManualClock) -> None:
    async with opened() as line:
        line.say(send())
        for _ in range(2):
            line.say(Hello(token=token_for("alice", clock=clock)))
        await line.hear_until(lambda frame: isinstance(frame, Accepted))

    assert len(world.posted) == 1


async def test_hello_cannot_turn_into_somebody_else(opened: Opened, clock: ManualClock) -> None:
    async with opened(principal=principal("alice")) as line:
        line.say(Hello(token=token_for("bob", clock=clock)))
        assert (await line.hear_a(ErrorFrame)).code == "bad_frame"
        line.say(Hello())

        assert (await line.hear_a(Welcome)).principal == "alice"


async def test_a_token_that_expires_ends_the_connection_at_its_next_frame(
    world: World, opened: Opened, clock: ManualClock
) -> None:
    async with opened() as line:
        line.say(Hello(token=token_for("alice", clock=clock, lifetime_s=60)))
        await line.hear_a(Welcome)
        clock.advance(66)
        line.say(send())

        assert (await line.hear_a(ErrorFrame)).code == "token_expired"
        assert await line.hear() is None
        assert world.posted == []


async def test_a_token_that_expires_ends_a_connection_that_only_watches(opened: Opened, clock: ManualClock) -> None:
    async with opened() as line:
        line.say(Hello(token=token_for("alice", clock=clock, lifetime_s=60)))
        await line.hear_a(Welcome)
        line.session.check()
        assert line.outbox.closing is None
        clock.advance(66)
        line.session.check()

        assert line.outbox.closing is CloseReason.TOKEN_EXPIRED


async def test_a_client_that_says_no_hello_in_time_is_closed(opened: Opened, clock: ManualClock) -> None:
    async with opened(hello_deadline_s=10) as line:
        line.say(send())
        clock.advance(9.9)
        line.session.check()
        assert line.outbox.closing is None
        clock.advance(0.2)
        line.session.check()

        assert line.outbox.closing is CloseReason.HELLO_OVERDUE


async def test_a_frame_that_cannot_be_read_is_answered_and_costs_nothing_else(opened: Opened) -> None:
    async with opened(principal=principal("alice")) as line:
        line.say('{"frame":"send","ref":"r1","message_id":"m1","conversation":"c1"}')
        line.say("not json")
        line.session.receive_binary(b"\x00")
        line.session.receive_binary(packed(b'{"frame":"upload.piece","ref":"r2","upload":"u1","offset":-1}', b"x"))
        line.say(send())
        named = await line.hear_a(ErrorFrame)
        nameless = await line.hear_a(ErrorFrame)
        binary = await line.hear_a(ErrorFrame)
        piece = await line.hear_a(ErrorFrame)
        await line.hear_a(Accepted)

    assert (named.code, named.ref, named.message_id) == ("bad_frame", "r1", "m1")
    assert (nameless.code, nameless.ref) == ("bad_frame", "")
    assert "binary" in binary.message
    assert (piece.code, piece.ref) == ("bad_frame", "r2")


async def test_a_fault_of_the_server_is_answered_and_costs_nothing_else(world: World, opened: Opened) -> None:
    world.refusals.append(ZeroDivisionError("bug"))
    async with opened(principal=principal("alice")) as line:
        line.say(send("m1"))
        error = await line.hear_a(ErrorFrame)
        line.say(send("m2"))
        await line.hear_a(Accepted)

    assert (error.code, error.message_id) == ("internal", "m1")
    assert "bug" not in error.message


async def test_after_its_end_a_session_takes_nothing(world: World, opened: Opened) -> None:
    async with opened(principal=principal("alice")) as line:
        line.session.end()
        line.say(send())
        line.session.end()

    assert world.posted == []


async def test_a_client_that_leaves_withdraws_nothing(world: World, opened: Opened) -> None:
    world.durable = Durable()
    async with opened(principal=principal("alice")) as line:
        line.say(send())
        await anyio.wait_all_tasks_blocked()

    assert [type(command) for _, command in world.posted] == [SendMessage]
    assert not any(isinstance(command, CancelTurn) for _, command in world.posted)


async def test_repr_shows_state_and_counts(opened: Opened) -> None:
    async with opened() as line:
        line.say(Ack(conversation="c1", event=1))

        assert repr(line.session) == "<Session NEW held=1 <Desk subscriptions=0 waiting=0>>"
