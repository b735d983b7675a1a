"""Sub-agents work for a call, within their budgets, and nothing of them but the answer reaches who asked."""

import json
from functools import reduce
from typing import Any

import anyio
import pytest

from tests.support.doubles import Gate, Play, PlayedModel, calls, reads, replies, says, stops_at, use, waits
from tests.support.engine import DEADLINE_S, KEY, running_engine
from tests.support.subagents import (
    asks,
    begun,
    children,
    ended,
    results_of,
    said,
    searching,
    selecting,
    spawning,
    subagent,
)
from torpor.conversation.budget import added
from torpor.errors import ToolFailed
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.operations.timeline import Timeline
from torpor.records.blocks import text_block
from torpor.records.journal import (
    JournalRecord,
    ModelReplied,
    SubagentFinished,
    ToolFinished,
    TurnCancelled,
    TurnFinished,
)
from torpor.records.terms import Outcome, Usage
from torpor.subagents.definition import Subagent
from torpor.subagents.research import Research
from torpor.toolhost.contract import ToolContext

HOST_SAYS = "it is there"


def an_answer(*ids: str, reflection: str = "enough") -> str:
    return json.dumps({"source_ids": list(ids), "planner_reflection": reflection})


def says_at_cost(text: str, **usage: int) -> Play:
    """One text that costs so much."""

    async def play(request: ModelRequest, sink: ReplySink) -> ModelReply:
        reply = await says(text)(request, sink)
        return ModelReply(blocks=reply.blocks, stop_reason=reply.stop_reason, usage=Usage(**usage))

    return play


async def asked(scout: Subagent) -> tuple[JournalRecord, ...]:
    """The journal of a conversation that had ``scout`` work once and is done."""
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.ask("where is it?")
        records = await engine.records()
        assert (await engine.state()).children == ()
    model = scout.agent.model
    assert isinstance(model, PlayedModel)
    assert model.refused == []
    assert isinstance(records[-1], TurnFinished)
    return records


def told(records: tuple[JournalRecord, ...]) -> Any:
    """What the one call brought."""
    (result,) = results_of(records)
    assert result.outcome is Outcome.SUCCEEDED, said(result)
    return json.loads(said(result))


async def test_parent_gets_the_answer_and_nothing_else() -> None:
    scout = subagent("scout", calls(use("look", "b", about="it"), text="let me see"), says(HOST_SAYS))
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        watcher = engine.watch()
        await engine.ask("where is it?")
        records, (child,) = await engine.records(), await children(engine)
        assert (await engine.records(child))[-1].seq == ended(records)[0].child_seq
    (finished,) = ended(records)
    assert told(records) == {"answer": HOST_SAYS}
    assert (finished.outcome, finished.code, finished.rounds, finished.name) == (Outcome.SUCCEEDED, "", 2, "scout")
    assert "let me see" not in str(engine.model.requests)
    assert [progress.text for progress in watcher.progress] == ["uses look"]
    assert child == KEY.child(begun(records)[0].child)


async def test_the_end_is_on_record_before_its_result_and_in_one_commit() -> None:
    scout = subagent("scout", says(HOST_SAYS))
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.ask("where is it?")
        (batch,) = [
            batch for batch in engine.store.appends if any(isinstance(record, SubagentFinished) for record in batch)
        ]
    kinds = [type(record) for record in batch]
    assert kinds.index(ToolFinished) == kinds.index(SubagentFinished) + 1


async def test_an_answer_that_does_not_fit_is_mended_once() -> None:
    scout = subagent("scout", says("here you go"), says(an_answer()), result=Research())
    records = await asked(scout)
    assert told(records)["sources"] == []
    model = scout.agent.model
    assert isinstance(model, PlayedModel)
    assert "not a JSON object" in str(model.requests[1]["messages"][-1])
    assert (ended(records)[0].code, ended(records)[0].rounds) == ("", 2)


async def test_one_that_never_answers_as_it_should_ends_with_its_steps() -> None:
    scout = subagent("scout", *[says("here you go")] * 9, result=Research(), steps_max=3)
    records = await asked(scout)
    assert told(records)["sources"] == []
    assert (ended(records)[0].code, ended(records)[0].rounds) == ("steps", 3)
    assert ended(records)[0].outcome is Outcome.SUCCEEDED


