"""Streams that go wrong: what the SDK makes of each fault, at each position."""

import json
from typing import Any

import anthropic
import anyio
import httpx2
import pytest

from tests.integration.fake_api.asking import TOOL, asking
from tests.integration.fake_api.conftest import Client
from torpor_fake_api.scripting.catalogue import ANYWHERE, CATALOGUE, IN_STREAM, misbehave
from torpor_fake_api.scripting.faults import Stall
from torpor_fake_api.scripting.replies import Reply, ToolUse, says
from torpor_fake_api.server import FakeApi

IMPATIENT = anthropic.Timeout(10, read=1.0)
REPLY = says("One two three.", ToolUse("look_up", {"what": "the weather"}))


async def events_of(client: Client) -> list[Any]:
    """All that a raw stream brings before it ends or breaks."""
    stream = await client.messages.create(**asking(stream=True, tools=[TOOL]))
    async with stream:
        return [event async for event in stream]


async def final_of(client: Client) -> Any:
    async with client.messages.stream(**asking(tools=[TOOL])) as stream:
        return await stream.get_final_message()


@pytest.mark.parametrize("at", IN_STREAM)
@pytest.mark.parametrize(
    ("name", "error_type"), [("overloaded_event", "overloaded_error"), ("api_error_event", "api_error")]
)
async def test_an_error_event_is_a_status_error_of_status_200(
    api: FakeApi, client: Client, *, name: str, error_type: str, at: str
) -> None:
    api.say(misbehave(name, at=at, over=REPLY))

    with pytest.raises(anthropic.APIStatusError) as caught:
        await events_of(client)

    assert type(caught.value) is anthropic.APIStatusError
    assert (caught.value.status_code, caught.value.type) == (200, error_type)


@pytest.mark.parametrize(
    ("name", "early", "late"),
    [
        ("cut", anthropic.APIConnectionError, httpx2.RemoteProtocolError),
        ("reset", anthropic.APIConnectionError, httpx2.ReadError),
        ("stall", anthropic.APITimeoutError, httpx2.ReadTimeout),
    ],
)
@pytest.mark.parametrize("at", ANYWHERE)
async def test_a_broken_connection_is_a_connection_error_before_the_headers_and_a_bare_one_after(
    api: FakeApi, client: Client, *, name: str, at: str, early: type[Exception], late: type[Exception]
) -> None:
    api.say(misbehave(name, at=at, over=REPLY))

    with pytest.raises(early if at == "before_headers" else late):
        await events_of(client.with_options(timeout=IMPATIENT))

    received = api.requests[0]
    with anyio.fail_after(5):
        await received.ended.wait()
    assert received.outcome == {"cut": "cut", "reset": "reset", "stall": "client_left"}[name]


@pytest.mark.parametrize("at", IN_STREAM)
@pytest.mark.parametrize(("name", "exception"), [("bad_json", json.JSONDecodeError), ("bad_utf8", UnicodeDecodeError)])
async def test_an_event_that_cannot_be_read_is_a_bare_value_error(
    api: FakeApi, client: Client, *, name: str, exception: type[Exception], at: str
) -> None:
    api.say(misbehave(name, at=at, over=REPLY))

    with pytest.raises(exception):
        await events_of(client)


@pytest.mark.parametrize("at", IN_STREAM)
@pytest.mark.parametrize("name", ["clean_end", "half_event"])
async def test_a_stream_that_ends_too_early_looks_like_success(
    api: FakeApi, client: Client, *, name: str, at: str
) -> None:
    api.say(misbehave(name, at=at, over=REPLY))

    events = await events_of(client)

    assert "message_stop" not in [event.type for event in events]
    assert [event.type for event in events] == [event.type for event in await _whole(api, client)][: len(events)]


async def _whole(api: FakeApi, client: Client) -> list[Any]:
    api.say(REPLY)
    return await events_of(client)


async def test_a_stream_without_its_message_stop_has_no_stop_reason(api: FakeApi, client: Client) -> None:
    api.say(misbehave("clean_end", at="before_message_delta", over=REPLY))

    assert (await final_of(client)).stop_reason is None


async def test_pings_alone_never_time_out(api: FakeApi, client: Client) -> None:
    api.say(misbehave("stall_with_pings", at="after_deltas:1", over=REPLY))
    seen: list[str] = []

    with anyio.move_on_after(1.5) as waiting:
        stream = await client.with_options(timeout=IMPATIENT).messages.create(**asking(stream=True))
        async with stream:
            async for event in stream:
                seen.append(event.type)  # noqa: PERF401 - it is broken off in the middle

    assert waiting.cancelled_caught
    assert seen == ["message_start", "content_block_start", "content_block_delta"]
    with anyio.fail_after(5):
        await api.requests[0].ended.wait()
    assert api.requests[0].outcome == "client_left"


async def test_a_stalled_stream_goes_on_when_it_is_released(api: FakeApi, client: Client) -> None:
    api.say(Reply(content=REPLY.content, fault=Stall(at="after_deltas:1", name="here")))
    final: list[Any] = []

    async def read() -> None:
        final.append(await final_of(client))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await api.reached("here")
            assert final == []
            api.release("here")

    assert final[0].stop_reason == "tool_use"


