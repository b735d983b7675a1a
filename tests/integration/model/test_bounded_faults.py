"""Faults that repeat, and what a fault leaves behind: bounds of a turn, effects that are told, the same view later."""

from collections.abc import Sequence

import anyio
import pytest

from tests.integration.model.real_host import ANSWER, MODEL, ORDINARY, SOON, TOOL_ROUND, refused, talking_to, two_steps
from tests.support.doubles import Gate, Ledger, stops_at, writes
from torpor.conversation.publish import event_of, text_of
from torpor.conversation.retry import RetryOptions
from torpor.conversation.steps import StepOptions
from torpor.conversation.text import clean
from torpor.records.blocks import head_of
from torpor.records.journal import (
    JournalRecord,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    ToolFinished,
    TurnFailed,
    TurnFinished,
    TurnRefused,
)
from torpor.records.terms import Offer, Outcome
from torpor_fake_api.scripting import faults
from torpor_fake_api.scripting.catalogue import misbehave, with_fault
from torpor_fake_api.scripting.replies import Reply, Text, ToolUse, says
from torpor_fake_api.scripting.script import Asked
from torpor_fake_api.server import FakeApi, serving

PAUSED = says("One moment.", stop_reason="pause_turn")
CUT_CALL = misbehave("max_tokens_in_call", over=TOOL_ROUND)
FAMILY = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL} e\N{COMBINING ACUTE ACCENT}!"


def told(api: FakeApi) -> list[str]:
    """The texts of the last request."""
    return [block["text"] for message in api.bodies[-1]["messages"] for block in message["content"] if "text" in block]


def events(records: Sequence[JournalRecord]) -> list[object]:
    return [event for record in records if (event := event_of(record)) is not None]


@pytest.mark.parametrize("rounds", [0, 1])
@pytest.mark.parametrize(
    ("reply", "code", "offers"),
    [
        (PAUSED, "paused_too_often", (Offer.CONTINUE,)),
        (CUT_CALL, "output_limit", (Offer.RETRY,)),
        (misbehave("overloaded"), "model_overloaded", (Offer.RETRY,)),
        (misbehave("overloaded_event"), "model_overloaded", (Offer.RETRY,)),
        (misbehave("rate_limited_hours"), "model_rate_limited", (Offer.RETRY,)),
    ],
)
async def test_what_happens_again_and_again_ends_the_turn_after_so_many_requests(
    reply: Reply, code: str, offers: tuple[Offer, ...], rounds: int
) -> None:
    async with serving(*[TOOL_ROUND] * rounds, profile="strict") as api:
        api.otherwise(lambda asked: ANSWER if ORDINARY in asked.text else reply)
        async with talking_to(api, steps=StepOptions(cuts_max=2, pauses_max=2)) as engine:
            await engine.ask("do it")
            assert len(api.requests) == rounds + 3
            (failure,) = await engine.records_of(TurnFailed)
            assert (failure.code, failure.offers) == (code, offers)
            assert len(engine.ledger.of("started")) == rounds
            await engine.ask(ORDINARY)
            assert (await engine.records_of(TurnFinished))[0].turn == 2
    assert refused(api) == []


async def test_no_call_of_a_reply_runs_when_the_tokens_ended_in_its_second_one() -> None:
    cut = says(
        "Both.",
        ToolUse("pay", {"to": "Ada"}),
        ToolUse("pay", json='{"path":"/data/a","mode":"del', pieces=('{"path":"/data/a",', '"mode":"del')),
        stop_reason="max_tokens",
    )
    async with serving(cut, profile="strict") as api:
        api.otherwise(two_steps)
        async with talking_to(api) as engine:
            await engine.ask("do both")
            assert engine.ledger.of("started") == ["look"]
            first = (await engine.records_of(ModelReplied))[0]
            assert first.dropped == ("tool_use", "tool_use")
            assert (await engine.records_of(TurnFinished))[0].turn == 1
    assert any("none of its tool calls was run" in text for text in told(api))
    assert refused(api) == []


