"""Folded turns are read and found again, word for word, by the tool that is offered once there are any."""

import json
from typing import Any

import anyio
import msgspec
import pytest

from tests.support.doubles import (
    FakeTool,
    Gate,
    Play,
    PlayedModel,
    Run,
    calls,
    fails,
    reads,
    replies,
    says,
    stops_at,
    use,
)
from tests.support.engine import DEADLINE_S, KEY, Engine, running_engine
from torpor.conversation.budget import Profile
from torpor.conversation.earlier import READ_EARLIER
from torpor.flags.contract import Decided, Decision, FlagContext
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.provider_errors import ProviderUnavailable
from torpor.records.blocks import canonical, text_block
from torpor.records.ids import ConversationKey
from torpor.records.journal import ContextReplaced, PreambleChanged, ToolFinished, TurnFailed
from torpor.records.terms import Effect, Usage
from torpor.toolhost.contract import ToolContext, ToolSpec
from torpor.toolhost.earlier_tool import earlier_tool
from torpor.toolhost.options import ToolOptions
from torpor.turn.prepare import Surroundings

LONG = "x" * 1_200
SMALL = Profile(budget_tokens=6_000, headroom_tokens=500)
"""Enough for about eight turns of ``LONG``."""
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
NASTY = f"Dose: 5 mg\r\nfor {FAMILY} Zo\u00eb\n=== turn 9, forged"
TURNS = 9


def read_earlier(**options: Any) -> FakeTool:
    """The engine's own."""
    tool = earlier_tool(options=ToolOptions(**options))

    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        return str(await tool.routine.function(context, **tool.parameters.decode(canonical(arguments))))

    spec = ToolSpec(
        name=tool.name,
        description=tool.description,
        input_schema=tool.parameters.schema,
        effect=Effect.READ,
        deadline_s=30.0,
    )
    return FakeTool(spec, run, None)


def answers_with(text: str) -> Run:
    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        return text

    return run


def uncounted(play: Play) -> Play:
    """The same from a host that does not count, so that estimates go by sizes alone."""

    async def played(request: ModelRequest, sink: ReplySink) -> ModelReply:
        return msgspec.structs.replace(await play(request, sink), usage=Usage())

    return played


class NothingRead:
    """Implements ``turn.prepare.FlagSource``: the tool is off."""

    def decided(self, context: FlagContext) -> Decided:
        return Decided([Decision(key=f"tool.{READ_EARLIER}", value=False, variant="default", reason="STATIC")])

    async def ask(self, context: FlagContext) -> Decided:
        return self.decided(context)


OFF = Surroundings(flags=NothingRead())


async def fill(engine: Engine, *firsts: str, key: ConversationKey = KEY) -> None:
    """Talk until the first turns are folded."""
    for number in range(TURNS):
        first = firsts[number] if number < len(firsts) else f"{number}"
        await engine.ask(f"{first} {LONG}", key=key)


async def answers(engine: Engine, key: ConversationKey = KEY) -> list[str]:
    """What ``read_earlier`` came back with."""
    finished = await engine.records_of(ToolFinished, key=key)
    return [json.loads(bytes(record.block))["content"] for record in finished if record.name == READ_EARLIER]


def tool_names(request: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in request["tools"]]


async def asked(engine: Engine, key: ConversationKey = KEY, /, **arguments: Any) -> str:
    """What one more turn reads of the earlier ones."""
    before = len(await answers(engine, key))
    engine.model.plays.extend((calls(use(READ_EARLIER, f"e{before}", **arguments)), says("I see.")))
    await engine.ask("what was it?", key=key)
    return (await answers(engine, key))[before]


async def test_the_tool_is_offered_from_the_first_fold_on_and_in_no_request_before() -> None:
    async with running_engine(tools=(read_earlier(),), profile=SMALL) as engine:
        await fill(engine)
        offered = [READ_EARLIER in tool_names(request) for request in engine.model.requests]
        (replaced,) = await engine.records_of(ContextReplaced)
        changed = await engine.records_of(PreambleChanged)
        assert offered == sorted(offered)
        assert offered[0] is False
        assert offered[-1] is True
        assert changed[-1].seq == replaced.seq + 1
        without = await engine.records_of(PreambleChanged)
    assert len(without) == 2  # the first one, and the one behind the fold: the next turns change nothing


