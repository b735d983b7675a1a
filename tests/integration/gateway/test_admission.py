"""The door: HTTP on the gateway's port, tokens, sub-protocols, and how connections end."""

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import jwt
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.gateway_house import House, gateway_house
from tests.support.gateway_line import SECRET, token_for
from torpor.gateway import server
from torpor.gateway.auth import mint
from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.intake import Intake
from torpor.gateway.options import GatewayOptions
from torpor.records.frames import Done, ErrorFrame, Hello, Unsubscribe, Welcome


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with gateway_house() as opened:
        yield opened


async def get(house: House, path: str, *, method: str = "GET", headers: str = "") -> tuple[int, str]:
    """Status and body of a plain HTTP request."""
    head, body = await answer(house, path, method=method, headers=headers)
    return int(head.split()[1]), body


async def answer(house: House, path: str, *, method: str = "GET", headers: str = "") -> tuple[str, str]:
    """Head and body of a plain HTTP request."""
    with anyio.fail_after(10):
        async with await anyio.connect_tcp("127.0.0.1", house.gateway.port) as stream:
            await stream.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
            said = b"".join([data async for data in stream])
    head, _, body = said.decode().partition("\r\n\r\n")
    return head, body


async def test_healthz_answers_and_readyz_says_whether_work_is_taken() -> None:
    async with gateway_house() as house:
        assert await get(house, "/healthz") == (200, "ok\n")
        assert await get(house, "/readyz") == (200, "ready\n")
        house.gateway._is_ready = lambda: False
        assert await get(house, "/healthz") == (200, "ok\n")
        assert (await get(house, "/readyz"))[0] == 503


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_pages_are_read_and_nothing_else(path: str, house: House) -> None:
    head, body = await answer(house, path, method="HEAD")
    assert (head.split()[1], body) == ("200", "")
    assert "Content-Length: 0" not in head
    head, _ = await answer(house, path, method="POST")
    assert head.split()[1] == "405"
    assert "Allow: GET, HEAD" in head.splitlines()


@pytest.mark.parametrize("body", ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n0\r\n"])
@pytest.mark.parametrize(("method", "status"), [("POST", "405"), ("PUT", "405"), ("GET", "400"), ("HEAD", "400")])
async def test_a_request_with_a_body_is_answered_as_well(method: str, status: str, body: str, house: House) -> None:
    head, text = await answer(house, "/healthz", method=method, headers=body)
    assert head.split()[1] == status
    assert ("Allow: GET, HEAD" in head.splitlines()) == (status == "405")
    assert bool(text) == (method != "HEAD")
    assert await get(house, "/healthz") == (200, "ok\n")


async def test_other_paths_are_not_there(house: House) -> None:
    assert (await get(house, "/console"))[0] == 404
    with pytest.raises(InvalidStatus, match="404"):
        async with connect(f"{house.gateway.url}/other", proxy=None):
            pass


async def test_an_address_that_cannot_be_read_is_refused(house: House) -> None:
    assert (await get(house, "//[x/"))[0] == 400
    assert (await get(house, "/healthz"))[0] == 200


async def test_only_refused_handshakes_are_counted_as_refused(house: House) -> None:
    house.gateway._is_ready = lambda: False
    for path in ("/readyz", "/console", "//[x/"):
        await get(house, path)
    assert house.gateway.statistics().refused == 0
    await get(house, "/?token=x")
    assert house.gateway.statistics().refused == 1


async def test_strangers_who_stay_silent_leave_room_for_everybody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def few(options: GatewayOptions) -> Intake:
        return Intake(options, descriptors=16, used=2)

    monkeypatch.setattr(server, "open_intake", few)
    async with gateway_house(hello_deadline_s=60.0) as house:
        most = few(GatewayOptions()).sockets_max
        async with AsyncExitStack() as strangers:
            for _ in range(2 * most):
                await strangers.enter_async_context(await anyio.connect_tcp("127.0.0.1", house.gateway.port))
            with anyio.fail_after(10):
                while house.gateway.statistics().refused < most:  # noqa: ASYNC110 - the gateway has no event for it
                    await anyio.sleep(0.005)
        with anyio.fail_after(10):
            while house.gateway._intake.sockets:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.005)
        assert (await get(house, "/healthz"))[0] == 200