async def test_overloads_before_the_first_word_are_on_record_and_nothing_of_them_is_seen() -> None:
    busy = faults.HttpError(status=529, message="Overloaded", retry_after_s=2.0)
    retry = RetryOptions(retries_max=5, base_s=0.0, retry_after_max_s=0.01, fallback_after=5)
    async with (
        serving(*[misbehave("overloaded_event")] * 2, with_fault(ANSWER, busy), ANSWER, profile="strict") as api,
        talking_to(api, retry=retry) as engine,
    ):
        heard = engine.watch()
        await engine.ask("do it")
        failures = heard.of(ModelFailed)
        assert [failure.code for failure in failures] == ["model_overloaded"] * 3
        assert all(failure.retry_at_us for failure in failures)
        assert failures[-1].retry_at_us > failures[-1].at_us
        assert list(heard.said().values()) == ["It rains today."]
        assert len(heard.of(TurnFinished)) == 1
    assert refused(api) == []


@pytest.mark.parametrize(
    ("at", "partial"), [("after_deltas:3", "The three causes"), ("before_message_delta", "The three causes are")]
)
async def test_a_reply_that_broke_off_looks_the_same_after_a_reload_and_after_a_restart(at: str, partial: str) -> None:
    over = says(Text("The three causes are", pieces=("The ", "three ", "causes ", "are")))
    async with serving(misbehave("overloaded_event", at=at, over=over), profile="strict") as api:
        api.otherwise(ANSWER)
        async with talking_to(api) as engine:
            heard = engine.watch()
            await engine.ask("why?")
            (failure,) = heard.of(TurnFailed)
            assert text_of(failure.partial).strip() == partial
            assert (failure.code, failure.offers) == ("model_overloaded", (Offer.CONTINUE, Offer.RETRY))
            seen, state, data = events(heard.records), await engine.state(), engine.store.image()
        async with talking_to(api, data=data, ledger=Ledger()) as engine:
            assert events(await engine.records()) == seen
            assert await engine.state() == state
            await engine.ask(ORDINARY)
            assert (await engine.records_of(TurnFinished))[0].turn == 2
    assert partial in [text.strip() for text in told(api)]
    assert "[The previous message could not be answered: model_overloaded.]" in told(api)
    assert refused(api) == []


@pytest.mark.parametrize("deltas", [0, 1, 2])
async def test_a_refusal_behind_a_write_tells_the_model_that_it_was_made_and_nothing_of_the_turn_is_sent_again(
    deltas: int,
) -> None:
    at = f"after_deltas:{deltas}"
    refusal = misbehave("refusal_after_text", at=at, over=ANSWER) if deltas else misbehave("refusal", over=ANSWER)
    async with serving(says("I pay.", ToolUse("pay", {"to": "Ada"})), refusal, profile="strict") as api:
        api.otherwise(ANSWER)
        async with talking_to(api) as engine:
            heard = engine.watch()
            await engine.ask("something forbidden")
            assert isinstance(heard.records[-1], TurnRefused)
            assert engine.ledger.of("ended") == ["pay"]
            await engine.ask(ORDINARY)
            assert heard.of(TurnFinished)[0].turn == 2
    (message,) = api.bodies[-1]["messages"]
    texts = [block["text"] for block in message["content"]]
    assert texts == [
        "[A message before this one was refused and is no longer part of this conversation. "
        "Executed in it: pay (succeeded).]",
        ORDINARY,
    ]
    assert refused(api) == []


