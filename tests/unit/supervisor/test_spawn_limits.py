"""How deep, how many and how dear sub-agents may be, and who may have any: what is too much is refused, and told."""

from typing import Any

import anyio

from tests.support.doubles import Gate, Play, PlayedModel, calls, reads, says, use, waits
from tests.support.engine import DEADLINE_S, running_engine
from tests.support.subagents import asks, begun, children, ended, later_ids, results_of, said, spawning, subagent
from torpor.flags.contract import Decided, Decision, FlagContext
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.journal import SubagentFinished, SubagentStarted, ToolFinished
from torpor.records.terms import Outcome, Usage
from torpor.subagents.options import SubagentOptions
from torpor.turn.prepare import Surroundings


def dear(play: Play, tokens: int) -> Play:
    async def costs(request: ModelRequest, sink: ReplySink) -> ModelReply:
        reply = await play(request, sink)
        usage = Usage(input_tokens=tokens)
        return ModelReply(blocks=reply.blocks, stop_reason=reply.stop_reason, usage=usage)

    return costs


async def test_one_that_would_stand_too_deep_is_refused() -> None:
    host = PlayedModel([asks("scout"), asks("scout"), says("too deep"), says("deep enough")])
    scout = subagent("scout", host=host, tools=[spawning("scout")])
    async with running_engine(
        asks("scout"),
        says("done"),
        tools=[spawning("scout")],
        subagents={"scout": scout},
        subagent_options=SubagentOptions(depth_max=2),
    ) as engine:
        await engine.ask("look")
        first, second = await children(engine)
        (refused,) = results_of(await engine.records(second))
        assert begun(await engine.records(second)) == []
    assert second.path.startswith(first.path)
    assert refused.outcome is Outcome.DENIED
    assert "2 deep" in said(refused)


async def test_one_too_many_at_once_is_refused_and_may_come_later() -> None:
    gate = Gate()
    host = PlayedModel([waits(gate, says("it is there"))] * 4)
    scout = subagent("scout", host=host)
    async with running_engine(
        asks("scout", "scout", "scout"),
        asks("scout"),
        says("done"),
        tools=[spawning("scout")],
        subagents={"scout": scout},
        subagent_options=SubagentOptions(at_once_max=2),
    ) as engine:
        watcher = engine.watch()
        await engine.send("look")
        refused = await watcher.until(ToolFinished)
        gate.opened.set()
        await engine.rested()
        records = await engine.records()
    assert refused.outcome is Outcome.DENIED
    assert "2 sub-agents work here already" in said(refused)
    assert [each.code for each in ended(records)] == ["", "", ""]


async def test_tokens_of_a_turn_that_are_used_up_refuse_more_until_the_next_turn() -> None:
    host = PlayedModel([dear(says("it is there"), 600)] * 9)
    async with running_engine(
        asks("scout"),
        asks("scout"),
        asks("scout"),
        says("done"),
        asks("scout"),
        says("done"),
        tools=[spawning("scout")],
        subagents={"scout": subagent("scout", host=host)},
        subagent_options=SubagentOptions(turn_tokens_max=1_000),
    ) as engine:
        await engine.ask("look")
        await engine.ask("again")
        records = await engine.records()
    first, second, third, fourth = results_of(records)
    assert [result.outcome for result in (first, second, fourth)] == [Outcome.SUCCEEDED] * 3
    assert third.outcome is Outcome.DENIED
    assert "all the tokens they may" in said(third)
    assert [each.turn for each in ended(records)] == [1, 1, 2]


async def test_tokens_of_a_turn_that_were_used_before_a_crash_stay_used() -> None:
    gate, options = Gate(), SubagentOptions(turn_tokens_max=1_000)
    scout = subagent("scout", *[dear(says("it is there"), 600)] * 3)
    async with running_engine(
        asks("scout"),
        asks("scout"),
        waits(gate, says("never")),
        tools=[spawning("scout")],
        subagents={"scout": scout},
        subagent_options=options,
    ) as engine:
        await engine.send("look")
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        image = engine.store.image()
    async with running_engine(
        asks("scout"),
        says("done"),
        tools=[spawning("scout")],
        subagents={"scout": scout},
        subagent_options=options,
        data=image,
        ids=later_ids(),
    ) as engine:
        await engine.rested()
        records = await engine.records()
    *_, refused = results_of(records)
    assert "all the tokens they may" in said(refused)
    assert [each.usage.input_tokens for each in ended(records)] == [600, 600]


async def test_tokens_of_a_turn_are_shared_by_those_at_work() -> None:
    """What one uses up ends the others before their next call."""
    gate = Gate()
    scouts = {
        "frugal": subagent("frugal", calls(use("wait", "a")), says("never"), tools=[reads("wait", passes(gate))]),
        "lavish": subagent("lavish", dear(says("it is there"), 5_000)),
    }
    async with running_engine(
        asks(*scouts),
        says("done"),
        tools=[spawning(name) for name in scouts],
        subagents=scouts,
        subagent_options=SubagentOptions(turn_tokens_max=4_000),
    ) as engine:
        watcher = engine.watch()
        await engine.send("look")
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        await watcher.until(SubagentFinished)
        gate.opened.set()
        await engine.rested()
        codes = {each.name: each.code for each in ended(await engine.records())}
    assert codes == {"lavish": "", "frugal": "tokens"}


def passes(gate: Gate) -> Any:
    async def run(arguments: Any, context: Any) -> str:
        await gate.passed()
        return "done"

    return run


class Switched:
    """Implements ``turn.prepare.FlagSource``: one flag that is turned while turns run."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.is_on = True

    def decided(self, context: FlagContext) -> Decided | None:
        return Decided([Decision(key=self._key, value=self.is_on, variant="default", reason="STATIC")])

    async def ask(self, context: FlagContext) -> Decided:
        raise AssertionError("it is always decided")


def offered(request: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in request["tools"]]


async def test_one_that_is_switched_off_is_not_offered() -> None:
    switch = Switched("subagent.scout")
    scout = subagent("scout", *[says("it is there")] * 2)
    async with running_engine(
        says("hello"),
        asks("scout"),
        says("done"),
        tools=[spawning("scout")],
        subagents={"scout": scout},
        surroundings=Surroundings(flags=switch),
    ) as engine:
        switch.is_on = False
        await engine.ask("hi")
        switch.is_on = True
        await engine.ask("look")
        before, after, *_ = engine.model.requests
        (finished,) = ended(await engine.records())
    assert ("scout" in offered(before), "scout" in offered(after)) == (False, True)
    assert finished.code == ""


async def test_one_that_is_switched_off_in_the_middle_of_a_turn_is_refused() -> None:
    switch = Switched("subagent.scout")

    async def play(request: ModelRequest, sink: ReplySink) -> ModelReply:
        switch.is_on = False
        return await asks("scout")(request, sink)

    async with running_engine(
        play,
        says("done"),
        tools=[spawning("scout")],
        subagents={"scout": subagent("scout", says("never"))},
        surroundings=Surroundings(flags=switch),
    ) as engine:
        await engine.ask("look")
        records = await engine.records()
    (result,) = results_of(records)
    assert result.outcome is Outcome.DENIED
    assert "switched off" in said(result)
    assert begun(records) == []


async def test_an_agent_without_sub_agents_is_told_that_there_are_none() -> None:
    async with running_engine(asks("scout"), says("done"), tools=[spawning("scout")]) as engine:
        await engine.ask("look")
        records = await engine.records()
    (result,) = results_of(records)
    assert result.outcome is Outcome.DENIED
    assert not [record for record in records if isinstance(record, SubagentStarted)]
