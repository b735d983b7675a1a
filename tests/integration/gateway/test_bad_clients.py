"""Clients that send nonsense, never read, or vanish: each costs itself its connection and nobody else anything."""

import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import anyio
import pytest
from anyio.abc import ByteStream

from tests.support.gateway_house import Caller, House, gateway_house
from tests.support.gateway_line import token_for
from tests.support.gateway_world import Durable, World
from torpor.gateway.close_reasons import CloseReason
from torpor.records.frames import Accepted, ErrorFrame, EventFrame, Reload, Send
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import TurnFinished, TurnPrepared

KEY = ConversationKey("default", "alice", "c1")
OTHER = ConversationKey("default", "alice", "c2")


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with gateway_house() as opened:
        yield opened


async def still_works(caller: Caller) -> None:
    """A message is still accepted on this connection."""
    await caller.say(Send(ref="probe", conversation="c1", message_id=MessageId("probe"), text="are you there?"))
    await caller.hear_until(lambda frame: isinstance(frame, Accepted) and frame.ref == "probe")


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "not json",
        "null",
        "[]",
        '{"frame":"dance"}',
        '{"frame":"send"}',
        '{"frame":"send","conversation":1,"message_id":"m","text":"x"}',
        '{"frame":"hello","subscriptions":[{"conversation":"c1","cursor":{"event":"5"}}]}',
        '{"frame":"hello","x":' + "[" * 20_000 + "]" * 20_000 + "}",
        '{"frame":"hello","ref":"\\ud83d","x":' + "[" * 20_000 + "]" * 20_000 + "}",
        '{"frame":"ack","conversation":"c1","event":' + "9" * 10_000 + "}",
        '{"frame":"unsubscribe","conversation":"\\ud83d"}',
        '{"frame":"unsubscribe","conversation":"../../../etc"}',
        " \t\r\n ",
        "\ufeff",
        '\ufeff{"frame":"unsubscribe","conversation":"c1"}',
        "1",
        "-0.0",
        "true",
        '"frame"',
        "{}",
        '{"frame":null}',
        '{"frame":{}}',
        '{"frame":"unsubscribe","conversation":"c1"} {}',
        b'{"frame":"unsubscribe","conversation":"c1"}',
        b"\x00\x01binary",
        b"",
    ],
)
async def test_a_bad_frame_is_answered_and_the_connection_goes_on(frame: str | bytes, house: House) -> None:
    async with house.call() as caller:
        await caller.say(frame)
        error = await caller.hear_a(ErrorFrame)
        await still_works(caller)

    assert error.code == "bad_frame"


async def test_a_frame_beyond_the_limit_closes_its_connection_only() -> None:
    async with gateway_house(frame_bytes_max=10_000) as house:
        async with house.call() as good, house.call() as bad:
            await bad.say("x" * 10_001)

            assert (await bad.closed())[0] == 1009
            await still_works(good)
        await house.empty()
        assert house.gateway.statistics().closed == {"frame_too_big": 1}


async def test_text_that_is_no_utf_8_closes_its_connection_only(house: House) -> None:
    async with house.call() as good, house.call() as bad:
        await bad.socket.send(b'{"frame":"\xff\xfe"}', text=True)

        assert (await bad.closed())[0] == 1007
        await still_works(good)
    await house.empty()
    assert house.gateway.statistics().closed == {"bad_text": 1}


async def test_too_much_before_hello_closes_the_connection(house: House) -> None:
    async with house.call(None) as caller:
        for number in range(40):
            await caller.say(Send(conversation="c1", message_id=MessageId(f"m{number}"), text="hello"))

        assert (await caller.closed())[0] == CloseReason.HELD_TOO_MUCH.code
    assert house.world.posted == []


async def test_a_flood_of_requests_that_are_not_answered_is_told_busy(house: House) -> None:
    house.world.durable = Durable()
    held = house.gateway._options.requests_max
    async with house.call() as caller:
        for number in range(100):
            await caller.say(Send(conversation="c1", message_id=MessageId(f"m{number}"), text="hello"))
        errors = [await caller.hear_a(ErrorFrame) for _ in range(100 - held)]
        house.world.durable.set()
        # Whoever does not read what is still on its way waits long for the end of its connection.
        for _ in range(held):
            await caller.hear_a(Accepted)

    assert {error.code for error in errors} == {"busy"}
    assert all(error.retry_after_s for error in errors)


async def read_to_the_end(caller: Caller, finished: list[list[int]]) -> None:
    frames = await caller.hear_until(lambda frame: isinstance(frame, EventFrame) and frame.event.event == 2)
    finished.append([frame.event.event for frame in frames if isinstance(frame, EventFrame)])