@pytest.mark.parametrize("is_killed", [False, True])
async def test_calls_of_a_turn_that_was_cut_short_are_answered_as_what_became_of_each(is_killed: bool) -> None:
    gate = Gate()
    both = says("Both.", ToolUse("pay", {}), ToolUse("send", {}))
    tools = (writes("send", stops_at(gate)),)
    async with serving(both, profile="strict") as api:
        api.otherwise(ANSWER)
        async with talking_to(api, tools=tools) as engine:
            heard = engine.watch()
            await engine.send("do both")
            with anyio.fail_after(5):
                await gate.reached.wait()
            assert (await heard.until(ToolFinished)).name == "pay"
            if not is_killed:
                assert await engine.cancel() == 1
            data, ledger = engine.store.image(), engine.ledger
            gate.opened.set()
        async with talking_to(api, data=data, ledger=ledger, tools=(writes("send"),)) as engine:
            await engine.ask(ORDINARY)
            assert sorted(engine.ledger.of("started")) == ["pay", "send"]
            results = await engine.records_of(ToolFinished)
            assert {record.name: record.outcome for record in results} == {
                "pay": Outcome.SUCCEEDED,
                "send": Outcome.UNKNOWN,
            }
            assert (await engine.records_of(TurnFinished))[-1].turn == 2
    answers = [block for message in api.bodies[-1]["messages"] for block in message["content"] if "content" in block]
    assert "Outcome unknown: send was started" in answers[-1]["content"]
    assert refused(api) == []


async def test_a_request_whose_input_was_nearly_all_cached_counts_whole_in_the_next_estimate() -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 105_000, "output_tokens": 7}
    async with serving(says("It rains.", usage=usage), ANSWER, profile="strict") as api, talking_to(api) as engine:
        await engine.ask("do it")
        await engine.ask(ORDINARY)
        estimated = (await engine.records_of(ModelRequested))[1].estimated_tokens
    assert 105_010 < estimated < 105_500


@pytest.mark.parametrize(
    "text",
    [
        "half \ud83d of one",
        "both \ud83d\ude00 halves",
        "nul \x00 and \x1b[31m",
        "\N{ZERO WIDTH SPACE}|",
        FAMILY,
        "\t\r\n.",
    ],
)
async def test_whatever_was_cleaned_reaches_the_model_and_comes_back_in_every_later_request(text: str) -> None:
    said = clean(text).text

    def echoed(asked: Asked) -> Reply:
        return says(said, ToolUse("look", {said: said})) if asked.text == said and not asked.has_results else ANSWER

    async with serving(profile="strict") as api:
        api.otherwise(echoed)
        async with talking_to(api) as engine:
            await engine.ask(said)
            await engine.ask(ORDINARY)
            assert len(await engine.records_of(TurnFinished)) == 2
    messages = api.bodies[-1]["messages"]
    assert messages[0]["content"][0]["text"] == said
    assert [block.get("text", block.get("input")) for block in messages[1]["content"]] == [said, {said: said}]
    assert refused(api) == []


async def test_controls_in_what_the_model_said_are_stored_and_sent_as_they_were_shown() -> None:
    async with serving(says("nul \x00, escape \x1b[31m."), profile="strict") as api:
        api.otherwise(ANSWER)
        async with talking_to(api) as engine:
            heard = engine.watch()
            await engine.ask("say it")
            await engine.ask(ORDINARY)
            shown = next(iter(heard.said().values()))
    assert shown == "nul \N{SYMBOL FOR NULL}, escape \N{SYMBOL FOR ESCAPE}[31m."
    assert shown in told(api)


@pytest.mark.parametrize("deltas", range(1, len(FAMILY) + 1))
async def test_a_reply_that_broke_off_within_a_character_is_kept_and_can_be_sent(deltas: int) -> None:
    over = says(Text(FAMILY, pieces=tuple(FAMILY)))
    async with serving(misbehave("cut", at=f"after_deltas:{deltas}", over=over), profile="strict") as api:
        api.otherwise(ANSWER)
        async with talking_to(api, retry=SOON) as engine:
            heard = engine.watch()
            await engine.ask("who?")
            for failure in heard.of(TurnFailed):
                assert text_of(failure.partial) == FAMILY[:deltas]
            await engine.ask(ORDINARY)
            assert isinstance(heard.records[-1], TurnFinished)
            replies = [head_of(block).text for reply in heard.of(ModelReplied) for block in reply.blocks]
            assert replies[-1] == "It rains today."
    assert {body["model"] for body in api.bodies} == {MODEL}
    assert refused(api) == []
