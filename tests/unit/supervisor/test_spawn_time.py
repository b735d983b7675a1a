"""How long a sub-agent may take, on a virtual clock."""

import json
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest
from trio.testing import MockClock

from tests.support.doubles import FakeTool, Gate, LoopClock, Play, PlayedModel, calls, echo, reads, says, use, waits
from tests.support.engine import KEY, QUICK, Engine, running_engine
from tests.support.subagents import (
    asks,
    begun,
    children,
    ended,
    later_ids,
    results_of,
    said,
    searching,
    selecting,
    spawning,
    subagent,
)
from torpor.flags.contract import EVERYTHING_ON, Decided, FlagContext
from torpor.records.journal import JournalRecord, TurnCancelled, TurnFinished
from torpor.records.terms import Outcome
from torpor.subagents.definition import Subagent
from torpor.subagents.options import SubagentOptions
from torpor.subagents.research import Research
from torpor.supervisor.options import SupervisorOptions
from torpor.toolhost.contract import ToolContext
from torpor.turn.options import TurnOptions
from torpor.turn.prepare import Surroundings

GRACE_S = 10.0
LONG_S = 100.0
"""By then everything has ended."""
NO_SWEEP = msgspec.structs.replace(QUICK, sweep_s=3_600.0)
STOP_S = SupervisorOptions().stop_deadline_s
FOUND = calls(use("search", "a", ids=["s1", "s2", "s3"]))
PICKED = calls(use("select", "b", ids=["s3", "s1"]))
NEVER = waits(Gate(), says("never"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, MockClock]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def takes(seconds: float, then: Play) -> Play:
    async def play(request: Any, sink: Any) -> Any:
        await anyio.sleep(seconds)
        return await then(request, sink)

    return play


def dwells(name: str, seconds: float) -> FakeTool:
    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        await anyio.sleep(seconds)
        return "done"

    return reads(name, run)


async def worked(scout: Subagent, *, seconds: float = 120.0, **engine: Any) -> tuple[Engine, float]:
    """An engine in which ``scout`` worked, and how long the turn took."""
    async with running_engine(
        asks("scout"),
        says("done"),
        tools=[spawning("scout", seconds=seconds)],
        subagents={"scout": scout},
        clock=LoopClock(),
        options=NO_SWEEP,
        **engine,
    ) as running:
        await running.send("look")
        await anyio.sleep(LONG_S)
        model = scout.agent.model
        assert isinstance(model, PlayedModel)
        assert model.refused == []
        return running, took_s(await running.records())


def took_s(records: Sequence[JournalRecord]) -> float:
    """Of the one turn that finished."""
    (finished,) = [record for record in records if isinstance(record, TurnFinished)]
    return (finished.at_us - records[0].at_us) / 1_000_000


async def test_seconds_that_are_over_leave_what_was_selected() -> None:
    scout = subagent("scout", FOUND, PICKED, NEVER, tools=[searching(), selecting()], result=Research(), seconds_max=30)
    engine, seconds = await worked(scout, seconds=30)
    records = await engine.records()
    (result,), (finished,) = results_of(records), ended(records)
    assert [source["id"] for source in json.loads(said(result))["sources"]] == ["s3", "s1"]
    assert (finished.code, finished.outcome, finished.findings) == ("seconds", Outcome.SUCCEEDED, 3)
    (cut,) = await engine.records_of(TurnCancelled, key=KEY.child(finished.child))
    assert cut.reason == "seconds"
    assert seconds == pytest.approx(30, abs=1)


async def test_seconds_end_a_tool_that_dwells() -> None:
    scout = subagent("scout", calls(use("dwell", "a")), tools=[dwells("dwell", 500)], seconds_max=30)
    engine, seconds = await worked(scout, seconds=30)
    (finished,) = ended(await engine.records())
    assert (finished.code, finished.rounds) == ("seconds", 1)
    assert seconds == pytest.approx(30, abs=1)


async def test_seconds_end_what_waits_for_a_place() -> None:
    host = PlayedModel([takes(50, says("too late"))] * 2)
    async with running_engine(
        asks("scout", "scout"),
        says("done"),
        tools=[spawning("scout")],
        subagents={"scout": subagent("scout", host=host, seconds_max=30)},
        turn=TurnOptions(model_calls_max=1),
        clock=LoopClock(),
        options=NO_SWEEP,
    ) as engine:
        await engine.send("look")
        await anyio.sleep(LONG_S)
        records, places = await engine.records(), engine.parts.places.statistics()
    assert len(host.requests) == 1, "the other one found no place"
    assert [(each.code, each.rounds) for each in ended(records)] == [("seconds", 0)] * 2
    assert (places.taken, places.waiting) == (0, 0)
    assert took_s(records) == pytest.approx(30, abs=1)


async def test_seconds_that_end_a_sub_agent_end_its_own_and_their_end_is_written() -> None:
    deep = subagent("deep", calls(use("dwell", "a")), tools=[dwells("dwell", 500)])
    scout = subagent("scout", asks("deep"), tools=[spawning("deep")], seconds_max=30)
    async with running_engine(
        asks("scout"),
        says("done"),
        tools=[spawning("scout")],
        subagents={"scout": scout, "deep": deep},
        clock=LoopClock(),
        options=NO_SWEEP,
    ) as engine:
        await engine.send("look")
        await anyio.sleep(LONG_S)
        assert took_s(await engine.records()) == pytest.approx(30, abs=1)
        (finished,) = ended(await engine.records())
        records = await engine.records(KEY.child(finished.child))
        (below,) = ended(records)
        assert (finished.code, below.code) == ("seconds", "cancelled")
        assert finished.child_seq == records[-1].seq
        assert (await engine.state(KEY.child(finished.child))).children == ()
        for child in await children(engine):
            assert (await engine.state(child)).turn is None


class AsksSlowly:
    """Implements ``turn.prepare.FlagSource``: of one agent it has to ask, and that takes a while."""

    def __init__(self, agent: str, *, seconds: float) -> None:
        self._agent = agent
        self._seconds = seconds

    def decided(self, context: FlagContext) -> Decided | None:
        return None if context.agent == self._agent else EVERYTHING_ON

    async def ask(self, context: FlagContext) -> Decided:
        await anyio.sleep(self._seconds)
        return EVERYTHING_ON


async def test_seconds_that_are_over_before_its_turn_begins_leave_no_time_for_one() -> None:
    scout = subagent("scout", says("too late"), seconds_max=30)
    flags = AsksSlowly("scout", seconds=35)
    engine, seconds = await worked(scout, seconds=30, surroundings=Surroundings(flags=flags))
    (finished,) = ended(await engine.records())
    assert (finished.code, finished.rounds) == ("seconds", 0)
    assert seconds == pytest.approx(35, abs=1)


async def test_a_call_that_takes_longer_than_its_deadline_ends_its_sub_agent() -> None:
    """The tool allows less than the definition."""
    scout = subagent("scout", takes(500, says("never")), seconds_max=300)
    engine, seconds = await worked(scout, seconds=30)
    (result,), (finished,) = results_of(await engine.records()), ended(await engine.records())
    assert (finished.code, finished.outcome, result.outcome) == ("cancelled", Outcome.FAILED, Outcome.FAILED)
    assert "40" in said(result)
    assert seconds == pytest.approx(30 + GRACE_S, abs=1)
    (cut,) = await engine.records_of(TurnCancelled, key=KEY.child(finished.child))
    assert cut.reason == "cancelled"


async def test_a_store_that_takes_no_more_holds_nobody_up_for_long() -> None:
    """What was cancelled writes its end, and waits for that no longer than it may."""
    scout = subagent("scout", NEVER)
    async with running_engine(
        asks("scout"), tools=[spawning("scout")], subagents={"scout": scout}, clock=LoopClock()
    ) as engine:
        await engine.send("look")
        await anyio.sleep(1)
        engine.store.hold()
        began_s = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.cancel)
            await anyio.sleep(8)
            assert len(engine.store.held) == 2, "its own and the conversation's"
            engine.store.let_go()
        assert anyio.current_time() - began_s == pytest.approx(8, abs=1)
        await engine.rested()
        (finished,) = ended(await engine.records())
    assert finished.code == "cancelled"


