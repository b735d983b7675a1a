"""The Python client where something else answers, or stands in the way: what is told, and what is tried again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from tests.support.gateway_house import House, gateway_house
from tests.support.gateway_line import token_for
from torpor.client.failures import ServerRefused
from torpor.client.options import ClientOptions
from torpor.client.torpor_client import TorporClient
from torpor.errors import TokenExpired
from torpor.records.frames import Welcome

QUICK = ClientOptions(backoff_s=0.01, backoff_max_s=0.05, close_deadline_s=0.5)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with gateway_house() as opened:
        yield opened


class Stranger:
    """Something that is no Torpor and says the same to everybody."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._calls = 0
        self.url = ""
        self.is_called_again = anyio.Event()

    async def talk(self, stream: SocketStream) -> None:
        self._calls += 1
        if self._calls > 1:
            self.is_called_again.set()
        async with stream:
            await stream.receive()
            await stream.send(self._answer)


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[Stranger]:
    stranger = Stranger(answer)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        stranger.url = f"ws://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.start_soon(listener.serve, stranger.talk)
        yield stranger
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n<html>", "answered HTTP 200, expected"),
        (b"HTTP/1.0 404 File not found\r\n\r\n", "answered HTTP 404, expected"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n<p>", "answered HTTP 200, expected"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
            "answered HTTP 302, expected",
        ),
        (b"SSH-2.0-OpenSSH\r\n", "speaks no HTTP, expected"),
    ],
)
async def test_what_answers_and_is_no_torpor_is_told(answer: bytes, told: str) -> None:
    async with answering(answer) as other, TorporClient(other.url, "token", options=QUICK) as client:
        with anyio.fail_after(10), pytest.raises(ServerRefused, match=f"{told} the WebSocket of a Torpor server"):
            await client.connected()


async def test_an_address_with_tls_of_a_server_without_is_told(house: House) -> None:
    async with TorporClient(f"wss://127.0.0.1:{house.gateway.port}", "token", options=QUICK) as client:
        address = f"ws://127.0.0.1:{house.gateway.port}"
        with anyio.fail_after(10), pytest.raises(ServerRefused, match=f"speaks no TLS, expected the address {address}"):
            await client.connected()


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (
            b"HTTP/1.1 503 Full\r\nContent-Type: text/plain\r\nContent-Length: 21\r\n\r\ntoo many connections\n",
            "it answered HTTP 503 (too many connections)",
        ),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n", "it answered HTTP 502"),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\n", "it answered HTTP 503"),
        (b"", "it closed the connection without an answer in HTTP"),
    ],
)
async def test_what_stands_in_the_way_for_a_while_is_tried_again_and_can_be_asked_for(
    answer: bytes, trouble: str
) -> None:
    async with answering(answer) as other, TorporClient(other.url, "token", options=QUICK) as client:
        assert client.trouble == ""
        with anyio.fail_after(10):
            await other.is_called_again.wait()
        assert client.trouble == trouble


async def test_trouble_is_over_with_the_connection_and_tells_how_that_was_lost(house: House) -> None:
    lost = anyio.Event()

    def on_connection(welcome: Welcome | None) -> None:
        if welcome is None:
            lost.set()

    token = token_for("alice", clock=house.clock)
    async with TorporClient(house.gateway.url, token, options=QUICK, on_connection=on_connection) as client:
        with anyio.fail_after(10):
            await client.connected()
            assert client.trouble == ""
            await house.gateway.stop()
            await lost.wait()
        assert client.trouble == "the connection was closed (1001, the server is stopping)"


async def test_who_is_told_that_the_connection_is_over_can_ask_whether_that_is_the_end() -> None:
    async def talk(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send('{"frame":"welcome","principal":"a","tenant":"t","owner":"a","scopes":["chat"]}')
        await connection.close(codes.pop(0), "because")

    codes = [1012, 4440]
    seen: list[tuple[bool, type[Exception] | None]] = []
    async with serve(talk, "127.0.0.1", 0, subprotocols=[Subprotocol("torpor.v1")]) as server:
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"

        def on_connection(welcome: Welcome | None) -> None:
            seen.append((welcome is not None, type(client.ended) if client.ended is not None else None))

        async with TorporClient(url, "token", options=QUICK, on_connection=on_connection) as client:
            with anyio.fail_after(10), pytest.raises(TokenExpired):
                await client.list()
        assert seen == [(True, None), (False, None), (True, None), (False, TokenExpired)]
        assert isinstance(client.ended, TokenExpired)
