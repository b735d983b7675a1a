"""Older turns are folded, by a summariser or without one, and the conversation goes on."""

import json
from typing import Any

from tests.support.doubles import PlayedModel, fails, says
from tests.support.engine import running_engine
from torpor.conversation.budget import Profile
from torpor.conversation.view import request_body
from torpor.provider_errors import ContextTooLong, ProviderUnavailable
from torpor.records.journal import CompactionFailed, ContextReplaced, ModelRequested, TurnFailed, TurnFinished
from torpor.records.terms import FoldReason

LONG = "x" * 1_200
SMALL = Profile(budget_tokens=6_000, headroom_tokens=500)
"""Enough for about eight turns of ``LONG``."""
SUMMARY = json.dumps(
    {
        "facts": ["the user counts"],
        "open": [{"kind": "correction", "text": "the deadline is Friday", "turn": 1}],
    }
)


def texts(request: dict[str, Any]) -> list[str]:
    return [block["text"] for message in request["messages"] for block in message["content"] if block["type"] == "text"]


async def test_older_turns_are_folded_and_the_last_two_stay_as_they_were() -> None:
    summariser = PlayedModel([says(SUMMARY)])
    async with running_engine(profile=SMALL, summariser=summariser) as engine:
        for number in range(9):
            await engine.ask(f"{number} {LONG}")
        (replaced,) = await engine.records_of(ContextReplaced)
        state = await engine.state()
        last = json.loads(request_body(state.preamble, state.view))
    assert replaced.reason is FoldReason.SUMMARY
    assert replaced.after_tokens < replaced.before_tokens
    assert texts(last)[0].startswith("[Summary of earlier conversation: turns 1 to ")
    assert "the deadline is Friday" in texts(last)[0]
    kept = [text for text in texts(last) if text.endswith(LONG)]
    assert len(kept) >= 4  # the last two turns and what came since, each said and echoed


async def test_a_summariser_that_fails_does_not_hold_up_the_turn_and_the_mechanical_fold_comes_to_the_rescue() -> None:
    fault = fails(ProviderUnavailable("down"))
    summariser = PlayedModel([fault] * 100)
    async with running_engine(profile=SMALL, summariser=summariser) as engine:
        for number in range(12):
            await engine.ask(f"{number} {LONG}")
        replaced = await engine.records_of(ContextReplaced)
        failed = await engine.records_of(CompactionFailed)
        turns_failed = await engine.records_of(TurnFailed)
    assert turns_failed == []
    assert failed
    assert {record.reason for record in replaced} == {FoldReason.MECHANICAL}


async def test_every_request_stays_within_the_limit() -> None:
    async with running_engine(profile=SMALL) as engine:
        for number in range(12):
            await engine.ask(f"{number} {LONG}")
        requests = await engine.records_of(ModelRequested)
    assert all(request.estimated_tokens <= SMALL.budget_tokens - SMALL.headroom_tokens for request in requests)


async def test_a_message_that_alone_is_too_long_fails_its_turn_and_the_next_one_works() -> None:
    async with running_engine(profile=SMALL) as engine:
        await engine.ask("hello")
        await engine.ask("y" * 40_000)
        (failed,) = await engine.records_of(TurnFailed)
        await engine.ask("and now?")
        state = await engine.state()
    assert failed.code == "context_too_long"
    assert state.turns == 3
    assert texts(json.loads(request_body(state.preamble, state.view)))[-1] == "you said: and now?"


async def test_a_host_that_finds_the_request_too_long_is_asked_again_once_with_a_shorter_one() -> None:
    too_long = fails(ContextTooLong("300000 tokens, 200000 fit"))
    async with running_engine(says("one"), says("two"), says("three"), too_long, says("four")) as engine:
        for number in range(4):
            await engine.ask(f"{number} {LONG}")
        (replaced,) = await engine.records_of(ContextReplaced)
        finished = await engine.records_of(TurnFinished)
    assert replaced.reason is FoldReason.MECHANICAL
    assert replaced.turns == (1, 1)
    assert len(finished) == 4


async def test_a_host_that_finds_the_shorter_request_too_long_as_well_ends_the_turn() -> None:
    too_long = fails(ContextTooLong("300000 tokens, 200000 fit"))
    async with running_engine(says("one"), says("two"), says("three"), too_long, too_long) as engine:
        for number in range(4):
            await engine.ask(f"{number} {LONG}")
        (failed,) = await engine.records_of(TurnFailed)
        await engine.ask("and now?")
        finished = await engine.records_of(TurnFinished)
    assert failed.code == ContextTooLong.code
    assert len(finished) == 4


async def test_a_summariser_is_asked_for_the_last_turns_too_before_they_go_by_their_beginnings() -> None:
    summariser = PlayedModel([says(SUMMARY)] * 9)
    async with running_engine(profile=SMALL, summariser=summariser) as engine:
        for number in range(2):
            await engine.ask(f"{number} " + "z" * 5_000)
        await engine.ask("w" * 9_000)
        replaced = await engine.records_of(ContextReplaced)
    assert [record.reason for record in replaced] == [FoldReason.EVERYTHING]
    assert replaced[0].calls
    assert replaced[0].summary.facts == ("the user counts",)


async def test_turns_that_stay_and_exceed_the_allotment_alone_are_not_folded_over_and_over() -> None:
    profile = Profile(budget_tokens=8_000, conversation_tokens=1_500, headroom_tokens=500)
    async with running_engine(profile=profile) as engine:
        for number in range(12):
            await engine.ask(f"{number} " + "z" * 900)
        replaced = await engine.records_of(ContextReplaced)
    assert 2 <= len(replaced) <= 7
