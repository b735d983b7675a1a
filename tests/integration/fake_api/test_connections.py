"""Connections: kept, refused, left, and those that speak no HTTP."""

import json
import socket
from typing import Any

import anthropic
import anyio
import httpx2
import pytest

from tests.integration.fake_api.asking import asking
from tests.integration.fake_api.conftest import Client
from torpor_fake_api import messages
from torpor_fake_api.scripting.catalogue import misbehave
from torpor_fake_api.scripting.faults import Stall
from torpor_fake_api.scripting.replies import Reply, Text, says
from torpor_fake_api.server import FakeApi, serving
from torpor_fake_api.wire import exchange, sockets


async def talk(api: FakeApi, sent: bytes) -> bytes:
    """Send bytes and read until the host closes."""
    host, _, port = api.url.removeprefix("http://").partition(":")
    heard = b""
    with anyio.fail_after(5):
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(sent)
            async for data in stream:
                heard += data
    return heard


def http(body: bytes, *, headers: str = "") -> bytes:
    head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: k\r\nanthropic-version: 1\r\n{headers}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def test_a_closed_port_refuses_and_an_open_one_takes_connections_again(api: FakeApi, client: Client) -> None:
    await client.messages.create(**asking())

    api.refuse()
    with pytest.raises(anthropic.APIConnectionError) as caught:
        await client.messages.create(**asking())
    assert isinstance(caught.value.__cause__, httpx2.ConnectError)

    api.accept()
    api.accept()
    assert (await client.messages.create(**asking())).stop_reason == "end_turn"


async def test_a_port_may_be_closed_for_a_while(api: FakeApi, client: Client) -> None:
    api.refuse_for(0.05)

    with anyio.fail_after(10):
        assert (await client.with_options(max_retries=3).messages.create(**asking())).stop_reason == "end_turn"


async def test_a_response_goes_on_while_the_port_is_closed(api: FakeApi, client: Client) -> None:
    api.say(Reply(content=says("One two.").content, fault=Stall(at="after_deltas:1", name="here")))

    with anyio.fail_after(10):
        async with client.messages.stream(**asking()) as stream:
            await api.reached("here")
            api.refuse()
            api.release("here")
            assert (await stream.get_final_message()).stop_reason == "end_turn"


async def test_a_client_that_leaves_is_noticed(api: FakeApi, client: Client) -> None:
    api.say(Reply(fault=Stall(at="before_headers", name="here")))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: client.messages.create(**asking(stream=True)))
            received = await api.asked(1)
            await api.reached("here")
            group.cancel_scope.cancel()
        await received.ended.wait()

    assert received.outcome == "client_left"


async def test_a_stall_can_be_used_again(api: FakeApi, client: Client) -> None:
    stalled = Reply(content=says("One two.").content, fault=Stall(at="first_event", name="here"))

    for _ in range(2):
        api.hold("here")
        api.say(stalled)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: client.messages.create(**asking()))
                await api.reached("here")
                api.release("here")


async def test_deltas_may_take_their_time(api: FakeApi, client: Client) -> None:
    api.say(says("One two three.", delta_interval_s=3600))
    heard: list[str] = []

    with anyio.move_on_after(0.5) as waiting:
        async with client.messages.stream(**asking()) as stream:
            async for piece in stream.text_stream:
                heard.append(piece)  # noqa: PERF401 - it is broken off in the middle

    assert (waiting.cancelled_caught, heard) == (True, [])


async def test_one_connection_serves_many_requests(api: FakeApi) -> None:
    heard = await talk(api, http(b"{}") * 3 + http(b"{}", headers="connection: close\r\n"))

    assert heard.count(b"HTTP/1.1 400 ") == len(api.requests) == 4


async def test_what_is_no_http_is_refused(api: FakeApi) -> None:
    heard = await talk(api, b"good day\r\n\r\n")

    assert heard.startswith(b"HTTP/1.1 400 ")
    assert b'"type":"invalid_request_error"' in heard
    assert b"request-id: req_" in heard


async def test_a_client_may_wait_for_permission_to_send(api: FakeApi) -> None:
    heard = await talk(api, http(b"{}", headers="expect: 100-continue\r\nconnection: close\r\n"))

    assert heard.startswith(b"HTTP/1.1 100 ")
    assert b"HTTP/1.1 400 " in heard


async def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_request(api: FakeApi) -> None:
    host, _, port = api.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(http(b"{}")[:-1])
    await talk(api, http(b"{}", headers="connection: close\r\n"))

    assert len(api.received) == 1


async def test_a_body_too_long_to_keep_is_read_and_refused(
    api: FakeApi, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "KEPT_BYTES", 1000)
    monkeypatch.setattr(messages, "BODY_MAX_BYTES", 1000)

    with pytest.raises(anthropic.ContentTooLargeError):
        await client.messages.create(**asking("x" * 100_000))

    assert (api.requests[0].raw, api.requests[0].status) == (b"", 413)


async def test_a_client_that_reads_nothing_is_given_up(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "SEND_TIMEOUT_S", 0.1)
    api.say(says(Text("a" + " " * 20_000_000 + "b", chunks="whole")))
    host, _, port = api.url.removeprefix("http://").partition(":")

    with anyio.fail_after(30):
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(http(json.dumps(asking()).encode()))
            received = await api.asked(1)
            await received.ended.wait()

    assert received.outcome == "client_stuck"


async def test_a_failed_test_shows_itself_and_not_a_group() -> None:
    with pytest.raises(LookupError, match="mine"):
        async with serving():
            raise LookupError("mine")


async def test_two_hosts_cannot_share_a_port(api: FakeApi) -> None:
    port = int(api.url.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        async with serving(port=port):
            pass


async def test_a_control_request_needs_no_key(api: FakeApi) -> None:
    async with httpx2.AsyncClient(base_url=api.control_url, trust_env=False) as control:
        state = (await control.get("/_fake/state")).json()
        lost = await control.get("/_fake/nothing")

    assert (state["profile"], state["requests"], lost.status_code) == ("strict", 0, 404)
    assert api.received == []


async def test_replies_go_by_number_by_words_and_by_function(api: FakeApi, client: Client) -> None:
    api.otherwise(lambda asked: says(f"number {asked.number}"))
    api.on("weather", "It rains.")
    api.at(2, misbehave("overloaded"))

    async def ask(text: str = "hello") -> Any:
        return (await client.messages.create(**asking(text))).content[0].to_dict()["text"]

    assert await ask() == "number 1"
    with pytest.raises(anthropic.OverloadedError):
        await ask("the weather?")
    assert await ask("the weather?") == "It rains."
    assert await ask("the weather?") == "number 4"