async def test_a_plain_request_for_the_socket_is_told_to_upgrade(house: House) -> None:
    assert (await get(house, "/"))[0] == 426


@pytest.mark.parametrize("query", ["token=abc", "access_token=abc", "x", "a=1&jwt=abc"])
async def test_a_query_is_refused_since_tokens_do_not_belong_in_addresses(query: str, house: House) -> None:
    with pytest.raises(InvalidStatus) as refusal:
        async with connect(f"{house.gateway.url}/?{query}", proxy=None):
            pass

    assert refusal.value.response.status_code == 400
    assert b"Authorization header or in hello" in (refusal.value.response.body or b"")
    assert house.gateway.statistics().refused == 1


async def test_a_token_in_the_header_needs_no_hello(house: House) -> None:
    token = token_for("alice", clock=house.clock)
    async with house.call(None, additional_headers={"Authorization": f"Bearer {token}"}) as caller:
        await caller.say(Unsubscribe(conversation="c1", ref="r1"))

        assert (await caller.hear_a(Done)).ref == "r1"


@pytest.mark.parametrize("is_in_header", [True, False])
async def test_a_connection_too_many_is_told_so_and_closed(is_in_header: bool) -> None:
    async with gateway_house(connections_per_principal_max=1) as house, house.call("alice"):
        token = token_for("alice", clock=house.clock)
        headers = {"Authorization": f"Bearer {token}"} if is_in_header else {}
        async with house.call(None, additional_headers=headers) as second:
            if not is_in_header:
                await second.say(Hello(token=token))
            assert (await second.hear_a(ErrorFrame)).code == "too_many_connections"
            code, _ = await second.closed()
        with anyio.fail_after(10):
            while house.gateway.statistics().connections > 1:  # noqa: ASYNC110 - the gateway has no event for it
                await anyio.sleep(0.005)

        assert code == CloseReason.TOO_MANY_CONNECTIONS.code
        assert house.gateway.statistics().closed == {"too_many_connections": 1}


def wrong_headers(house: House) -> dict[str, str]:
    good = token_for("alice", clock=house.clock)
    claims = {"sub": "alice", "exp": house.clock.now_us() // 1_000_000 + 60}
    nameless = {"exp": claims["exp"]}
    return {
        "expired": f"Bearer {token_for('alice', clock=house.clock, lifetime_s=-60)}",
        "of another secret": f"Bearer {jwt.encode(claims, b'x' * 32, 'HS256')}",
        "of no algorithm": f"Bearer {jwt.encode(claims, '', 'none')}",
        "without a subject": f"Bearer {jwt.encode(nameless, SECRET, 'HS256')}",
        "empty": "Bearer ",
        "basic": f"Basic {good}",
        "bare": good,
    }


@pytest.mark.parametrize(
    "kind", ["expired", "of another secret", "of no algorithm", "without a subject", "empty", "basic", "bare"]
)
async def test_a_wrong_token_in_the_header_is_refused(kind: str, house: House) -> None:
    with pytest.raises(InvalidStatus) as refusal:
        async with house.call(None, additional_headers={"Authorization": wrong_headers(house)[kind]}):
            pass

    assert refusal.value.response.status_code == 401
    assert refusal.value.response.headers["WWW-Authenticate"].startswith("Bearer")
    assert ("invalid_token" in refusal.value.response.headers["WWW-Authenticate"]) is (kind == "expired")


async def test_a_wrong_token_in_hello_closes_the_connection(house: House) -> None:
    async with house.call(None) as caller:
        await caller.say(Hello(token=token_for("alice", clock=house.clock, lifetime_s=-60)))
        await caller.hear()

        assert (await caller.closed())[0] == CloseReason.TOKEN_EXPIRED.code


async def test_a_foreign_token_in_hello_closes_the_connection(house: House) -> None:
    async with house.call(None) as caller:
        await caller.say(Hello(token=mint(b"x" * 32, subject="alice", now_us=house.clock.now_us(), lifetime_s=60)))
        await caller.hear()

        assert (await caller.closed())[0] == CloseReason.UNAUTHENTICATED.code


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["torpor.v1"], "torpor.v1"), (["chat", "torpor.v1"], "torpor.v1"), (None, None), (["other"], None)],
)
async def test_our_sub_protocol_is_chosen_and_none_offered_is_accepted(
    offered: Any, chosen: str | None, house: House
) -> None:
    async with house.call(None, subprotocols=offered) as caller:
        assert caller.socket.subprotocol == chosen
        await caller.say(Hello(token=token_for("alice", clock=house.clock)))
        await caller.hear_a(Welcome)