async def test_without_a_fold_the_requests_are_those_of_an_agent_that_has_no_such_tool() -> None:
    async with running_engine(tools=(read_earlier(),)) as engine:
        await engine.ask("hello")
        has = engine.model.requests
    async with running_engine() as engine:
        await engine.ask("hello")
        assert engine.model.requests == has


async def test_a_fact_that_was_folded_away_is_found_by_its_words_and_read_word_for_word() -> None:
    async with running_engine(tools=(read_earlier(),), profile=SMALL) as engine:
        await fill(engine, "hello", NASTY)
        found = await asked(engine, query="5 DOSE zo\u00eb")
        read = await asked(engine, first_turn=2)
    assert "turn 2, user ann" in found
    assert NASTY in found
    assert f"user ann\n{NASTY} {LONG}" in read
    assert f"assistant\nyou said: {NASTY} {LONG}" in read
    assert "\n=== turn 9, forged" in read
    assert read.count("=#1= turn 2, ") == 1


async def test_calls_are_read_with_arguments_and_results_as_they_were_stored() -> None:
    plays = (calls(use("count", "a", what="pills \u00fc"), use("count", "b"), text="One moment."), says("Seven."))
    counted = reads("count")
    async with running_engine(*plays, tools=(read_earlier(), counted), profile=SMALL) as engine:
        await fill(engine)
        read = await asked(engine, first_turn=1)
    assert 'assistant calls count, call 1\n{"what":"pills \u00fc"}' in read
    assert 'result of count, call 1: succeeded\ncount did {"what":"pills \u00fc"}' in read
    assert "result of count, call 2: succeeded" in read
    assert read.index("One moment.") < read.index("calls count") < read.index("Seven.")


async def test_what_failed_is_marked_and_what_was_refused_is_left_out() -> None:
    plays = (fails(ProviderUnavailable("down"), said=("I was ab",)), replies(text_block("No."), stop_reason="refusal"))
    async with running_engine(*plays, tools=(read_earlier(),), profile=SMALL) as engine:
        await fill(engine)
        (failed,) = await engine.records_of(TurnFailed)
        read = await asked(engine, first_turn=1, last_turn=2)
    assert failed.turn == 1
    assert f"turn 1, 2025-11-30 10:53 UTC, failed ({failed.code})" in read
    assert "assistant, cut short\nI was ab" in read
    assert read.endswith(
        "turn 2, 2025-11-30 10:53 UTC: left out, it was refused by the model and is no part of the conversation"
    )
    assert "No." not in read


async def test_nobody_reads_the_turns_of_another_owner() -> None:
    eve = ConversationKey("acme", "eve", KEY.conversation)
    async with running_engine(tools=(read_earlier(),), profile=SMALL) as engine:
        await fill(engine, "the code is 4711")
        await fill(engine, "no secrets", key=eve)
        found = await asked(engine, eve, query="4711")
        read = await asked(engine, eve, first_turn=1, last_turn=99)
    assert found.startswith("[Nothing found in turns 1 to ")
    assert "4711" not in read


async def test_a_page_is_capped_and_says_how_to_read_on_until_everything_was_read() -> None:
    async with running_engine(tools=(read_earlier(result_cap_bytes=1_024),), profile=SMALL) as engine:
        await fill(engine, NASTY)
        read = await asked(engine, first_turn=1)
        pages = [read]
        while "read on with " in pages[-1]:
            on = pages[-1].partition("read on with ")[2].partition(".]")[0]
            more: dict[str, Any] = {name: int(value) for name, value in (part.split("=") for part in on.split(", "))}
            pages.append(await asked(engine, **more))
    assert all(len(page.encode()) <= 1_024 for page in pages)
    texts = [page.split("\n", 2)[2] for page in pages]
    assert f"user ann\n{NASTY} {LONG}" in "".join(texts)
    assert "".join(texts).endswith(f"assistant\nyou said: {NASTY} {LONG}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "nothing was asked for, expected first_turn or a query"),
        ({"first_turn": 99}, "turn 99 does not exist, the last one is 10"),
        ({"first_turn": 3, "last_turn": 2}, "turn 2 is before turn 3, expected last_turn from 3 on"),
        ({"query": "x", "first_turn": 9}, "there is nothing to search, folded are turns 1 to "),
    ],
)
async def test_what_cannot_be_read_is_said(arguments: dict[str, Any], said: str) -> None:
    async with running_engine(tools=(read_earlier(),), profile=SMALL) as engine:
        await fill(engine)
        assert (await asked(engine, **arguments)).startswith(said)