async def test_whoever_never_reads_costs_a_bounded_buffer_and_nobody_else_anything() -> None:
    bound = 65_536
    async with (
        gateway_house(send_deadline_s=2.0, outbox_bytes_max=bound) as house,
        AsyncExitStack() as calls,
        anyio.create_task_group() as tasks,
    ):
        world, finished = house.world, list[list[int]]()
        deaf = await calls.enter_async_context(house.call(buffer_bytes=4_096))
        for name in ("c1", "c2"):
            await deaf.watch(name)
            await deaf.hear_a(Reload)
        for _ in range(19):
            caller = await calls.enter_async_context(house.call())
            await caller.watch()
            await caller.hear_a(Reload)
            tasks.start_soon(read_to_the_end, caller, finished)
        await anyio.wait_all_tasks_blocked()
        deaf.socket.transport.pause_reading()
        world.commit(KEY, TurnPrepared(messages=(), turn=1))
        worst = await speak(world, house, key=KEY, megabytes=1)
        # The system takes some megabytes for a client that does not read; these are for that one alone.
        worst = max(worst, await speak(world, house, key=OTHER, megabytes=12))
        world.commit(KEY, TurnFinished(turn=1))
        with anyio.fail_after(60):
            while len(finished) < 19 or not house.gateway.statistics().cut:  # noqa: ASYNC110 - it has no event
                await anyio.sleep(0.01)
        statistics = house.gateway.statistics()
        deaf.socket.transport.abort()

    assert finished == [[1, 2]] * 19
    assert worst <= 20 * bound
    assert statistics.cut == 1, "only the deaf one is cut"
    assert statistics.dropped > 0, "nothing was dropped, so no bound was reached"


async def speak(world: World, house: House, *, key: ConversationKey, megabytes: int) -> int:
    """Stream that much; returns the most that waited in all outboxes together."""
    worst = 0
    for number in range(megabytes * 256):
        world.say(key, "call1", offset=number * 4_096, text="x" * 4_096)
        worst = max(worst, house.gateway.statistics().waiting_bytes)
        await anyio.lowlevel.checkpoint()
    return worst


async def test_whoever_reads_late_gets_every_event_from_the_journal() -> None:
    async with gateway_house(outbox_bytes_max=16_384) as house, house.call(buffer_bytes=4_096) as caller:
        await caller.watch()
        await caller.hear_a(Reload)
        caller.socket.transport.pause_reading()
        for _ in range(100):
            house.world.converse(KEY, turns=10)
            await anyio.lowlevel.checkpoint()
        assert house.gateway.statistics().waiting_bytes <= 16_384
        caller.socket.transport.resume_reading()
        frames = await caller.hear_until(lambda frame: frame.event.event == 4_000)

    assert [frame.event.event for frame in frames] == list(range(1, 4_001))


async def shake_hands(house: House) -> ByteStream:
    """A WebSocket that is opened and then left to itself: no ping is answered."""
    token = token_for("alice", clock=house.clock)
    key = base64.b64encode(b"0123456789abcdef").decode()
    stream = await anyio.connect_tcp("127.0.0.1", house.gateway.port)
    await stream.send(
        (
            f"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            f"Sec-WebSocket-Version: 13\r\nAuthorization: Bearer {token}\r\n\r\n"
        ).encode()
    )
    with anyio.fail_after(10):
        assert b"101" in await stream.receive()
    return stream


async def test_a_client_that_is_silent_for_good_is_closed() -> None:
    async with gateway_house(ping_interval_s=0.05, ping_deadline_s=0.1) as house, await shake_hands(house):
        await house.empty()

        assert house.gateway.statistics().opened == 1
        assert house.gateway.statistics().closed == {"ping_timeout": 1}


async def test_a_client_that_vanishes_is_forgotten_and_what_it_sent_is_not(house: House) -> None:
    async with house.call() as caller:
        await caller.watch()
        await caller.hear_a(Reload)
        await caller.say(Send(conversation="c1", message_id=MessageId("m1"), text="hello"))
        await caller.hear_until(lambda frame: isinstance(frame, Accepted))
        caller.socket.transport.abort()
        await house.empty()

    assert not house.world.bus.is_watched(KEY)
    assert house.world.head(KEY) == 1


@pytest.mark.parametrize("beginning", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_a_client_that_never_ends_its_request_is_closed(beginning: bytes) -> None:
    async with (
        gateway_house(hello_deadline_s=0.2) as house,
        await anyio.connect_tcp("127.0.0.1", house.gateway.port) as stream,
    ):
        if beginning:
            await stream.send(beginning)
        await hung_up(stream)


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01\x00", b"\x00" * 10_000, b"HELLO\r\n\r\n"])
async def test_whoever_speaks_no_http_is_closed_and_nobody_else_notices(garbage: bytes) -> None:
    async with gateway_house(hello_deadline_s=0.5) as house, house.call() as caller:
        async with await anyio.connect_tcp("127.0.0.1", house.gateway.port) as stream:
            await stream.send(garbage)
            await hung_up(stream)
        await still_works(caller)


async def test_whoever_speaks_tls_to_a_plain_socket_is_told_so_at_once() -> None:
    async with (
        gateway_house(hello_deadline_s=600) as house,
        await anyio.connect_tcp("127.0.0.1", house.gateway.port) as stream,
    ):
        await stream.send(b"\x16\x03\x01")
        told = b""
        with anyio.fail_after(10), suppress(anyio.EndOfStream):
            while True:
                told += await stream.receive()
        head, _, text = told.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert text == b"no TLS is spoken here, expected an address with ws:// or http://\n"
        assert f"Content-Length: {len(text)}".encode() in head


async def hung_up(stream: ByteStream) -> None:
    """Return once the other end has closed."""
    with anyio.fail_after(10), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            await stream.receive()
