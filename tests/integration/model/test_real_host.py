"""What holds of the real adapter beside its answers to faults: replay, cancellation, circuit, fallback, secrecy."""

import logging
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.integration.model.real_host import (
    ANSWER,
    KEY,
    MODEL,
    ORDINARY,
    SOON,
    TOOL_ROUND,
    host_of,
    refused,
    talking_to,
    two_steps,
)
from tests.support.doubles import Ledger, ManualClock
from tests.support.models import Heard
from torpor.conversation.budget import input_tokens
from torpor.conversation.publish import text_of
from torpor.conversation.retry import RetryOptions
from torpor.conversation.view import Preamble, View, preamble_of, request_fields
from torpor.model.circuit import Circuit, CircuitOptions
from torpor.model.contract import ModelRequest
from torpor.records.blocks import canonical, text_block, tool_result_block
from torpor.records.journal import (
    ModelFailed,
    ModelReplied,
    ModelRequested,
    PreambleChanged,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
)
from torpor.records.terms import Offer
from torpor_fake_api.models import MODELS
from torpor_fake_api.prompt.tokens import block_tokens
from torpor_fake_api.scripting import faults
from torpor_fake_api.scripting.catalogue import misbehave, with_fault
from torpor_fake_api.scripting.replies import RedactedThinking, Text, Thinking, ToolUse, says
from torpor_fake_api.server import serving

THINKING = {"type": "enabled", "budget_tokens": 1024}
EVERYTHING_IS_CACHED = {"claude-haiku-4-5": {"cache_min_tokens": 1}}
NEVER_SOON = RetryOptions(base_s=3600.0, pause_max_s=3600.0)


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """The SDK takes seconds to import, which no test should wait for under a deadline of its own."""
    host_of("http://127.0.0.1:1")._loaded()


async def test_thinking_parallel_calls_and_a_partial_reply_replay_byte_for_byte_after_a_restart() -> None:
    thoughtful = says(
        Thinking("Which of the two?"),
        RedactedThinking(),
        "Both, naïvely \N{GRINNING FACE}.",
        ToolUse("look", {"what": 'caf\u00e9 \\ "x"'}),
        ToolUse("pay", {}),
    )
    lost = with_fault(says(Thinking("Hm."), "It will "), faults.Cut(at="before_message_delta"))
    async with serving(thoughtful, ANSWER, lost, profile="strict") as api:
        async with talking_to(api, thinking=THINKING) as engine:
            await engine.ask("do both")
            await engine.ask("and tomorrow?")
            assert text_of((await engine.records_of(TurnFailed))[0].partial) == "It will "
            data = engine.store.image()
        before = api.bodies[-1]["messages"]
        async with talking_to(api, data=data, ledger=Ledger(), thinking=THINKING) as engine:
            await engine.ask(ORDINARY)
            assert (await engine.records_of(TurnFinished))[-1].turn == 3
        after = api.bodies[-1]["messages"]
        assert msgspec.json.encode(without_marks(after[: len(before)])) == msgspec.json.encode(without_marks(before))
        assert [block["type"] for block in after[1]["content"]] == [
            *("thinking", "redacted_thinking", "text", "tool_use", "tool_use")
        ]
        assert [block["type"] for block in after[len(before)]["content"]] == ["thinking", "text"]
        assert refused(api) == []


def without_marks(messages: list[dict[str, object]]) -> object:
    """Marks are put in when a request is sent, so that the end of one carries some that are gone in the next."""
    text = msgspec.json.encode(messages).replace(b',"cache_control":{"type":"ephemeral"}', b"")
    return msgspec.json.decode(text.replace(b'"cache_control":{"type":"ephemeral"},', b""))


async def test_what_was_cached_is_read_again_and_all_usage_is_recorded() -> None:
    async with serving(profile="strict", models=EVERYTHING_IS_CACHED) as api:
        api.otherwise(two_steps)
        async with talking_to(api) as engine:
            await engine.ask("do it")
            await engine.ask(ORDINARY)
            replies = await engine.records_of(ModelReplied)
    assert [reply.request_id for reply in replies] == [request.request_id for request in api.requests]
    assert {reply.model for reply in replies} == {"claude-haiku-4-5"}
    assert all(reply.usage.cache_read_input_tokens > 0 for reply in replies[1:])
    assert all(reply.usage.output_tokens > 0 for reply in replies)


