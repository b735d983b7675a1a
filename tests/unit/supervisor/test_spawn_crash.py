"""A sub-agent whose process, actor or lease is gone is on record as lost, and its call begins with another one."""

import copy
import json
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from tests.support.doubles import Crash, Gate, Play, PlayedModel, calls, echo, raises, reads, says, stops_at, use, waits
from tests.support.engine import DEADLINE_S, KEY, QUICK, Engine, running_engine
from tests.support.probed_store import ProbedStore, append_of
from tests.support.subagents import (
    asks,
    begun,
    children,
    ended,
    later_ids,
    results_of,
    said,
    searching,
    spawning,
    subagent,
    until_ended,
)
from torpor.conversation.budget import added
from torpor.errors import StoreUnavailable
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.journal import (
    JournalRecord,
    ModelReplied,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    TurnCancelled,
    TurnFinished,
)
from torpor.records.terms import Outcome, Usage
from torpor.store.codec import StoredBatch
from torpor.store.memory_data import MemoryData
from torpor.store.requests import Outcome as Committed
from torpor.store.requests import Request
from torpor.subagents.definition import Subagent
from torpor.subagents.options import SubagentOptions
from torpor.subagents.research import Research

PLAYS = 60
"""More than any model of these tests is asked."""
NO_SWEEP = msgspec.structs.replace(QUICK, sweep_s=3600.0)


def by_turns(first: Play, then: Play) -> PlayedModel:
    """``then`` once a tool has answered, however often its process died before."""

    async def play(request: ModelRequest, sink: ReplySink) -> ModelReply:
        last = msgspec.json.decode(request.view.messages())[-1]["content"]
        has_result = any(block["type"] == "tool_result" for block in last)
        reply = await (then if has_result else first)(request, sink)
        return ModelReply(blocks=reply.blocks, stop_reason=reply.stop_reason, usage=Usage(input_tokens=1))

    return PlayedModel([play] * PLAYS)


async def reached(gate: Gate) -> None:
    with anyio.fail_after(DEADLINE_S):
        await gate.reached.wait()


def images_of(store: ProbedStore) -> list[MemoryData]:
    """What a power cut after each commit would have left, from now on."""
    images, commit = [store.image()], store.core.commit

    def kept(requests: Sequence[Request]) -> list[Committed]:
        outcomes = commit(requests)
        images.append(store.image())
        return outcomes

    store.core.commit = kept  # type: ignore[method-assign]  # the lever of this test
    return images


def family() -> dict[str, Subagent]:
    """Two levels: one that asks another and then answers, and one that looks and answers."""
    answer = json.dumps({"source_ids": ["s2", "made-up"], "planner_reflection": "enough"})
    deep = by_turns(calls(use("search", "a", ids=["s1", "s2"])), says(answer))
    return {
        "deep": subagent("deep", host=deep, tools=[searching()], result=Research()),
        "scout": subagent("scout", host=by_turns(asks("deep", "deep"), says("it is there")), tools=[spawning("deep")]),
    }


async def spent_by(engine: Engine, child: str) -> Usage:
    """Of all model calls on record of a child and those below it."""
    usage = Usage()
    for key in await children(engine):
        if key == KEY.child(child) or key.path.startswith(KEY.child(child).path + "/"):
            for record in await engine.records_of(ModelReplied, key=key):
                usage = added(usage, record.usage)
    return usage


def paired(records: Sequence[JournalRecord]) -> None:
    """Every sub-agent began once and ended once, after that."""
    at_work: set[str] = set()
    names = [record.child for record in records if isinstance(record, SubagentStarted)]
    for record in records:
        if isinstance(record, SubagentStarted):
            at_work.add(record.child)
        if isinstance(record, SubagentFinished):
            at_work.remove(record.child)
    assert at_work == set()
    assert len(set(names)) == len(names), "a name is not used again"


async def test_a_power_cut_at_any_moment_costs_another_sub_agent_and_nothing_else() -> None:
    host = by_turns(asks("scout"), says("done"))
    async with running_engine(host=host, tools=[spawning("scout")], subagents=family()) as engine:
        images = images_of(engine.store)
        await engine.ask("look")
        whole = await engine.records()
    assert len(images) > 15
    again = 0
    for image in images:
        agents = family()
        async with running_engine(
            host=by_turns(asks("scout"), says("done")),
            tools=[spawning("scout")],
            subagents=agents,
            data=image,
            ids=later_ids(),
        ) as engine:
            await engine.rested()
            if not (await engine.state()).seq:
                continue  # before the message was accepted
            records = await engine.records()
            paired(records)
            results = results_of(records)
            assert [said(result) for result in results] == [said(result) for result in results_of(whole)]
            assert isinstance(records[-1], TurnFinished)
            *lost, last = ended(records)
            assert (last.code, [each.code for each in lost]) == ("", ["lost"] * len(lost))
            again += bool(lost)
            for each in ended(records):
                assert each.usage == await spent_by(engine, each.child)
            assert set(await store_due(engine)) == set(), "what is lost is not woken"
            for played in agents.values():
                assert played.agent.model.refused == []  # type: ignore[attr-defined]  # it is played
    assert again > 5, "some of these cuts hit a sub-agent at work"


