"""Whatever ends a call ends its sub-agents and theirs, at once, and each says so in its own journal."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from tests.support.doubles import FakeTool, Gate, Play, calls, reads, says, stops_at, use, waits
from tests.support.engine import DEADLINE_S, KEY, Engine, running_engine
from tests.support.subagents import asks, children, ended, results_of, said, spawning, subagent, until_ended
from torpor.flags.contract import EVERYTHING_ON, Decided, FlagContext
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.ids import ConversationKey
from torpor.records.journal import MessageReceived, SubagentFinished, ToolFinished, TurnCancelled, TurnFinished
from torpor.records.terms import Outcome, Usage, WhenBusy
from torpor.subagents.options import SubagentOptions
from torpor.toolhost.contract import ToolContext
from torpor.turn.prepare import Surroundings

DEEP = SubagentOptions(depth_max=3)
Ending = Callable[[Engine], Awaitable[object]]


async def by_cancel(engine: Engine) -> None:
    await engine.cancel()


async def by_interrupt(engine: Engine) -> None:
    await engine.send("something else", when_busy=WhenBusy.INTERRUPT)


ENDINGS: tuple[Ending, ...] = (by_cancel, by_interrupt)


def costs(play: Play, **usage: int) -> Play:
    async def dear(request: ModelRequest, sink: ReplySink) -> ModelReply:
        reply = await play(request, sink)
        return ModelReply(blocks=reply.blocks, stop_reason=reply.stop_reason, usage=Usage(**usage))

    return dear


async def reached(gate: Gate) -> None:
    with anyio.fail_after(DEADLINE_S):
        await gate.reached.wait()


async def cut_of(engine: Engine, key: ConversationKey) -> TurnCancelled:
    """How a child's journal ends: nothing of it is open."""
    records, state = await engine.records(key), await engine.state(key)
    assert (state.turn, state.children, state.queued) == (None, (), ())
    (cut,) = [record for record in records if isinstance(record, TurnCancelled)]
    return cut


async def ended_as_cancelled(engine: Engine) -> SubagentFinished:
    (finished,) = await until_ended(engine)
    await engine.rested()
    assert (finished.outcome, finished.code, finished.bundle) == (Outcome.FAILED, "cancelled", "")
    (result,) = results_of(await engine.records())
    assert result.outcome is Outcome.INTERRUPTED
    assert (await engine.state()).children == ()
    return finished


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_sub_agent_that_asks_its_model_is_ended(ending: Ending) -> None:
    gate = Gate()
    scout = subagent("scout", waits(gate, says("never"), said=("let me ",)))
    async with running_engine(asks("scout"), tools=[spawning("scout")], subagents={"scout": scout}) as engine:
        await engine.send("look")
        await reached(gate)
        await ending(engine)
        finished = await ended_as_cancelled(engine)
        cut = await cut_of(engine, KEY.child(finished.child))
        assert engine.bus.live_reply(KEY.child(finished.child)) is None
        assert engine.parts.places.statistics().taken == 0
    assert cut.reason == "cancelled"
    assert finished.child_seq == cut.seq


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_sub_agent_whose_tool_runs_is_ended_with_it(ending: Ending) -> None:
    gate, ledger = Gate(), list[str]()

    async def runs(arguments: dict[str, Any], context: ToolContext) -> str:
        try:
            return await stops_at(gate)(arguments, context)  # type: ignore[return-value]  # it answers with text
        finally:
            ledger.append("ended")

    scout = subagent("scout", costs(calls(use("wait", "a")), input_tokens=40), tools=[reads("wait", runs)])
    async with running_engine(asks("scout"), tools=[spawning("scout")], subagents={"scout": scout}) as engine:
        await engine.send("look")
        await reached(gate)
        await ending(engine)
        finished = await ended_as_cancelled(engine)
        await cut_of(engine, KEY.child(finished.child))
        (result,) = await engine.records_of(ToolFinished, key=KEY.child(finished.child))
    assert ledger == ["ended"]
    assert result.outcome is Outcome.INTERRUPTED
    assert (finished.usage.input_tokens, finished.rounds) == (40, 1)