async def test_a_store_that_takes_nothing_is_waited_for_a_while_at_each_level() -> None:
    levels = {
        "first": subagent("first", asks("second"), tools=[spawning("second")]),
        "second": subagent("second", asks("third"), tools=[spawning("third")]),
        "third": subagent("third", calls(use("dwell", "a")), tools=[dwells("dwell", 500)]),
    }
    options = SubagentOptions(depth_max=3)
    async with running_engine(
        asks("first"),
        tools=[spawning("first")],
        subagents=levels,
        subagent_options=options,
        clock=LoopClock(),
        options=NO_SWEEP,
    ) as engine:
        await engine.send("look")
        await anyio.sleep(1)
        assert len(await children(engine)) == 3
        engine.store.hold()
        began_s = anyio.current_time()
    assert anyio.current_time() - began_s <= 3 * options.end_s + 1
    assert len(engine.store.held) == 3, "nothing is written for the conversation, which is cut off"


async def test_a_drain_waits_for_a_sub_agent_that_ends_in_time() -> None:
    scout = subagent("scout", takes(5, says("it is there")))
    async with running_engine(
        asks("scout"),
        says("done"),
        tools=[spawning("scout")],
        subagents={"scout": scout},
        clock=LoopClock(),
        options=SupervisorOptions(),
    ) as engine:
        await engine.send("look")
        await anyio.sleep(1)
    data = engine.store.data
    (finished,) = ended(await engine.records())
    assert finished.code == ""
    async with running_engine(
        tools=[spawning("scout")], subagents={"scout": scout}, clock=LoopClock(), data=data, ids=later_ids()
    ) as successor:
        await successor.rested()
        records = await successor.records()
    assert len(begun(records)) == 1
    assert isinstance(records[-1], TurnFinished)


async def test_a_drain_cuts_off_one_that_does_not_and_it_works_again_after_the_start() -> None:
    scout = subagent("scout", NEVER, says("it is there"))
    async with running_engine(
        asks("scout"),
        tools=[spawning("scout")],
        subagents={"scout": scout},
        clock=LoopClock(),
        options=SupervisorOptions(),
    ) as engine:
        await engine.send("look")
        await anyio.sleep(1)
        began_s = anyio.current_time()
    assert anyio.current_time() - began_s == pytest.approx(STOP_S, abs=1)
    (first,) = await children(engine)
    assert len(await engine.records_of(TurnCancelled, key=first)) == 1
    async with running_engine(
        echo,
        tools=[spawning("scout")],
        subagents={"scout": scout},
        clock=LoopClock(),
        data=engine.store.data,
        ids=later_ids(),
    ) as successor:
        await successor.rested()
        records = await successor.records()
    assert [each.code for each in ended(records)] == ["lost", ""]
    assert len({each.child for each in ended(records)}) == 2
    assert json.loads(said(results_of(records)[0])) == {"answer": "it is there"}