async def store_due(engine: Engine) -> tuple[Any, ...]:
    return await engine.store.due(now_us=2**62, limit=100)


async def test_a_power_cut_while_the_sub_agent_asks_counts_what_it_cost_so_far() -> None:
    gate = Gate()
    scout = subagent("scout", dear(calls(use("look", "a")), 40), waits(gate, says("never")), dear(says("there"), 5))
    async with running_engine(asks("scout"), tools=[spawning("scout")], subagents={"scout": scout}) as engine:
        await engine.send("look")
        await reached(gate)
        image = engine.store.image()
    async with running_engine(
        echo, tools=[spawning("scout")], subagents={"scout": scout}, data=image, ids=later_ids()
    ) as successor:
        await successor.rested()
        records = await successor.records()
        first, second = ended(records)
        paired(records)
    assert (first.code, first.outcome) == ("lost", Outcome.FAILED)
    assert (first.usage.input_tokens, first.rounds) == (40, 1), (
        "the call that was answered, and not the one that was not"
    )
    assert (second.code, second.usage.input_tokens, second.rounds) == ("", 5, 1)
    assert first.child != second.child
    assert [json.loads(said(result)) for result in results_of(records)] == [{"answer": "there"}]


def dear(play: Play, tokens: int) -> Play:
    async def costs(request: ModelRequest, sink: ReplySink) -> ModelReply:
        reply = await play(request, sink)
        usage = Usage(input_tokens=tokens)
        return ModelReply(blocks=reply.blocks, stop_reason=reply.stop_reason, usage=usage)

    return costs


async def test_a_power_cut_after_the_cancel_and_before_its_end_is_recorded_leaves_it_lost() -> None:
    """It is settled by the next turn, since nothing is due before."""
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
        image = engine.store.image()
        leaving.opened.set()
    async with running_engine(
        tools=[spawning("scout")], subagents={"scout": scout}, data=image, ids=later_ids()
    ) as successor:
        await successor.ask("and now?")
        records = await successor.records()
        paired(records)
        assert (await successor.state()).children == ()
    assert [(each.turn, each.code) for each in ended(records)] == [(1, "lost")]


async def test_a_crash_of_the_actor_ends_its_sub_agents_and_the_next_life_begins_with_others() -> None:
    gate, bug = Gate(), Gate()

    async def crashes(arguments: Any, context: Any) -> str:
        await gate.reached.wait()
        if not bug.reached.is_set():
            bug.reached.set()
            await raises(Crash("bug"))(arguments, context)
        return "fine"

    scout = subagent("scout", waits(gate, says("never")), says("it is there"))
    async with running_engine(
        calls(use("scout", "a", task="find out"), use("crash", "b")),
        says("done"),
        tools=[spawning("scout"), reads("crash", crashes)],
        subagents={"scout": scout},
    ) as engine:
        await engine.send("look")
        await until_ended(engine, 2)
        await engine.rested()
        records = await engine.records()
        paired(records)
        first, second = ended(records)
        (cut,) = await engine.records_of(TurnCancelled, key=KEY.child(first.child))
    assert (first.code, second.code, cut.reason) == ("lost", "", "cancelled")
    assert {result.name: result.outcome for result in results_of(records)} == {
        "scout": Outcome.SUCCEEDED,
        "crash": Outcome.SUCCEEDED,
    }
    assert isinstance(records[-1], TurnFinished)


async def test_one_that_is_fenced_writes_nothing_more() -> None:
    gate = Gate()
    scout = subagent("scout", calls(use("wait", "a")), says("zombie"), tools=[reads("wait", stops_at(gate))])
    async with running_engine(
        asks("scout"), tools=[spawning("scout")], subagents={"scout": scout}, options=NO_SWEEP
    ) as engine:
        await engine.send("look")
        await reached(gate)
        (child,) = await children(engine)
        held = engine.store.data.of(KEY)
        held.fence, held.holder = held.fence + 1, "another"
        before = copy.deepcopy((await engine.records(), await engine.records(child)))
        gate.opened.set()
        with anyio.fail_after(DEADLINE_S):
            while engine.supervisor.live_status(KEY) is not None:
                await anyio.lowlevel.checkpoint()
        assert (await engine.records(), await engine.records(child)) == before
    assert len(scout.agent.model.requests) <= 2  # type: ignore[attr-defined]  # it is played