async def test_one_whose_start_is_not_durable_is_ended_and_has_no_journal() -> None:
    scout, engines = subagent("scout", says("never")), list[Engine]()

    async def play(request: ModelRequest, sink: ReplySink) -> ModelReply:
        reply = await asks("scout")(request, sink)
        engines[0].store.hold()
        return reply

    async with running_engine(play, tools=[spawning("scout")], subagents={"scout": scout}) as engine:
        engines.append(engine)
        await engine.send("look")
        await engine.store.holds_one()
        async with anyio.create_task_group() as tasks:
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(engine.cancel)
            await anyio.wait_all_tasks_blocked()
            engine.store.let_go()
        finished = await ended_as_cancelled(engine)
        assert (finished.child_seq, finished.link, finished.rounds) == (0, "", 0)
        assert await children(engine) == ()


class AsksSlowly:
    """Implements ``turn.prepare.FlagSource``: of one agent it has to ask, and that takes until the gate is open."""

    def __init__(self, agent: str) -> None:
        self.gate = Gate()
        self._agent = agent

    def decided(self, context: FlagContext) -> Decided | None:
        return None if context.agent == self._agent else EVERYTHING_ON

    async def ask(self, context: FlagContext) -> Decided:
        await self.gate.passed()
        return EVERYTHING_ON


async def test_one_whose_turn_has_not_begun_is_ended_and_says_so() -> None:
    flags, scout = AsksSlowly("scout"), subagent("scout", says("never"))
    async with running_engine(
        asks("scout"), tools=[spawning("scout")], subagents={"scout": scout}, surroundings=Surroundings(flags=flags)
    ) as engine:
        await engine.send("look")
        await reached(flags.gate)
        await engine.cancel()
        finished = await ended_as_cancelled(engine)
        assert (await cut_of(engine, KEY.child(finished.child))).turn == 1


@pytest.mark.parametrize("ending", ENDINGS)
async def test_three_levels_end_together_and_what_they_cost_is_on_record(ending: Ending) -> None:
    gate = Gate()
    deepest = subagent("deepest", costs(calls(use("look", "a")), input_tokens=1), waits(gate, says("never")))
    deeper = subagent("deeper", costs(asks("deepest"), input_tokens=10), tools=[spawning("deepest")])
    scout = subagent("scout", costs(asks("deeper"), input_tokens=100), tools=[spawning("deeper")])
    levels = {"scout": scout, "deeper": deeper, "deepest": deepest}
    async with running_engine(
        asks("scout"), tools=[spawning("scout")], subagents=levels, subagent_options=DEEP
    ) as engine:
        await engine.send("look")
        await reached(gate)
        await ending(engine)
        finished = await ended_as_cancelled(engine)
        found = await children(engine)
        assert len(found) == 3
        for child in found:
            await cut_of(engine, child)
        first, second, third = found
        assert [each.usage.input_tokens for each in ended(await engine.records(first))] == [11]
        assert [each.usage.input_tokens for each in ended(await engine.records(second))] == [1]
        heads = [(await engine.records(child))[-1].seq for child in found]
        assert finished.child_seq == heads[0]
        assert engine.parts.places.statistics().taken == 0
    assert third.path.startswith(second.path)
    assert finished.usage.input_tokens == 111