async def test_rounds_longer_than_the_look_back_read_all_that_was_asked_before() -> None:
    many = says("All of them.", *(ToolUse("look", {"what": f"number {number}"}) for number in range(30)))
    paused = says("One moment.", stop_reason="pause_turn")
    async with serving(many, many, many, paused, ANSWER, profile="strict", models=EVERYTHING_IS_CACHED) as api:
        api.otherwise(ANSWER)
        async with talking_to(api) as engine:
            await engine.ask("do it")
            await engine.ask(ORDINARY)
            usages = [reply.usage for reply in await engine.records_of(ModelReplied)]
    assert len(usages) == 6
    read = [usage.cache_read_input_tokens for usage in usages]
    asked = [input_tokens(usage) for usage in usages]
    behind_pause = 4  # ends with what the assistant said, where no mark is put
    assert read[1:] == [*asked[:behind_pause], asked[behind_pause - 1]]
    assert [usage.input_tokens > 0 for usage in usages] == [at == behind_pause for at in range(6)]
    assert refused(api) == []


async def test_what_is_for_one_turn_alone_does_not_keep_the_next_from_reading_what_stood_before_it() -> None:
    tool = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}
    preamble = preamble_of({"model": MODEL, "max_tokens": 100, "tools": [tool]})
    read: list[list[int]] = []
    asked: list[list[int]] = []
    async with serving(profile="strict", models=EVERYTHING_IS_CACHED) as api:
        api.otherwise(ANSWER)
        host = host_of(api)
        view, before = View(), 0
        for turn in range(3):
            view = view.extended("user", [text_block("do it")])
            lasting, before = (before, view.size_bytes), view.size_bytes
            shown = view.extended("user", [text_block(f"recalled for turn {turn}")])
            usages = []
            for _ in range(2):
                request = ModelRequest(call="c", preamble=preamble, view=shown, lasting=lasting)
                usages.append((await host.reply(request, Heard())).usage)
                calls = [(f"t{view.blocks}_{number}", "found") for number in range(30)]
                view, shown = (with_round(grown, calls) for grown in (view, shown))
            view = view.extended("assistant", [text_block("done")])
            read.append([usage.cache_read_input_tokens for usage in usages])
            asked.append([input_tokens(usage) for usage in usages])
        await host.aclose()
    recalled_tokens = block_tokens({"type": "text", "text": "recalled for turn 0"}, MODELS[MODEL])
    assert [second for _, second in read] == [first for first, _ in asked]
    assert [first for first, _ in read[1:]] == [first - recalled_tokens for first, _ in asked[:-1]]
    assert refused(api) == []


def with_round(view: View, calls: list[tuple[str, str]]) -> View:
    """``view`` with these calls of ``look``, as id and result."""
    uses = [canonical({"type": "tool_use", "id": id_, "name": "look", "input": {}}) for id_, _ in calls]
    results = [tool_result_block(id_, text, is_error=False) for id_, text in calls]
    return view.extended("assistant", uses).extended("user", results)


async def test_a_conversation_that_was_packed_reads_what_it_had_asked_before() -> None:
    async with serving(profile="strict", models=EVERYTHING_IS_CACHED) as api:
        api.otherwise(two_steps)
        async with talking_to(api) as engine:
            await engine.ask("do it")
            data = engine.store.image()
        async with talking_to(api, data=data, ledger=Ledger()) as engine:
            await engine.ask(ORDINARY)
            usages = [reply.usage for reply in await engine.records_of(ModelReplied)]
    assert usages[-1].cache_read_input_tokens == input_tokens(usages[-2])


async def test_the_next_request_is_estimated_from_all_that_was_counted_cached_or_not() -> None:
    async with serving(profile="strict", models=EVERYTHING_IS_CACHED) as api:
        api.otherwise(ANSWER)
        async with talking_to(api) as engine:
            for number in range(6):
                await engine.ask(f"{number}: {'is it going to rain tomorrow? ' * 20}")
            estimated = [record.estimated_tokens for record in await engine.records_of(ModelRequested)]
            usages = [record.usage for record in await engine.records_of(ModelReplied)]
    counted = [input_tokens(usage) for usage in usages]
    assert counted == sorted(counted)
    assert all(usage.input_tokens < input_tokens(usage) / 2 for usage in usages[2:])
    assert estimated[1:] == pytest.approx(counted[1:], rel=0.25)
    assert estimated[-1] == pytest.approx(counted[-1], rel=0.1)  # what was counted outweighs what is estimated


