"""Bytes that are no frames, and sockets left half open: they cost their connection, and leave nothing behind."""

import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection

from tests.support.gateway_house import Caller, House, gateway_house
from tests.support.protocol_page import CLOSE_CODES
from tests.support.raw_sockets import close_codes, frames_in, masked, opened, rest_of
from tests.support.rude_frames import raw_frames, texts
from torpor.gateway.outbox import Outbox
from torpor.gateway.session import Session
from torpor.gateway.subscription import Subscription
from torpor.gateway.writer import Writer
from torpor.records.frames import Done, Unsubscribe

OF_A_CONNECTION = (ServerConnection, Session, Outbox, Writer, Subscription)
STANDARD_CODES = {1000, 1002, 1003, 1007, 1009, 1011}
"""Of WebSocket itself, for what is no frame."""
IMPATIENT: Any = {"close_deadline_s": 0.05, "ping_interval_s": 0.1, "ping_deadline_s": 0.1}
PONG = 0xA
WATCH = '{"frame":"subscribe","subscription":{"conversation":"c1"}}'
ROUNDS = 60


async def still_served(caller: Caller) -> None:
    await caller.say(Unsubscribe(ref="probe", conversation="c1"))
    await caller.hear_until(lambda frame: isinstance(frame, Done) and frame.ref == "probe")


@given(frames=st.lists(raw_frames(), min_size=1, max_size=4))
async def test_bytes_that_are_no_frames_end_their_connection_with_a_code_or_are_waited_for(
    frames: list[bytes],
) -> None:
    async with gateway_house(**IMPATIENT) as house, house.call() as good:
        async with await opened(house) as stream:
            with suppress(anyio.BrokenResourceError):
                await stream.send(b"".join(frames))
                await stream.send_eof()
            heard = await rest_of(stream)
        await still_served(good)

    assert b"Traceback" not in heard
    assert b'File "' not in heard
    assert close_codes(heard) <= STANDARD_CODES | CLOSE_CODES


@given(text=texts())
async def test_a_frame_in_pieces_is_answered_like_one(text: str) -> None:
    data = text.encode()
    async with gateway_house() as house, await opened(house) as stream:
        half = len(data) // 2
        await stream.send(masked(data[:half], first=0x01) + masked(b"", first=0x89) + masked(data[half:], first=0x80))
        await stream.send(masked(b"", first=0x88))
        in_pieces = await rest_of(stream)
        async with await opened(house) as other:
            await other.send(masked(data) + masked(b"", first=0x88))
            whole = await rest_of(other)

    answered = frames_in(in_pieces)
    answered.remove((PONG, b""))
    assert answered == frames_in(whole)


async def leave_politely(stream: SocketStream) -> None:
    await stream.send(masked(b"", first=0x88))
    await rest_of(stream)


async def leave_half_open(stream: SocketStream) -> None:
    await stream.send_eof()
    await rest_of(stream)


async def stay_silent(stream: SocketStream) -> None:
    """Answers no ping until it is cut."""
    await rest_of(stream)


async def stop_within_a_frame(stream: SocketStream) -> None:
    await stream.send(b"\x81\xfe\xff")
    await rest_of(stream)


async def break_the_rules(stream: SocketStream) -> None:
    await stream.send(b"\x81\x05hello")
    await rest_of(stream)


async def vanish(stream: SocketStream) -> None:
    await stream.send(masked(WATCH.encode()))


Way = Callable[[SocketStream], Awaitable[None]]
WAYS: tuple[Way, ...] = (leave_politely, leave_half_open, stay_silent, stop_within_a_frame, break_the_rules, vanish)


def left_behind() -> Counter[str]:
    gc.collect()
    kinds = Counter(type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, OF_A_CONNECTION))
    kinds["task"] = len(anyio.get_running_tasks())
    return kinds


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_nothing_is_left_of_connections_that_ended_badly(way: Way) -> None:
    async with gateway_house(**IMPATIENT, connections_per_principal_max=2 * ROUNDS) as house:
        before = left_behind()
        async with anyio.create_task_group() as tasks:
            for _ in range(ROUNDS):
                tasks.start_soon(once, house, way)
        await house.empty()
        with anyio.fail_after(10):
            while (after := left_behind()) != before:  # noqa: ASYNC110 - handlers are on their way out, and tell nobody
                await anyio.sleep(0.01)
        statistics = house.gateway.statistics()

    assert after == before
    assert (statistics.connections, statistics.waiting_bytes) == (0, 0)
    assert statistics.opened == ROUNDS


async def once(house: House, way: Way) -> None:
    async with await opened(house) as stream:
        await stream.send(masked(WATCH.encode()))
        await way(stream)