FOUND = calls(use("search", "a", ids=["s1", "s2", "s3", "s2"]))
PICKED = calls(use("select", "b", ids=["s3", "s1", "nowhere"]))


async def test_steps_that_are_over_leave_what_was_selected() -> None:
    tools = [searching(), selecting()]
    scout = subagent("scout", FOUND, PICKED, FOUND, tools=tools, result=Research(), steps_max=2)
    records = await asked(scout)
    assert [source["id"] for source in told(records)["sources"]] == ["s3", "s1"]
    assert (ended(records)[0].code, ended(records)[0].rounds) == ("steps", 2)


async def test_steps_that_are_over_with_nothing_selected_leave_nothing() -> None:
    scout = subagent("scout", FOUND, FOUND, tools=[searching()], result=Research(), steps_max=1)
    records = await asked(scout)
    assert told(records)["sources"] == []
    assert ended(records)[0].code == "steps"


async def test_tokens_that_are_over_leave_what_was_selected() -> None:
    dear = says_at_cost("let me think", input_tokens=900, output_tokens=200)
    scout = subagent(
        "scout", FOUND, PICKED, dear, dear, tools=[searching(), selecting()], result=Research(), tokens_max=1_500
    )
    records = await asked(scout)
    assert [source["id"] for source in told(records)["sources"]] == ["s3", "s1"]
    assert ended(records)[0].code == "tokens"


async def test_a_tool_that_handles_its_collector_badly_fails_alone() -> None:
    async def spoil(arguments: dict[str, Any], context: ToolContext) -> str:
        getattr(context.collector, "close", lambda: None)()
        assert context.collector is not None
        await context.collector.select([["x"]])  # type: ignore[list-item]  # on purpose
        return "never"

    tools = [searching(), reads("spoil", spoil)]
    scout = subagent("scout", calls(use("spoil", "z")), FOUND, says(an_answer("s2")), tools=tools, result=Research())
    records = await asked(scout)
    assert [source["id"] for source in told(records)["sources"]] == ["s2"]


async def test_ids_that_nobody_found_are_dropped_and_on_record() -> None:
    scout = subagent(
        "scout", FOUND, says(an_answer("s2", "made-up", "s1", "s2")), tools=[searching()], result=Research()
    )
    records = await asked(scout)
    assert [source["id"] for source in told(records)["sources"]] == ["s2", "s1"], "in its own order, each once"
    assert (ended(records)[0].dropped, ended(records)[0].findings) == (("made-up",), 3)


async def test_searches_that_all_failed_are_told_to_who_asked() -> None:
    async def fails(arguments: dict[str, Any], context: ToolContext) -> str:
        raise ToolFailed("the index is out of reach")

    tools = [searching(name="find"), reads("search", fails)]
    lost, nonsense = calls(use("search", "a"), use("search", "b")), calls(use("guessed", "c"), use("web__guessed", "d"))
    nothing = says(an_answer(reflection="Nothing is known of it."))
    scout = subagent("scout", lost, nonsense, nothing, tools=tools, result=Research())

    note = told(await asked(scout))["planner_reflection"]

    assert note.startswith("[All 2 searches failed, so it is not known whether there are sources. Why: ")
    assert note.endswith("the index is out of reach.] Nothing is known of it.")


async def test_no_more_than_eight_sources_come_out() -> None:
    ids = [f"s{number}" for number in range(12)]
    scout = subagent(
        "scout",
        calls(use("search", "a", ids=ids)),
        says(an_answer(*reversed(ids))),
        tools=[searching()],
        result=Research(),
    )
    records = await asked(scout)
    assert [source["id"] for source in told(records)["sources"]] == [f"s{number}" for number in range(11, 3, -1)]


async def test_the_bundle_lies_where_the_conversation_can_read_it() -> None:
    scout = subagent("scout", FOUND, says(an_answer("s1")), tools=[searching()], result=Research())
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.ask("what is known?")
        records = await engine.records()
        handle = told(records)["research_bundle_id"]
        kept = await engine.blobs.get(KEY, handle)
    assert ended(records)[0].bundle == handle
    assert kept is not None
    assert [source["id"] for source in json.loads(kept)["sources"]] == ["s1"]


async def test_more_findings_than_are_on_their_way_at_once_all_arrive() -> None:
    ids = [f"s{number}" for number in range(300)]
    search = calls(use("search", "a", ids=ids[:200]), use("search", "b", ids=ids[100:]))
    scout = subagent("scout", search, says(an_answer("s299", "s0")), tools=[searching()], result=Research())
    records = await asked(scout)
    assert [source["id"] for source in told(records)["sources"]] == ["s299", "s0"]
    assert ended(records)[0].findings == 300