async def test_a_host_that_is_down_costs_one_probe_at_a_time() -> None:
    clock = ManualClock()
    circuit = Circuit(CircuitOptions(failures_max=3, cool_down_s=10.0), clock=clock)
    async with serving(profile="strict") as api:
        api.otherwise(misbehave("unavailable"))
        async with talking_to(api, host=host_of(api, clock=clock, circuit=circuit)) as engine:
            for number in range(8):
                await engine.ask(f"hello {number}")
            assert len(api.requests) == 3
            failures = await engine.records_of(TurnFailed)
            assert {failure.code for failure in failures} == {"model_unavailable"}
            assert "has failed too often" in failures[-1].detail
            clock.advance(10)
            for number in range(8):
                await engine.ask(f"hello again {number}")
            assert len(api.requests) == 4
            clock.advance(10)
            api.otherwise(ANSWER)
            await engine.ask(ORDINARY)
            assert len(await engine.records_of(TurnFinished)) == 1


async def test_a_port_that_nobody_listens_on_is_a_host_that_cannot_be_reached() -> None:
    async with serving(profile="strict") as api:
        api.otherwise(ANSWER)
        async with talking_to(api) as engine:
            api.refuse()
            await engine.ask("anybody there?")
            (failure,) = await engine.records_of(TurnFailed)
            assert (failure.code, failure.offers) == ("model_unavailable", (Offer.RETRY,))
            assert "cannot be reached" in failure.detail
            api.accept()
            await engine.ask(ORDINARY)
            assert len(await engine.records_of(TurnFinished)) == 1


async def test_the_second_model_is_asked_when_the_first_fails_and_the_next_turn_begins_with_the_first() -> None:
    async with serving(profile="strict") as api:
        api.otherwise(two_steps)
        for number in (1, 2):
            api.at(number, misbehave("overloaded"))
        async with talking_to(api, fallback="claude-sonnet-4-6") as engine:
            await engine.ask("do it")
            await engine.ask(ORDINARY)
            assert len(await engine.records_of(TurnFinished)) == 2
            failures = await engine.records_of(ModelFailed)
            assert [failure.next_model for failure in failures] == ["", "claude-sonnet-4-6"]
            requested = await engine.records_of(ModelRequested)
    asked = [body["model"] for body in api.bodies]
    assert asked == ["claude-haiku-4-5"] * 2 + ["claude-sonnet-4-6"] * 2 + ["claude-haiku-4-5"]
    assert [record.model for record in requested] == ["", "", "claude-sonnet-4-6", "claude-sonnet-4-6", ""]
    assert refused(api) == []


async def test_the_second_model_is_asked_with_its_own_parameters_which_the_journal_holds() -> None:
    own: dict[str, Any] = {
        "fallback_thinking": {"type": "adaptive"},
        "fallback_effort": "low",
        "fallback_max_tokens": 2048,
    }
    async with serving(profile="strict") as api:
        api.otherwise(two_steps)
        for number in (1, 2):
            api.at(number, misbehave("overloaded"))
        async with talking_to(api, fallback="claude-sonnet-4-6", thinking=THINKING, **own) as engine:
            await engine.ask("do it")
            await engine.ask(ORDINARY)
            (preamble,) = await engine.records_of(PreambleChanged)
            requested = await engine.records_of(ModelRequested)
    first = {"model": "claude-haiku-4-5", "max_tokens": 4096, "thinking": THINKING}
    second = {"model": "claude-sonnet-4-6", "max_tokens": 2048, "thinking": {"type": "adaptive"}}
    second["output_config"] = {"effort": "low"}
    others = ("system", "tools", "stream", "messages")
    parameters = [{name: body[name] for name in body if name not in others} for body in api.bodies]
    assert parameters == [first, first, second, second, first]
    stored = Preamble(digest=preamble.digest, body=preamble.body)
    for record, body in zip(requested, api.bodies, strict=True):
        told = msgspec.json.decode(msgspec.json.encode(request_fields(stored, model=record.model)))
        sent = {name: body[name] for name in body if name not in ("stream", "messages")}
        del sent["system"][-1]["cache_control"]
        assert told == sent
    assert refused(api) == []


