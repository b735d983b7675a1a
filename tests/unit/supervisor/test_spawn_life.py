"""The life of a conversation with sub-agents: sleep, snapshots, forks, folds of its history, messages meanwhile."""

import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.support.compacting import LONG, SMALL, always, counted, summarising
from tests.support.doubles import Gate, PlayedModel, calls, echo, reads, says, use, waits
from tests.support.engine import DEADLINE_S, KEY, Engine, running_engine
from tests.support.subagents import (
    asks,
    begun,
    children,
    ended,
    later_ids,
    results_of,
    said,
    spawning,
    subagent,
    until_ended,
)
from torpor.actor.options import ActorOptions
from torpor.conversation.publish import event_of
from torpor.conversation.snapshot import decode_snapshot
from torpor.errors import NotNow
from torpor.records.events import Progress
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import ContextReplaced, SubagentFinished, SubagentStarted, TurnCancelled
from torpor.records.terms import WhenBusy
from torpor.subagents.definition import Subagent
from torpor.subagents.research import Research
from torpor.supervisor.forking import ForkConversation

ALWAYS = ActorOptions(snapshot_min_bytes=1, snapshot_share=0.0)
"""A snapshot after every turn."""
INTO = ConversationKey("acme", "ann", "c_2")


async def reached(gate: Gate) -> None:
    with anyio.fail_after(DEADLINE_S):
        await gate.reached.wait()


async def asleep(engine: Engine) -> None:
    with anyio.fail_after(DEADLINE_S):
        while engine.supervisor.live_status(KEY) is not None:
            await anyio.lowlevel.checkpoint()


def looks(times: int = 9) -> Subagent:
    return subagent("scout", host=PlayedModel([says("it is there")] * times))


async def test_a_conversation_is_not_put_to_sleep_while_a_sub_agent_works() -> None:
    gate = Gate()
    scout = subagent("scout", waits(gate, says("it is there")))
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.send("look")
        await reached(gate)
        with pytest.raises(NotNow):
            await engine.hibernate(deadline_s=0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.hibernate)
            await anyio.wait_all_tasks_blocked()
            assert engine.supervisor.live_status(KEY) is not None
            gate.opened.set()
        await asleep(engine)
        assert [each.code for each in ended(await engine.records())] == [""]
        assert engine.store.data.of(KEY).holder == ""


async def test_nor_while_one_is_slow_to_end_after_its_turn() -> None:
    started, leaving = Gate(), Gate()

    async def slow(arguments: Any, context: Any) -> str:
        try:
            await started.passed()
        finally:
            with anyio.move_on_after(DEADLINE_S, shield=True):
                await leaving.passed()
        return "never"

    scout = subagent("scout", calls(use("wait", "a")), tools=[reads("wait", slow)])
    async with running_engine(asks("scout"), tools=[spawning("scout")], subagents={"scout": scout}) as engine:
        await engine.send("look")
        await reached(started)
        await engine.cancel()
        await reached(leaving)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.hibernate)
            await anyio.wait_all_tasks_blocked()
            assert ended(await engine.records()) == []
            assert engine.store.data.of(KEY).holder != "", "it keeps its lease"
            leaving.opened.set()
        await asleep(engine)
        records = await engine.records()
    assert isinstance(records[-1], SubagentFinished)
    assert isinstance(records[-2], TurnCancelled)


async def test_what_a_sub_agent_left_is_in_the_snapshot_and_the_next_life_goes_on_from_it() -> None:
    async with running_engine(
        asks("scout"),
        says("done"),
        tools=[spawning("scout")],
        subagents={"scout": looks()},
        actor=ALWAYS,
    ) as engine:
        await engine.ask("look")
        await engine.hibernate()
        await asleep(engine)
        snapshot = engine.store.snapshots[-1]
        assert decode_snapshot(snapshot.data) == await engine.state()
        data = engine.store.image()
    async with running_engine(
        asks("scout"),
        says("done"),
        tools=[spawning("scout")],
        subagents={"scout": looks()},
        actor=ALWAYS,
        data=data,
        ids=later_ids(),
    ) as successor:
        await successor.ask("again")
        await successor.hibernate()
        await asleep(successor)
        assert decode_snapshot(successor.store.snapshots[-1].data) == await successor.state()
        assert [each.turn for each in ended(await successor.records())] == [1, 2]


async def test_one_that_is_lost_is_in_the_snapshot_until_a_turn_settles_it() -> None:
    """Its turn was cancelled, and its process ended before it did."""
    started, leaving = Gate(), Gate()

    async def slow(arguments: Any, context: Any) -> str:
        try:
            await started.passed()
        finally:
            with anyio.move_on_after(DEADLINE_S, shield=True):
                await leaving.passed()
        return "never"

    scout = subagent("scout", calls(use("wait", "a")), tools=[reads("wait", slow)])
    async with running_engine(asks("scout"), tools=[spawning("scout")], subagents={"scout": scout}) as engine:
        await engine.send("look")
        await reached(started)
        await engine.cancel()
        await reached(leaving)
        data = engine.store.image()
        leaving.opened.set()
    async with running_engine(
        tools=[spawning("scout")], subagents={"scout": scout}, actor=ALWAYS, data=data, ids=later_ids()
    ) as successor:
        await successor.wake()
        await successor.hibernate()
        await asleep(successor)
        (snapshot,) = successor.store.snapshots
        assert len(decode_snapshot(snapshot.data).children) == 1
        await successor.ask("and now?")
        assert (await successor.state()).children == ()
        assert [each.code for each in ended(await successor.records())] == ["lost"]


