"""A sub-agent that fails is an error result of its call, and one too many is refused; the conversation goes on."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.support.doubles import Crash, Gate, Play, calls, fails, raises, reads, replies, says, use, waits
from tests.support.engine import AT_ONCE, DEADLINE_S, KEY, Engine, running_engine
from tests.support.subagents import asks, children, ended, results_of, said, searching, spawning, subagent
from torpor.errors import StoreError, StoreFull, StoreUnavailable
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.provider_errors import ProviderUnavailable
from torpor.records.journal import ModelReplied, SubagentFinished, ToolFinished, TurnFailed, TurnFinished
from torpor.records.terms import Outcome, Usage
from torpor.store.requests import Append, Request
from torpor.subagents.definition import Subagent
from torpor.subagents.findings import Findings
from torpor.subagents.results import Accepted
from torpor.subagents.text import Text


def dear(play: Play, tokens: int) -> Play:
    async def costs(request: ModelRequest, sink: ReplySink) -> ModelReply:
        reply = await play(request, sink)
        usage = Usage(input_tokens=tokens)
        return ModelReply(blocks=reply.blocks, stop_reason=reply.stop_reason, usage=usage)

    return costs


async def failed(engine: Engine) -> tuple[SubagentFinished, ToolFinished]:
    """One sub-agent and its result, in a conversation that is well."""
    records = await engine.records()
    (finished,), (result,) = ended(records), results_of(records)
    assert isinstance(records[-1], TurnFinished)
    assert (finished.outcome, finished.code) == (Outcome.FAILED, "failed")
    assert result.outcome is Outcome.FAILED
    assert (await engine.state()).children == ()
    assert engine.supervisor.statistics().crashes == 0
    return finished, result


async def test_a_model_that_does_not_answer_is_an_error_result() -> None:
    scout = subagent("scout", *[fails(ProviderUnavailable("gone"))] * 9)
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}, retry=AT_ONCE
    ) as engine:
        await engine.ask("look")
        finished, result = await failed(engine)
        (failure,) = await engine.records_of(TurnFailed, key=KEY.child(finished.child))
    assert failure.code in said(result)
    assert finished.rounds == 0
    assert len(scout.agent.model.requests) == 3  # type: ignore[attr-defined]  # it is played


async def test_a_model_that_answers_the_second_time_is_no_error() -> None:
    scout = subagent("scout", fails(ProviderUnavailable("gone"), said=("let me",)), says("it is there"))
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}, retry=AT_ONCE
    ) as engine:
        await engine.ask("look")
        (finished,) = ended(await engine.records())
    assert (finished.code, finished.rounds) == ("", 1)


async def test_a_model_that_refuses_is_an_error_result() -> None:
    scout = subagent("scout", replies(stop_reason="refusal"))
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.ask("look")
        _, result = await failed(engine)
    assert "model_refused" in said(result)


BUGS: tuple[Callable[[], Subagent], ...] = (
    lambda: subagent("scout", fails(Crash("bug"), said=("let me",))),
    lambda: subagent("scout", calls(use("bug", "a")), tools=[reads("bug", raises(Crash("bug")))]),
)


@pytest.mark.parametrize("bug", BUGS)
async def test_one_that_crashes_is_an_error_result_and_its_journal_says_so(bug: Callable[[], Subagent]) -> None:
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": bug()}
    ) as engine:
        await engine.ask("look")
        finished, _ = await failed(engine)
        child = KEY.child(finished.child)
        (failure,) = await engine.records_of(TurnFailed, key=child)
        assert (await engine.state(child)).turn is None
        assert engine.bus.live_reply(child) is None
    assert (failure.code, finished.child_seq) == ("crashed", failure.seq)


class Broken(Text):
    """A result type with a bug."""

    def accept(self, text: str, findings: Findings) -> Accepted:
        raise ValueError("no such thing")

    def overrun(self, findings: Findings) -> Accepted:
        raise ValueError("no such thing either")


@pytest.mark.parametrize("steps_max", [1, 3])
async def test_a_result_type_that_raises_is_an_error_result(steps_max: int) -> None:
    plays = [calls(use("look", "a")), says("it is there")]
    scout = subagent("scout", *plays, result=Broken(), steps_max=steps_max)
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.ask("look")
        finished, _ = await failed(engine)
        assert (await engine.state(KEY.child(finished.child))).turn is None


def of_a_child(request: Request) -> bool:
    return isinstance(request, Append) and request.key.is_child


@pytest.mark.parametrize("error", [StoreUnavailable("gone for now"), StoreFull("/data is full")])
async def test_a_journal_that_cannot_be_written_is_an_error_result(error: StoreError) -> None:
    scout = subagent("scout", calls(use("look", "a")), says("it is there"))
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        engine.store.core.fail(error, hits=of_a_child, times=20)
        await engine.ask("look")
        finished, result = await failed(engine)
        assert await children(engine) == ()
        assert engine.bus.live_reply(KEY.child(finished.child)) is None
    assert (finished.child_seq, finished.link) == (0, "")
    assert "/data" not in said(result)


async def test_a_journal_that_can_be_written_no_more_leaves_what_was_durable_on_record() -> None:
    gate = Gate()
    plays = dear(calls(use("look", "a")), 30), waits(gate, says("it is there"), said=("it is ",))
    scout = subagent("scout", *plays)
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.send("look")
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
            (child,) = await children(engine)
            while engine.bus.live_reply(child) is None:
                await anyio.lowlevel.checkpoint()
        engine.store.core.fail(StoreUnavailable("gone for now"), hits=of_a_child, times=20)
        gate.opened.set()
        await engine.rested()
        finished, _ = await failed(engine)
        head = (await engine.records(child))[-1].seq
        assert engine.bus.live_reply(child) is None
    assert (finished.child_seq, finished.usage.input_tokens) == (head, 30)


async def test_a_lost_answer_of_the_store_is_no_error() -> None:
    """It was written all the same."""
    scout = subagent("scout", calls(use("look", "a")), says("it is there"))
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        engine.store.core.fail(StoreUnavailable("no answer"), applied=True, hits=of_a_child, times=20)
        await engine.ask("look")
        (finished,) = ended(await engine.records())
        assert finished.child_seq == (await engine.records(KEY.child(finished.child)))[-1].seq
    assert finished.code == ""


async def test_a_bundle_that_cannot_be_kept_is_an_error_result(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kept(Text):
        def accept(self, text: str, findings: Findings) -> Accepted:
            return Accepted(told=b"{}", kept=b"{}")

    async def put(key: Any, data: bytes) -> str:
        raise StoreFull("/data is full")

    scout = subagent("scout", says("it is there"), result=Kept())
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        monkeypatch.setattr(engine.blobs, "put", put)
        await engine.ask("look")
        finished, _ = await failed(engine)
    assert (finished.bundle, finished.rounds) == ("", 1)


async def test_one_below_that_fails_is_an_error_result_of_its_own_call() -> None:
    deep = subagent("deep", fails(Crash("bug")))
    scout = subagent("scout", asks("deep"), says("nothing there"), tools=[spawning("deep")])
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout, "deep": deep}
    ) as engine:
        await engine.ask("look")
        (finished,) = ended(await engine.records())
        (below,) = ended(await engine.records(KEY.child(finished.child)))
    assert (finished.code, below.code) == ("", "failed")


async def test_one_that_fails_leaves_the_others_of_its_round_at_work() -> None:
    gate = Gate()
    scouts = {"north": subagent("north", fails(Crash("bug"))), "south": subagent("south", waits(gate, says("clear")))}
    async with running_engine(
        asks(*scouts), says("done"), tools=[spawning(name) for name in scouts], subagents=scouts
    ) as engine:
        watcher = engine.watch()
        await engine.send("look around")
        assert (await watcher.until(SubagentFinished)).name == "north"
        gate.opened.set()
        await engine.rested()
        records = await engine.records()
    assert [(each.name, each.code) for each in ended(records)] == [("north", "failed"), ("south", "")]


async def test_what_one_finds_after_it_has_answered_is_refused() -> None:
    """A tool that keeps its collector writes into nothing."""
    kept: list[Any] = []

    async def keeps(arguments: Any, context: Any) -> str:
        kept.append(context.collector)
        return "kept"

    scout = subagent("scout", calls(use("keep", "a")), says("there"), tools=[searching(), reads("keep", keeps)])
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.ask("look")
        with pytest.raises(Exception, match="has ended"):
            await kept[0].select(("s1",))
        (finished,) = ended(await engine.records())
        replies_of_it = await engine.records_of(ModelReplied, key=KEY.child(finished.child))
    assert len(replies_of_it) == finished.rounds
    assert json.loads(said(results_of(await engine.records())[0])) == {"answer": "there"}
