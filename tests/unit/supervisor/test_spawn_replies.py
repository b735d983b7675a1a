"""How the replies of a sub-agent end: what a limit cut off is no answer, what its host paused is a part of one."""

import json

import pytest

from tests.support.doubles import Play, PlayedModel, calls, fails, replies, says, use
from tests.support.engine import running_engine
from tests.support.subagents import asks, ended, results_of, said, searching, selecting, spawning, subagent
from torpor.conversation.steps import StepOptions
from torpor.provider_errors import ContextTooLong
from torpor.records.blocks import text_block
from torpor.records.journal import JournalRecord
from torpor.records.terms import Outcome
from torpor.subagents.definition import Subagent
from torpor.subagents.research import Research

HALF = "The dose is 10 mg, but never with"


def ends(text: str, stop_reason: str) -> Play:
    return replies(text_block(text), stop_reason=stop_reason)


async def asked(scout: Subagent) -> tuple[JournalRecord, ...]:
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.ask("where is it?")
        return await engine.records()


def told(records: tuple[JournalRecord, ...]) -> object:
    (result,) = results_of(records)
    return json.loads(said(result))


@pytest.mark.parametrize("limit", ["max_tokens", "model_context_window_exceeded"])
async def test_an_answer_that_a_limit_cut_off_is_asked_for_again(limit: str) -> None:
    scout = subagent("scout", ends(HALF, limit), says("10 mg, never with milk"))
    records = await asked(scout)
    assert told(records) == {"answer": "10 mg, never with milk"}
    model = scout.agent.model
    assert isinstance(model, PlayedModel)
    assert f"cut off at {len(text_block(HALF))} tokens" in str(model.requests[1]["messages"][-1])


async def test_even_one_that_fits_as_it_stands_is_none_if_a_limit_cut_it_off() -> None:
    answer = json.dumps({"source_ids": [], "planner_reflection": "enough"})
    scout = subagent("scout", ends(answer, "max_tokens"), result=Research(), steps_max=1)
    records = await asked(scout)
    assert (ended(records)[0].code, ended(records)[0].rounds) == ("steps", 1)
    assert "ended before its answer" in str(told(records))


async def test_one_that_is_cut_off_each_time_ends_with_its_steps() -> None:
    records = await asked(subagent("scout", *[ends(HALF, "max_tokens")] * 3, steps_max=2))
    assert (ended(records)[0].code, ended(records)[0].rounds) == ("steps", 2)
    assert HALF not in str(told(records))


async def test_what_the_host_paused_is_the_beginning_of_the_answer() -> None:
    scout = subagent("scout", ends("It is ", "pause_turn"), ends("right ", "pause_turn"), says("there."))
    assert told(await asked(scout)) == {"answer": "It is right there."}


async def test_what_was_said_before_a_tool_ran_is_no_part_of_the_answer() -> None:
    scout = subagent("scout", ends("Let me ", "pause_turn"), calls(use("look", "a"), text="see."), says("It is there."))
    assert told(await asked(scout)) == {"answer": "It is there."}


async def test_what_was_not_accepted_is_no_part_of_the_next_answer() -> None:
    scout = subagent("scout", ends("Too ", "pause_turn"), ends("much", "max_tokens"), says("It is there."))
    assert told(await asked(scout)) == {"answer": "It is there."}


@pytest.mark.parametrize("step_limit", [1, 3, 4])
async def test_its_own_steps_bound_it_even_where_those_of_a_turn_are_fewer(step_limit: int) -> None:
    tools = [searching(), selecting()]
    found, picked = calls(use("search", "a", ids=["s1"])), calls(use("select", "b", ids=["s1"]))
    scout = subagent("scout", found, picked, *[found] * 3, tools=tools, result=Research(), steps_max=4)
    async with running_engine(
        asks("scout"),
        *([says("done")] if step_limit > 1 else []),
        tools=[spawning("scout")],
        subagents={"scout": scout},
        steps=StepOptions(step_limit=step_limit),
    ) as engine:
        await engine.ask("where is it?")
        records = await engine.records()
    assert (ended(records)[0].code, ended(records)[0].rounds) == ("steps", 4)
    assert '"s1"' in said(results_of(records)[0])


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (fails(ContextTooLong("prompt is too long")), "context_too_long"),
        (replies(stop_reason="max_tokens"), "output_limit"),
    ],
)
@pytest.mark.parametrize("has_selected", [True, False])
async def test_a_limit_of_its_model_leaves_what_was_selected_and_fails_it_where_nothing_was(
    end: Play, code: str, has_selected: bool
) -> None:
    found = calls(use("search", "a", ids=["s1", "s2"]))
    picked = calls(use("select", "b", ids=["s2"])) if has_selected else found
    tools = [searching(), selecting()]
    records = await asked(subagent("scout", found, picked, *[end] * 3, tools=tools, result=Research()))
    (finished,), (result,) = ended(records), results_of(records)
    if has_selected:
        assert (finished.outcome, finished.code, finished.findings) == (Outcome.SUCCEEDED, code, 2)
        assert [source["id"] for source in json.loads(said(result))["sources"]] == ["s2"]
        assert finished.bundle
    else:
        assert (finished.outcome, finished.code, finished.bundle) == (Outcome.FAILED, "failed", "")
        assert code in said(result)