async def test_nothing_is_compressed(house: House) -> None:
    async with house.call(None, compression="deflate") as caller:
        assert caller.socket.response is not None
        assert "Sec-WebSocket-Extensions" not in caller.socket.response.headers


async def test_a_client_that_says_no_hello_is_closed() -> None:
    async with gateway_house(hello_deadline_s=5, sweep_s=0.01) as house, house.call(None) as caller:
        house.clock.advance(6)

        assert (await caller.closed())[0] == CloseReason.HELLO_OVERDUE.code


async def test_a_token_that_expires_closes_a_connection_that_only_watches() -> None:
    async with gateway_house(sweep_s=0.01) as house, house.call("alice") as caller:
        house.clock.advance(3_700)

        assert (await caller.closed())[0] == CloseReason.TOKEN_EXPIRED.code


async def test_one_connection_too_many_is_turned_away() -> None:
    async with gateway_house(connections_max=1, connections_retry_s=7.5) as house, house.call("alice"):
        with pytest.raises(InvalidStatus, match="503") as refusal:
            async with house.call(None):
                pass

    assert refusal.value.response.headers["Retry-After"] == "8"


async def test_stopping_closes_every_connection_with_the_reason_and_refuses_new_ones(house: House) -> None:
    async with house.call("alice") as one, house.call("bob") as two, house.call(None) as three:
        with anyio.fail_after(10):
            await house.gateway.stop(CloseReason.RESTARTING)
        reasons = {await caller.closed() for caller in (one, two, three)}

    assert reasons == {(1012, "the server is restarting")}
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        async with house.call(None):
            pass


async def test_stopping_does_not_wait_for_a_client_that_is_deaf(house: House) -> None:
    async with house.call("alice") as caller:
        caller.socket.transport.pause_reading()
        with anyio.fail_after(5):
            await house.gateway.stop()
        caller.socket.transport.abort()


@pytest.mark.parametrize("beginning", [b"", b"GET / HT"])
async def test_the_end_of_a_server_does_not_wait_for_a_request_that_never_ends(beginning: bytes) -> None:
    with anyio.fail_after(10):
        async with gateway_house(hello_deadline_s=3_600.0, close_deadline_s=0.05) as house:
            stream = await anyio.connect_tcp("127.0.0.1", house.gateway.port)
            await stream.send(beginning or b"\r")
            while not house.gateway._intake.sockets:  # noqa: ASYNC110 - the gateway has no event for it
                await anyio.sleep(0.005)
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
        await stream.aclose()
    assert house.gateway._intake.sockets == 0


async def test_the_ends_of_a_server_close_its_connections() -> None:
    async with gateway_house() as house:
        caller = await house.call("alice").__aenter__()

    assert (await caller.closed())[0] == CloseReason.GOING_AWAY.code


async def test_an_address_in_use_is_an_error_of_the_system(house: House) -> None:
    with pytest.raises(OSError, match="in use"):
        async with gateway_house(port=house.gateway.port):
            pass


async def test_an_error_in_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with gateway_house():
            raise ZeroDivisionError


async def test_the_address_is_the_one_it_listens_on(house: House) -> None:
    assert house.gateway.url == f"ws://127.0.0.1:{house.gateway.port}"
    with socket.create_connection(("127.0.0.1", house.gateway.port), timeout=5):
        pass