async def test_only_the_turn_that_was_cancelled_ends_its_sub_agents() -> None:
    gate, other = Gate(), ConversationKey("acme", "ann", "c_2")
    scout = subagent("scout", waits(gate, says("one")), waits(gate, says("two")))
    async with running_engine(
        asks("scout"), asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.send("look")
        await engine.send("look", key=other)
        with anyio.fail_after(DEADLINE_S):
            while len(scout.agent.model.requests) < 2:  # type: ignore[attr-defined]  # it is played
                await anyio.lowlevel.checkpoint()
        await engine.cancel()
        await ended_as_cancelled(engine)
        gate.opened.set()
        await engine.rested(other)
        assert [each.code for each in ended(await engine.records(other))] == [""]


async def test_a_turn_after_the_cancelled_one_has_sub_agents_again() -> None:
    gate = Gate()
    scout = subagent("scout", waits(gate, says("never")), says("it is there"))
    async with running_engine(
        asks("scout"), asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.send("look")
        await reached(gate)
        await engine.cancel()
        await engine.ask("again")
        records = await engine.records()
    assert [(each.turn, each.code) for each in ended(records)] == [(1, "cancelled"), (2, "")]
    assert json.loads(said(results_of(records)[1])) == {"answer": "it is there"}
    assert isinstance(records[-1], TurnFinished)


class Stubborn:
    """A tool of a child that takes its time to end; nobody hears what it finds after that."""

    def __init__(self) -> None:
        self.started = Gate()
        self.leaving = Gate()

    def tool(self) -> FakeTool:
        async def run(arguments: dict[str, Any], context: ToolContext) -> str:
            try:
                await self.started.passed()
            finally:
                with anyio.move_on_after(DEADLINE_S, shield=True):
                    await self.leaving.passed()
            return "never"

        return reads("wait", run)


async def test_what_is_slow_to_end_is_recorded_after_its_turn_and_used_by_nobody() -> None:
    stubborn = Stubborn()
    scout = subagent("scout", calls(use("wait", "a")), says("never"), tools=[stubborn.tool()])
    async with running_engine(asks("scout"), tools=[spawning("scout")], subagents={"scout": scout}) as engine:
        await engine.send("look")
        await reached(stubborn.started)
        await engine.cancel()
        await reached(stubborn.leaving)
        before = await engine.records()
        assert isinstance(before[-1], TurnCancelled)
        assert [child.turn for child in (await engine.state()).children] == [1]
        live = engine.supervisor.live_status(KEY)
        assert live is not None
        assert live.state != "idle", "one with a sub-agent at work is not put to sleep"
        stubborn.leaving.opened.set()
        finished = await ended_as_cancelled(engine)
        assert (await engine.records())[len(before) :] == (finished,)
        await cut_of(engine, KEY.child(finished.child))


async def test_a_message_meanwhile_is_answered_though_the_last_sub_agent_is_slow_to_end() -> None:
    stubborn = Stubborn()
    scout = subagent("scout", calls(use("wait", "a")), says("never"), tools=[stubborn.tool()])
    async with running_engine(
        asks("scout"), says("here I am"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        watcher = engine.watch()
        await engine.send("look")
        await reached(stubborn.started)
        await engine.cancel()
        await reached(stubborn.leaving)
        await engine.send("are you there?")
        await watcher.until(TurnFinished)
        stubborn.leaving.opened.set()
        (finished,) = await until_ended(engine)
        await engine.rested()
    assert (finished.turn, finished.code, finished.cause) == (1, "cancelled", "m_1")


async def test_a_call_that_is_over_starts_no_sub_agent() -> None:
    """A tool may keep what it was given."""
    kept: list[ToolContext] = []

    async def keeps(arguments: dict[str, Any], context: ToolContext) -> str:
        kept.append(context)
        return "kept"

    scout = subagent("scout", says("never"))
    async with running_engine(
        calls(use("keep", "a")), says("done"), tools=[reads("keep", keeps)], subagents={"scout": scout}
    ) as engine:
        await engine.ask("keep it")
        before = await engine.records()
        spawner = kept[0].spawner
        assert spawner is not None
        with pytest.raises(Exception, match="is over"):
            await spawner.spawn("scout", "anything")
        assert await engine.records() == before
        assert (await engine.state()).children == ()
    assert await children(engine) == ()


async def test_a_sub_agent_hears_nothing_of_the_conversation_but_its_task() -> None:
    scout = subagent("scout", says("it is there"))
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.ask("a secret of ours")
        (child,) = await children(engine)
        (message,) = await engine.records_of(MessageReceived, key=child)
    assert "find out" in bytes(message.blocks[0]).decode()
    assert "secret" not in str(scout.agent.model.requests)  # type: ignore[attr-defined]  # it is played