async def test_a_cancel_during_the_pause_before_a_call_is_asked_again_ends_the_turn_at_once() -> None:
    async with serving(misbehave("overloaded"), profile="strict") as api:
        api.otherwise(ANSWER)
        async with talking_to(api, retry=NEVER_SOON) as engine:
            heard = engine.watch()
            await engine.send("do it")
            assert (await heard.until(ModelFailed)).retry_at_us
            with anyio.fail_after(5):
                assert await engine.cancel() == 1
            await engine.ask(ORDINARY)
            assert (heard.of(TurnCancelled)[0].turn, heard.of(TurnFinished)[0].turn) == (1, 2)
    assert refused(api) == []


@pytest.mark.parametrize(("at", "said"), [("before_headers", ""), ("first_event", ""), ("after_deltas:1", "It ")])
async def test_a_cancel_while_the_host_is_silent_ends_the_turn_and_the_connection_at_once(at: str, said: str) -> None:
    over = says(Text("It rains.", pieces=("It ", "rains.")))
    async with serving(misbehave("stall", at=at, over=over), profile="strict") as api:
        api.otherwise(ANSWER)
        async with talking_to(api) as engine:
            heard = engine.watch()
            await engine.send("do it")
            with anyio.fail_after(5):
                await api.reached()
                if said:
                    await heard.until_text(said)
                assert await engine.cancel() == 1
                await api.requests[0].ended.wait()
            await engine.ask(ORDINARY)
            assert heard.of(TurnFinished)[0].turn == 2
    assert str(api.requests[0].outcome) == "client_left"
    assert refused(api) == []


async def test_a_stream_of_pings_alone_is_no_progress() -> None:
    stalled = with_fault(
        says(Text("It rains.", pieces=("It ", "rains."))), faults.Stall(at="after_deltas:1", pings_every_s=0.01)
    )
    async with serving(stalled, profile="strict") as api:
        api.otherwise(ANSWER)
        async with talking_to(api, progress_deadline_s=0.3) as engine:
            await engine.ask("do it")
            (failure,) = await engine.records_of(TurnFailed)
            assert (failure.code, failure.detail) == ("model_stream_lost", "no progress within 0.3 s")
            assert text_of(failure.partial) == "It "
            await engine.ask(ORDINARY)
    assert refused(api) == []


async def test_a_turn_that_failed_goes_on_or_is_tried_again_when_the_client_says_so() -> None:
    lost = with_fault(says("Half of "), faults.Cut(at="before_message_delta"))
    async with serving(lost, lost, profile="strict") as api:
        api.otherwise(ANSWER)
        async with talking_to(api) as engine:
            await engine.ask("do it")
            assert (await engine.records_of(TurnFailed))[0].offers == (Offer.CONTINUE, Offer.RETRY)
            for offer in (Offer.CONTINUE, Offer.RETRY):
                reply = engine.post("", resume=offer)
                with anyio.fail_after(5):
                    await reply.wait()
                await engine.rested()
            assert len(await engine.records_of(TurnFinished)) == 1
    texts = [block["text"] for message in api.bodies[-1]["messages"] for block in message["content"]]
    assert "[Please go on where your reply was cut off.]" in texts
    assert "[Please try again to answer the message before this one.]" in texts
    assert refused(api) == []


async def test_connections_are_used_again_and_none_is_left_behind() -> None:
    async with serving(profile="strict") as api:
        api.otherwise(two_steps)
        host = host_of(api)
        async with talking_to(api, host=host) as engine:
            for _ in range(3):
                await engine.ask("do it")
            pool = host._client._client._transport._pool
            assert len(pool.connections) == 1
    assert refused(api) == []


async def test_the_key_is_in_no_log_no_record_and_no_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(misbehave("not_authenticated"), TOOL_ROUND, ANSWER, profile="strict", api_key=KEY) as api:
        with capture_logs() as logs:
            host = host_of(api)
            async with talking_to(api, host=host, retry=SOON) as engine:
                await engine.ask("do it")
                await engine.ask("again")
                records = msgspec.json.encode(await engine.records())
        assert [request.status for request in api.requests] == [401, 200, 200]
    for told in (caplog.text, repr(logs), records.decode(), repr(host), repr(host.options)):
        assert KEY not in told


async def test_the_window_is_asked_for_and_a_probe_tells_what_is_wrong() -> None:
    async with serving(profile="strict", models={"claude-haiku-4-5": {"window_tokens": 123}}) as api:
        host = host_of(api)
        assert await host.window_tokens() == 123
        await host.probe()
        assert api.bodies[-1]["max_tokens"] == 1
        await host.aclose()
        unknown = host_of(api, model="no-such-model")
        assert await unknown.window_tokens() is None
        await unknown.aclose()
