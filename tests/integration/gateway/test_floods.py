"""Clients that send more frames than anybody needs: they are closed, and nobody else waits for them."""

from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream
from structlog.testing import capture_logs

from tests.support.gateway_house import Caller, gateway_house
from tests.support.issuer import trusting, write_certificate
from tests.support.raw_sockets import close_codes, frames_in, handshake, masked, opened, rest_of
from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.tls import CertificateFiles
from torpor.records.frames import Done, Unsubscribe

PATIENT = 10.0
"""So that a slow machine still hears the code before the socket is cut."""
PONG = 0xA
PING = masked(b"", first=0x89)
FLOODS = {
    "pings": PING,
    "pongs": masked(b"", first=0x8A),
    "long pings": masked(bytes(125), first=0x89),
    "pieces without content": masked(b"", first=0x00),
    "messages without content": masked(b""),
    "binary messages": masked(b"", first=0x82),
}
"""The frame of each."""
FRAMES = 30_000


async def say(stream: ByteStream, frame: bytes, count: int = FRAMES) -> None:
    with suppress(anyio.BrokenResourceError):
        # A piece needs a message that it continues.
        await stream.send((masked(b"{", first=0x01) if frame[0] == 0 else b"") + frame * count)


async def is_served(caller: Caller) -> None:
    await caller.say(Unsubscribe(ref="probe", conversation="c1"))
    await caller.hear_until(lambda frame: isinstance(frame, Done) and frame.ref == "probe")


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize(
    ("subject", "reason", "name"),
    [("mallory", CloseReason.TOO_MANY_FRAMES, "default/mallory"), (None, CloseReason.HELD_TOO_MUCH, "")],
    ids=["known", "unknown"],
)
async def test_a_flood_ends_its_connection_and_the_neighbour_is_served_meanwhile(
    flood: str, subject: str | None, reason: CloseReason, name: str
) -> None:
    heard = b""
    with capture_logs() as logs:
        async with gateway_house(close_deadline_s=PATIENT) as house, house.call() as neighbour:
            async with await opened(house, subject=subject) as stream, anyio.create_task_group() as tasks:
                tasks.start_soon(say, stream, FLOODS[flood])
                await is_served(neighbour)
                heard = await rest_of(stream)
            await is_served(neighbour)
            with anyio.fail_after(10):
                while house.gateway.statistics().connections > 1:  # noqa: ASYNC110 - the gateway has no event for it
                    await anyio.sleep(0.005)
            closed = house.gateway.statistics().closed

    assert close_codes(heard) == {reason.code}
    assert closed == {reason.name.lower(): 1}
    told = [line for line in logs if line["event"] == "gateway.flooded"]
    assert [line["clients"] for line in told] == [[{"address": "127.0.0.1", "principal": name, "connections": 1}]]


async def test_pings_within_the_bound_are_all_answered() -> None:
    async with gateway_house(control_frames_burst=300) as house, await opened(house) as stream:
        await stream.send(PING * 300 + masked(b"", first=0x88))
        answered = [opcode for opcode, _ in frames_in(await rest_of(stream))]

    assert answered.count(PONG) == 300


async def test_pings_may_come_for_ever_at_the_rate_that_is_allowed() -> None:
    async with gateway_house(control_frames_per_s=1e6, control_frames_burst=10) as house, await opened(house) as stream:
        for _ in range(20):
            await stream.send(PING * 10)
            heard = b""
            with anyio.fail_after(10):
                while len(heard) < 20:
                    heard += await stream.receive()
            assert frames_in(heard) == [(PONG, b"")] * 10


async def test_a_flood_behind_the_request_for_the_handshake_is_cut() -> None:
    async with gateway_house() as house, house.call() as neighbour:
        async with await anyio.connect_tcp("127.0.0.1", house.gateway.port) as stream:
            await say(stream, handshake(house) + PING * FRAMES, count=1)
            await rest_of(stream)
        await is_served(neighbour)
        with anyio.fail_after(10):
            while house.gateway._intake.sockets > 1:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.005)


async def test_what_a_client_said_is_taken_though_it_left_at_once(tmp_path: Path) -> None:
    files = CertificateFiles(*write_certificate(tmp_path))
    async with gateway_house(tls=files.context) as house:
        line = await anyio.connect_tcp(
            "127.0.0.1", house.gateway.port, ssl_context=trusting(files.certificate), tls_hostname="127.0.0.1"
        )
        async with line:
            await line.send(handshake(house))
            with anyio.fail_after(10):
                assert b" 101 " in await line.receive()
            # More than is parsed in one go, and the end of the line is in the same read.
            await line.send(masked(b"no frame") * 400)
        with anyio.fail_after(10):
            while house.gateway.statistics().errors.get("bad_frame", 0) < 400:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.005)
