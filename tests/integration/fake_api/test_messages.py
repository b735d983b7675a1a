"""What the SDK reads from a host that behaves."""

import json
from typing import Any

import anthropic
import anyio
import pytest

from tests.integration.fake_api.asking import MODEL, TOOL, asking, assistant, results
from tests.integration.fake_api.conftest import Client
from torpor_fake_api.scripting.catalogue import misbehave
from torpor_fake_api.scripting.replies import Text, Thinking, ToolUse, says
from torpor_fake_api.server import FakeApi

CALL = ToolUse("look_up", {"what": 'an "é" and a 😀'}, chunks="escapes")
EMPTY: dict[str, Any] = {"type": "text", "text": ""}
ADAPTIVE: dict[str, Any] = {"type": "adaptive"}


async def test_a_reply_that_is_not_streamed(api: FakeApi, client: Client) -> None:
    api.say("Good day.")

    message = await client.messages.create(**asking())

    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "Good day."}]
    assert (message.model, message.role, message.stop_reason) == (MODEL, "assistant", "end_turn")
    assert message.usage.input_tokens > 0
    assert message._request_id == api.requests[0].request_id
    assert api.bodies == [asking()]


async def test_a_raw_stream_brings_every_event_in_order(api: FakeApi, client: Client) -> None:
    api.say(says(Thinking("Hm."), "One two.", CALL))

    stream = await client.messages.create(**asking(stream=True, tools=[TOOL], thinking=ADAPTIVE))
    async with stream:
        events = [event async for event in stream]

    kinds = [event.type for event in events if event.type != "content_block_delta"]
    assert kinds == [
        "message_start",
        *["content_block_start", "content_block_stop"] * 3,
        "message_delta",
        "message_stop",
    ]
    pieces = [event.delta.partial_json for event in events if event.type == "content_block_delta" and event.index == 2]
    assert json.loads("".join(pieces)) == {"what": 'an "é" and a 😀'}
    assert pieces[0] == ""


async def test_the_helper_builds_the_same_message_as_without_streaming(api: FakeApi, client: Client) -> None:
    reply = says("One two.", ToolUse("look_up", {"what": "it"}, id="toolu_1"))
    api.say(reply, reply)

    async with client.messages.stream(**asking(tools=[TOOL])) as stream:
        text = [piece async for piece in stream.text_stream]
        streamed = await stream.get_final_message()
    whole = await client.messages.create(**asking(tools=[TOOL]))

    assert text == ["One ", "two."]
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in whole.content]
    assert (streamed.stop_reason, streamed.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)


async def test_a_grapheme_is_cut_between_two_deltas(api: FakeApi, client: Client) -> None:
    api.say(says(Text("👍🏽", chunks=1)))

    async with client.messages.stream(**asking()) as stream:
        assert [piece async for piece in stream.text_stream] == ["👍", "🏽"]


async def test_a_tool_round(api: FakeApi, client: Client) -> None:
    api.say(says("Let me see.", CALL, CALL), "There it is.")

    asked = await client.messages.create(**asking(tools=[TOOL]))
    calls = [block.id for block in asked.content if block.type == "tool_use"]
    answered = await client.messages.create(**asking("hello", assistant(*asked.content), results(*calls), tools=[TOOL]))

    assert (asked.stop_reason, answered.stop_reason) == ("tool_use", "end_turn")
    assert len(set(calls)) == 2
    assert [received.violations for received in api.requests] == [[], []]


async def test_thinking_goes_there_and_back_and_is_refused_when_altered(api: FakeApi, client: Client) -> None:
    api.say(says(Thinking("Hm, well."), CALL))
    tools = {"tools": [TOOL], "thinking": ADAPTIVE}
    async with client.messages.stream(**asking(**tools)) as stream:
        thought, call = (await stream.get_final_message()).content
    assert thought.type == "thinking"
    assert call.type == "tool_use"

    await client.messages.create(**asking("hello", assistant(thought, call), results(call.id), **tools))

    altered = thought.to_dict() | {"thinking": "Hm, well!"}
    with pytest.raises(anthropic.BadRequestError):
        await client.messages.create(**asking("hello", assistant(altered, call), results(call.id), **tools))
    assert {found.rule for found in api.requests[-1].violations} == {"V-60d", "V-60e"}
    with pytest.raises(anthropic.BadRequestError, match="in the latest assistant message cannot be modified"):
        await client.messages.create(**asking("hello", assistant(call), results(call.id), **tools))
    later = (assistant({"type": "text", "text": "There."}), "thanks")
    await client.messages.create(**asking("hello", assistant(call), results(call.id), *later, **tools))


async def test_hidden_thinking_is_empty_but_signed(api: FakeApi, client: Client) -> None:
    api.say(says(Thinking("Hm, well."), "Hello."))
    hidden = {"thinking": ADAPTIVE | {"display": "omitted"}}

    async with client.messages.stream(**asking(**hidden)) as stream:
        message = await stream.get_final_message()

    thought = message.content[0]
    assert thought.type == "thinking"
    assert thought.thinking == ""
    await client.messages.create(**asking("hello", assistant(*message.content), "and?", **hidden))


async def test_the_cache_is_told_in_usage(client: Client) -> None:
    system = [{"type": "text", "text": "Be brief. " * 500, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]

    first = await client.messages.create(**asking(system=system))
    async with client.messages.stream(**asking("something else", system=system)) as stream:
        second = await stream.get_final_message()

    assert first.usage.cache_creation is not None
    assert first.usage.cache_creation.ephemeral_1h_input_tokens == first.usage.cache_creation_input_tokens
    assert first.usage.cache_creation_input_tokens == second.usage.cache_read_input_tokens
    assert (first.usage.cache_read_input_tokens, second.usage.cache_creation_input_tokens) == (0, 0)


async def test_tokens_are_counted_without_a_reply(api: FakeApi, client: Client) -> None:
    fields = {name: value for name, value in asking(tools=[TOOL]).items() if name != "max_tokens"}

    counted = await client.messages.count_tokens(**fields)
    message = await client.messages.create(**asking(tools=[TOOL]))

    assert counted.input_tokens == message.usage.input_tokens
    with pytest.raises(anthropic.BadRequestError, match="text content blocks must be non-empty"):
        await client.messages.count_tokens(
            model=MODEL, messages=asking({"role": "user", "content": [EMPTY]})["messages"]
        )


async def test_models_are_told(client: Client) -> None:
    model = await client.models.retrieve(MODEL)
    ids = [listed.id async for listed in client.models.list(limit=5)]

    assert (model.max_input_tokens, model.max_tokens, model.lifecycle) == (1_000_000, 128_000, "active")
    assert model.capabilities is not None
    assert model.capabilities.thinking.types.adaptive.supported
    assert MODEL in ids
    assert len(ids) == len(set(ids)) > 5


async def test_a_paused_turn_is_sent_back_and_goes_on(api: FakeApi, client: Client) -> None:
    api.say(misbehave("pause_turn", over=says("So far.")), "And the rest.")

    paused = await client.messages.create(**asking())
    rest = await client.messages.create(**asking("hello", assistant(*paused.content)))

    assert (paused.stop_reason, rest.stop_reason) == ("pause_turn", "end_turn")


async def test_many_requests_at_once(api: FakeApi, client: Client) -> None:
    heard: set[str] = set()

    async def ask(number: int) -> None:
        async with client.messages.stream(**asking(f"number {number}")) as stream:
            heard.add(await stream.get_final_text())

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(ask, number)

    assert heard == {f"You said: number {number}" for number in range(50)}