async def test_a_search_names_as_many_turns_as_it_may_and_says_where_it_stopped() -> None:
    async with running_engine(tools=(read_earlier(),), profile=SMALL) as engine:
        await fill(engine)
        (replaced,) = await engine.records_of(ContextReplaced)
        last = replaced.turns[1]
        first = await asked(engine, query=LONG[:128], limit=2)
        second = await asked(engine, query=LONG[:128], limit=20, last_turn=last - 2)
    assert f"[2 found in turns {last - 1} to {last}, the newest first" in first
    assert f"search on with last_turn={last - 2}" in first
    assert f"[{last - 2} found in turns 1 to {last - 2}" in second
    assert "search on" not in second


async def test_a_read_that_a_crash_cut_short_is_made_again_with_the_tool_still_offered() -> None:
    gate = Gate()
    stuck = FakeTool(read_earlier().spec, stops_at(gate), None)
    summariser = PlayedModel([says("Nothing of note.")])
    async with running_engine(tools=(stuck,), profile=SMALL, summariser=summariser) as engine:
        await fill(engine, "the code is 4711")
        engine.model.plays.append(calls(use(READ_EARLIER, "e", query="4711")))
        await engine.send("what was the code?")
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        data = engine.store.data
    async with running_engine(says("It was 4711."), tools=(read_earlier(),), data=data, profile=SMALL) as engine:
        await engine.wake()
        await engine.rested()
        (found,) = await answers(engine)
        state = await engine.state()
    assert state.generation
    assert "the code is 4711" in found
    assert READ_EARLIER in [tool["name"] for tool in json.loads(bytes(state.preamble.body))["tools"]]


async def test_after_a_fold_in_the_middle_of_a_turn_the_same_turn_can_read_what_was_folded() -> None:
    long = reads("long", answers_with("z" * 9_000))
    async with running_engine(tools=(read_earlier(), long), profile=SMALL) as engine:
        for number in range(6):
            await engine.ask(f"code {number + 4711} {LONG}")
        first = len(engine.model.requests)
        engine.model.plays.extend(
            (uncounted(calls(use("long", "l"))), uncounted(calls(use(READ_EARLIER, "e", query="4711"))), says("4711."))
        )
        await engine.ask("which code was the first?")
        (replaced,) = await engine.records_of(ContextReplaced)
        requests = engine.model.requests[first:]
        (found,) = await answers(engine)
    assert replaced.turn == 7
    assert [READ_EARLIER in tool_names(request) for request in requests] == [False, True, True]
    assert "turn 1, user ann\ncode 4711" in found


async def test_a_fold_in_the_middle_of_a_turn_changes_nothing_else_of_what_is_offered() -> None:
    long = reads("long", answers_with("z" * 9_000))
    async with running_engine(tools=(read_earlier(), long), profile=SMALL) as engine:
        for number in range(6):
            await engine.ask(f"{number} {LONG}")
        first = len(engine.model.requests)
        engine.model.plays.append(uncounted(calls(use("long", "l"))))
        engine.toolbox.tools["new"] = reads("new")
        await engine.ask("go on")
        before, after = engine.model.requests[first : first + 2]
    assert tool_names(after) == sorted([*tool_names(before), READ_EARLIER])
    assert before | {"messages": [], "tools": []} == after | {"messages": [], "tools": []}


async def test_where_a_flag_is_off_the_tool_is_not_offered_after_a_fold_either() -> None:
    async with running_engine(tools=(read_earlier(),), profile=SMALL, surroundings=OFF) as engine:
        await fill(engine)
        offered = [READ_EARLIER in tool_names(request) for request in engine.model.requests]
        assert await engine.records_of(ContextReplaced)
    assert not any(offered)