async def fork(engine: Engine, before: str = "") -> None:
    with anyio.fail_after(DEADLINE_S):
        await engine.forks.fork(
            ForkConversation(source=KEY, into=INTO, before=MessageId(before), title="", principal="ann")
        )


async def test_a_fork_has_the_answer_and_no_sub_agent_of_its_source() -> None:
    gate = Gate()
    host = PlayedModel([says("it is there"), waits(gate, says("there as well")), says("and here")])
    async with running_engine(
        asks("scout"),
        says("done"),
        asks("scout"),
        asks("scout"),
        says("done too"),
        says("done as well"),
        tools=[spawning("scout")],
        subagents={"scout": subagent("scout", host=host)},
    ) as engine:
        await engine.ask("look")
        await engine.send("look again")
        await reached(gate)
        await fork(engine, "m_2")
        made = await engine.state(INTO)
        assert made.children == ()
        assert (await engine.state()).children != ()
        await engine.send("look here", key=INTO, message_id="n_1")
        await until_ended(engine, key=INTO, count=2)
        await engine.rested(INTO)
        gate.opened.set()
        await engine.rested()
        source, copy = await engine.records(), await engine.records(INTO)
    assert [each.code for each in ended(source)] == ["", ""]
    assert [each.code for each in ended(copy)] == ["", ""]
    assert [json.loads(said(result))["answer"] for result in results_of(copy)] == ["it is there", "and here"]


async def test_a_history_with_sub_agents_can_be_folded_and_goes_on() -> None:
    turns = 14
    plays = [play for _ in range(turns) for play in (asks("scout"), counted)]
    async with running_engine(
        *plays,
        tools=[spawning("scout")],
        subagents={"scout": subagent("scout", host=always(says(f"it is there {LONG}")))},
        profile=SMALL,
        summariser=summarising(),
        actor=ALWAYS,
    ) as engine:
        for number in range(turns):
            await engine.ask(f"{number} {LONG[:300]}")
        await engine.hibernate()
        await asleep(engine)
        records = await engine.records()
        assert len(await engine.records_of(ContextReplaced)) >= 1
        assert decode_snapshot(engine.store.snapshots[-1].data) == await engine.state()
        data = engine.store.image()
    assert [each.code for each in ended(records)] == [""] * turns
    async with running_engine(
        asks("scout"),
        counted,
        tools=[spawning("scout")],
        subagents={"scout": looks()},
        profile=SMALL,
        summariser=summarising(),
        data=data,
        ids=later_ids(),
    ) as successor:
        await successor.ask("one more")
        assert len(ended(await successor.records())) == turns + 1


async def test_a_message_meanwhile_is_accepted_at_once_and_read_after_the_answer() -> None:
    gate = Gate()
    scout = subagent("scout", waits(gate, says("it is there")))
    async with running_engine(asks("scout"), echo, tools=[spawning("scout")], subagents={"scout": scout}) as engine:
        await engine.send("look")
        await reached(gate)
        await engine.send("and be quick", when_busy=WhenBusy.STEER)
        assert ended(await engine.records()) == []
        gate.opened.set()
        await engine.rested()
        records = await engine.records()
    assert [each.code for each in ended(records)] == [""]
    assert "and be quick" in str(engine.model.requests[-1])
    assert len(await children(engine)) == 1


async def test_clients_see_that_it_began_and_ended_and_how_it_goes() -> None:
    scout = subagent("scout", calls(use("look", "a"), use("look", "b")), says("it is there"))
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        watcher = engine.watch()
        await engine.ask("look")
        records = await engine.records()
    assert len(watcher.of(SubagentStarted)) == len(watcher.of(SubagentFinished)) == 1
    call_id = begun(records)[0].call_id
    assert watcher.progress == [Progress(call_id=call_id, name="scout", text="uses look", type="subagent.progress")]
    assert "it is there" not in "".join(watcher.said().values())


async def test_what_owes_a_research_bundle_is_told_as_research_also_by_a_life_that_finds_it_lost() -> None:
    gate, look = Gate(), calls(use("look", "a"))
    scout = subagent("scout", look, waits(gate, says("never")), result=Research())
    async with running_engine(asks("scout"), tools=[spawning("scout")], subagents={"scout": scout}) as engine:
        watcher = engine.watch()
        await engine.send("look")
        await reached(gate)
        assert [progress.type for progress in watcher.progress] == ["research.progress"]
        data = engine.store.image()
    scout = subagent("scout", says('{"sources": []}'), result=Research())
    async with running_engine(
        echo, tools=[spawning("scout")], subagents={"scout": scout}, data=data, ids=later_ids()
    ) as successor:
        await until_ended(successor, 2)
        events = [event.__struct_config__.tag for event in map(event_of, await successor.records()) if event]
    told = [tag for tag in events if str(tag).startswith(("subagent", "research"))]
    assert told == ["research.started", "research.finished"] * 2