async def test_a_stall_may_end_by_itself(api: FakeApi, client: Client) -> None:
    api.say(Reply(content=REPLY.content, fault=Stall(at="first_event", seconds=0.05, pings_every_s=0.01)))

    assert (await final_of(client)).stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("name", "at"),
    [(name, at) for name in ("unknown_event", "unknown_delta", "trickle") for at in CATALOGUE[name].positions],
)
async def test_what_is_strange_but_whole_is_read(api: FakeApi, client: Client, *, name: str, at: str) -> None:
    api.say(misbehave(name, at=at, over=REPLY))

    final = await final_of(client)

    assert final.stop_reason == "tool_use"
    assert [block.type for block in final.content] == ["text", "tool_use"]
    assert final.content[0].text == "One two three."
    assert final.content[1].input == {"what": "the weather"}


async def test_an_event_may_come_twice(api: FakeApi, client: Client) -> None:
    api.say(misbehave("duplicate_event", at="after_deltas:1", over=says("One two three.")))

    deltas = [event.delta.text for event in await events_of(client) if event.type == "content_block_delta"]

    assert deltas == ["One ", "two ", "two ", "three."]


@pytest.mark.parametrize("name", ["length_too_long", "length_too_short"])
async def test_a_wrong_length_is_not_taken_for_a_whole_reply(api: FakeApi, client: Client, *, name: str) -> None:
    api.say(misbehave(name, over=REPLY))

    match name:
        case "length_too_long":
            with pytest.raises(httpx2.RemoteProtocolError):
                await events_of(client)
        case _:
            assert "message_stop" not in [event.type for event in await events_of(client)]
    with anyio.fail_after(5):
        await api.requests[0].ended.wait()  # until then the garbage may meet the next request
    assert await _whole(api, client), "the next request is served on another connection"


async def _final_over(api: FakeApi, client: Client, name: str) -> Any:
    api.say(misbehave(name, over=REPLY))
    return await final_of(client)


@pytest.mark.parametrize(
    ("name", "stop_reason", "kinds"),
    [
        ("unknown_stop_reason", "bored", ["text", "tool_use"]),
        ("refusal", "refusal", []),
        ("refusal_after_text", "refusal", ["text"]),
        ("max_tokens", "max_tokens", ["text"]),
        ("max_tokens_in_call", "max_tokens", ["text", "tool_use"]),
        ("pause_turn", "pause_turn", ["text", "tool_use"]),
        ("empty_reply", "end_turn", []),
        ("empty_text", "tool_use", ["text", "text", "tool_use"]),
        ("unknown_block", "tool_use", ["scent", "text", "tool_use"]),
        ("unknown_tool", "tool_use", ["text", "tool_use"]),
        ("duplicate_tool_ids", "tool_use", ["text", "tool_use", "tool_use"]),
        ("call_with_bad_json", "tool_use", ["text", "tool_use"]),
        ("split_escapes", "tool_use", ["text", "tool_use"]),
    ],
)
async def test_a_strange_reply_arrives_as_it_is(
    api: FakeApi, client: Client, *, name: str, stop_reason: str, kinds: list[str]
) -> None:
    final = await _final_over(api, client, name)

    assert final.stop_reason == stop_reason
    assert [block.type for block in final.content] == kinds


async def test_a_refusal_says_why(api: FakeApi, client: Client) -> None:
    final = await _final_over(api, client, "refusal")

    assert final.stop_details.category == "general_harms"


@pytest.mark.parametrize(
    ("name", "text"),
    [("call_with_list", '["a", "b"]'), ("call_with_null", "null"), ("call_with_bad_json", '{"what": 1]x')],
)
async def test_the_raw_input_of_a_broken_call_arrives_as_text(
    api: FakeApi, client: Client, *, name: str, text: str
) -> None:
    api.say(misbehave(name, over=REPLY))

    deltas = [event.delta for event in await events_of(client) if event.type == "content_block_delta"]

    assert "".join(delta.partial_json for delta in deltas if delta.type == "input_json_delta") == text


@pytest.mark.parametrize(
    ("name", "at", "exception"),
    [
        ("cut", "after_bytes:40", anthropic.APIConnectionError),
        ("reset", "after_bytes:40", anthropic.APIConnectionError),
        ("stall", "after_bytes:40", anthropic.APITimeoutError),
        ("clean_end", "after_bytes:40", json.JSONDecodeError),
        ("length_too_long", "", anthropic.APIConnectionError),
        ("length_too_short", "", json.JSONDecodeError),
    ],
)
async def test_a_reply_that_is_not_streamed_can_break_too(
    api: FakeApi, client: Client, *, name: str, at: str, exception: type[Exception]
) -> None:
    api.say(misbehave(name, at=at, over=REPLY))

    with pytest.raises(exception) as caught:
        await client.with_options(timeout=IMPATIENT).messages.create(**asking(tools=[TOOL]))

    assert type(caught.value) is exception