async def test_several_at_once_have_records_and_results_of_their_own() -> None:
    gates = {name: Gate() for name in ("north", "south", "west")}
    scouts = {name: subagent(name, waits(gate, says(f"{name} is clear"))) for name, gate in gates.items()}
    async with running_engine(
        asks(*gates), says("done"), tools=[spawning(name) for name in gates], subagents=scouts
    ) as engine:
        await engine.send("look around")
        with anyio.fail_after(DEADLINE_S):
            for gate in gates.values():
                await gate.reached.wait()
        assert {child.name for child in (await engine.state()).children} == set(gates)
        for name in ("west", "north", "south"):
            gates[name].opened.set()
        await engine.rested()
        records = await engine.records()
    assert len({started.child for started in begun(records)}) == 3
    assert {(each.call_id, each.child) for each in begun(records)} == {
        (each.call_id, each.child) for each in ended(records)
    }
    assert {result.name: json.loads(said(result))["answer"] for result in results_of(records)} == {
        name: f"{name} is clear" for name in gates
    }


async def test_the_same_one_may_work_several_times_in_a_round() -> None:
    scout = subagent("scout", *[says(HOST_SAYS)] * 3)
    async with running_engine(
        asks("scout", "scout", "scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.ask("look three times")
        records = await engine.records()
    assert len({each.child for each in ended(records)}) == 3
    assert [json.loads(said(result)) for result in results_of(records)] == [{"answer": HOST_SAYS}] * 3


async def test_what_all_levels_cost_is_on_record_of_the_first() -> None:
    deep = subagent("deep", says_at_cost("at the bottom", input_tokens=7, output_tokens=3))
    scout = subagent("scout", asks("deep"), says_at_cost("seen", input_tokens=20), tools=[spawning("deep")])
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout, "deep": deep}
    ) as engine:
        await engine.ask("look down")
        (finished,) = ended(await engine.records())
        rounds = await engine.records_of(ModelReplied, key=KEY.child(finished.child))
        (below,) = ended(await engine.records(KEY.child(finished.child)))
        keys = (KEY, *await children(engine))
        asked_for = [reply.usage for key in keys for reply in await engine.records_of(ModelReplied, key=key)]
        used = {key: [*Timeline().rows(await engine.records(key))][-1].turn_usage for key in keys}
    assert len(keys) == 3
    assert used[KEY] == reduce(added, asked_for), "each token of each level is told once"
    assert used[keys[1]] == finished.usage
    assert used[keys[2]] == below.usage
    first = rounds[0].usage
    assert (below.usage.input_tokens, below.usage.output_tokens, below.rounds) == (7, 3, 1)
    assert finished.usage.input_tokens == first.input_tokens + 20 + 7
    assert finished.usage.output_tokens == first.output_tokens + 3
    assert finished.rounds == 2


@pytest.mark.parametrize("blank", ["", "  \n "])
async def test_one_that_says_nothing_is_asked_again(blank: str) -> None:
    scout = subagent("scout", replies(*((text_block(blank),) if blank else ())), says(HOST_SAYS))
    records = await asked(scout)
    assert told(records) == {"answer": HOST_SAYS}


async def test_a_budget_that_is_over_while_a_tool_runs_ends_the_tool() -> None:
    """The limit of the tokens is shared: what one uses up, the other has no more of."""
    gate = Gate()
    dear = says_at_cost("let me think", input_tokens=2_000)
    scout = subagent(
        "scout",
        calls(use("wait", "a"), use("deep", "b", task="dig")),
        tools=[reads("wait", stops_at(gate)), spawning("deep")],
        tokens_max=1_000,
    )
    deep = subagent("deep", dear, says("never"), tokens_max=0)
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout, "deep": deep}
    ) as engine:
        await engine.send("look down")
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        gate.opened.set()
        await engine.rested()
        records = await engine.records()
        child = KEY.child(ended(records)[0].child)
        assert ended(await engine.records(child))[0].code in {"", "tokens"}
        (cut,) = await engine.records_of(TurnCancelled, key=child)
    assert (ended(records)[0].code, cut.reason) == ("tokens", "tokens")