async def test_a_lease_that_is_lost_while_it_asks_its_model_ends_it() -> None:
    """The sweep learns of it."""
    gate = Gate()
    scout = subagent("scout", calls(use("look", "a")), waits(gate, says("zombie")))
    async with running_engine(asks("scout"), tools=[spawning("scout")], subagents={"scout": scout}) as engine:
        await engine.send("look")
        await reached(gate)
        (child,) = await children(engine)
        before = (await engine.records(), await engine.records(child))
        held = engine.store.data.of(KEY)
        held.fence, held.holder, held.expires_us = held.fence + 1, "another", 2**62
        with anyio.fail_after(DEADLINE_S):
            while engine.supervisor.live_status(KEY) is not None:
                await anyio.lowlevel.checkpoint()
        assert (await engine.records(), await engine.records(child)) == before
        assert engine.parts.places.statistics().taken == 0


async def image_at_work(scout: Subagent, gate: Gate) -> MemoryData:
    async with running_engine(asks("scout"), tools=[spawning("scout")], subagents={"scout": scout}) as engine:
        await engine.send("look")
        await reached(gate)
        return engine.store.image()


async def test_a_lost_one_whose_journal_is_spoilt_does_not_take_its_conversation_along() -> None:
    gate = Gate()
    wait = reads("wait", stops_at(gate))
    scout = subagent("scout", calls(use("wait", "a")), says("it is there"), tools=[wait])
    image = await image_at_work(scout, gate)
    (child,) = image.below(KEY)
    first = image.conversations[child].batches[0]
    spoilt = StoredBatch(first.first_seq, first.last_seq, first.last_event, b"spoilt")
    image.replace_batch(child, 0, spoilt)
    async with running_engine(
        echo, tools=[spawning("scout")], subagents={"scout": scout}, data=image, ids=later_ids()
    ) as successor:
        await successor.rested()
        records = await successor.records()
        paired(records)
    lost, again = ended(records)
    assert (lost.code, lost.usage, again.code) == ("lost", Usage(), "")
    assert isinstance(records[-1], TurnFinished)


async def test_what_a_lost_one_cost_counts_for_its_turn() -> None:
    """A storm of restarts is no bill."""
    gate = Gate()
    scout = subagent("scout", dear(calls(use("look", "a")), 1_000), waits(gate, says("never")), says("never either"))
    image = await image_at_work(scout, gate)
    async with running_engine(
        echo,
        tools=[spawning("scout")],
        subagents={"scout": scout},
        subagent_options=SubagentOptions(turn_tokens_max=1_000),
        data=image,
        ids=later_ids(),
    ) as successor:
        await successor.rested()
        records = await successor.records()
        paired(records)
    assert [each.code for each in ended(records)] == ["lost"]
    assert "all the tokens they may" in said(results_of(records)[0])


async def test_a_definition_that_is_gone_after_the_restart_is_an_error_result() -> None:
    gate = Gate()
    scout = subagent("scout", waits(gate, says("never")))
    image = await image_at_work(scout, gate)
    async with running_engine(echo, tools=[spawning("scout")], data=image, ids=later_ids()) as successor:
        await successor.rested()
        records = await successor.records()
        paired(records)
    (result,) = results_of(records)
    assert [each.code for each in ended(records)] == ["lost"]
    assert result.outcome is Outcome.DENIED
    assert "no sub-agent 'scout' any more" in said(result)
    assert isinstance(records[-1], TurnFinished)


async def test_a_tool_that_is_gone_after_the_restart_is_an_error_result() -> None:
    gate = Gate()
    scout = subagent("scout", waits(gate, says("never")))
    image = await image_at_work(scout, gate)
    async with running_engine(echo, data=image, ids=later_ids()) as successor:
        await successor.rested()
        records = await successor.records()
        paired(records)
    (result,) = results_of(records)
    assert result.outcome is not Outcome.SUCCEEDED
    assert isinstance(records[-1], TurnFinished)


@pytest.mark.parametrize("kind", [SubagentStarted, SubagentFinished, ToolFinished])
async def test_an_append_that_is_lost_begins_the_call_anew(kind: type[JournalRecord]) -> None:
    """The store takes a commit of the conversation, or says that it did not."""
    scout = subagent("scout", host=PlayedModel([says("it is there")] * 5))
    async with running_engine(
        host=by_turns(asks("scout"), says("done")), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        engine.store.core.fail(StoreUnavailable("gone for now"), hits=append_of(kind))
        await engine.insist("look")
        await engine.rested()
        records = await engine.records()
        paired(records)
    assert [json.loads(said(result)) for result in results_of(records)] == [{"answer": "it is there"}]
    assert ended(records)[-1].code == ""
    assert isinstance(records[-1], TurnFinished)
    assert len(begun(records)) in {1, 2}
