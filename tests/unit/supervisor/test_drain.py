"""A server that drains: what runs comes to the end of its step, nothing else begins, the next life does the rest."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.support.compacting import LONG, SMALL, fill, summary
from tests.support.doubles import Gate, PlayedModel, calls, echo, fails, reads, says, stops_at, use, waits, writes
from tests.support.engine import AT_ONCE, DEADLINE_S, KEY, Engine, running_engine
from torpor.actor.options import ActorOptions
from torpor.conversation.retry import RetryOptions
from torpor.errors import Unavailable
from torpor.jobs.options import JobOptions
from torpor.jobs.runner import JobRunner
from torpor.provider_errors import ProviderUnavailable
from torpor.records.commands import CancelTurn
from torpor.records.ids import ConversationKey
from torpor.records.journal import (
    AttemptStarted,
    ContextReplaced,
    JournalRecord,
    MessageReceived,
    ModelReplied,
    ModelRequested,
    ToolFinished,
    ToolStarted,
    TurnCancelled,
    TurnFinished,
    TurnPrepared,
)
from torpor.store.memory_data import MemoryData
from torpor.supervisor.drain import Drain
from torpor.turn.options import TurnOptions

OTHER = ConversationKey("acme", "bob", "c_2")


def drain_of(engine: Engine, *, deadline_s: float = DEADLINE_S) -> Drain:
    jobs = JobRunner(engine.store.job_store, clock=engine.clock, options=JobOptions(), holder="s_1")
    return Drain(actors=engine.supervisor, jobs=jobs, clock=engine.clock, deadline_s=deadline_s)


@asynccontextmanager
async def finishing(drain: Drain) -> AsyncIterator[None]:
    """It begins before the block, and is over behind it."""
    async with anyio.create_task_group() as tasks:
        drain.begin()
        tasks.start_soon(drain.finish)
        with anyio.fail_after(DEADLINE_S):
            yield


async def kinds(engine: Engine, key: ConversationKey = KEY) -> list[type[JournalRecord]]:
    return [type(record) for record in await engine.records(key)]


async def left(data: MemoryData, key: ConversationKey = KEY) -> bool:
    """Whether something is due, with nobody holding it."""
    held = data.of(key)
    return held.due_us is not None and held.holder == ""


async def test_a_reply_that_is_being_written_is_finished_and_the_tools_it_asks_for_begin_in_the_next_life() -> None:
    gate = Gate()
    async with running_engine(waits(gate, calls(use("pay", "a"))), tools=[writes("pay")]) as engine:
        await engine.send("pay it")
        await gate.reached.wait()
        async with finishing(drain_of(engine)):
            gate.opened.set()
        assert (await kinds(engine))[-1] is ModelReplied
        assert engine.ledger.entries == []
        assert await left(engine.store.data)
        assert repr(engine.supervisor) == "<Supervisor s_1 live=0 stopping=True>"

    async with running_engine(says("paid"), tools=[writes("pay")], data=engine.store.data) as successor:
        await successor.rested()
        assert successor.ledger.of("started") == ["pay"]
        assert len(await successor.records_of(ModelRequested)) == 2
        assert len(await successor.records_of(TurnFinished)) == 1
        assert await successor.records_of(AttemptStarted) == [], "nothing was interrupted, so nothing is tried again"


async def test_tools_that_run_are_finished_and_recorded_and_the_model_is_asked_in_the_next_life() -> None:
    gate = Gate()
    tools = [writes("pay", stops_at(gate)), reads("read")]
    async with running_engine(calls(use("pay", "a"), use("read", "b")), tools=tools) as engine:
        await engine.send("pay it")
        await gate.reached.wait()
        async with finishing(drain_of(engine)):
            gate.opened.set()
        assert len(await engine.records_of(ToolFinished)) == 2
        assert len(await engine.records_of(ModelRequested)) == 1
        ledger = engine.ledger

    async with running_engine(says("paid"), tools=tools, data=engine.store.data, ledger=ledger) as successor:
        await successor.rested()
        assert sorted(ledger.of("started")) == ["pay", "read"]
        assert len(await successor.records_of(TurnFinished)) == 1


async def test_a_turn_that_needs_no_further_step_ends_and_the_message_behind_it_waits_for_the_next_life() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one"))) as engine:
        await engine.send("first")
        await gate.reached.wait()
        await engine.send("second")
        async with finishing(drain_of(engine)):
            gate.opened.set()
        assert len(await engine.records_of(TurnFinished)) == 1
        assert len(await engine.records_of(TurnPrepared)) == 1

    async with running_engine(data=engine.store.data) as successor:
        await successor.rested()
        assert len(await successor.records_of(TurnFinished)) == 2


async def test_a_summary_that_is_being_made_is_kept_and_its_turn_goes_on_in_the_next_life() -> None:
    gate = Gate()
    summariser = PlayedModel([waits(gate, says(summary()))])
    async with running_engine(profile=SMALL, summariser=summariser) as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fill, engine, 9)
            await gate.reached.wait()
            tasks.cancel_scope.cancel()
        asked = len(await engine.records_of(ModelRequested))
        async with finishing(drain_of(engine)):
            gate.opened.set()
        assert (await kinds(engine)).count(ContextReplaced) == 1
        assert len(await engine.records_of(ModelRequested)) == asked
        assert await left(engine.store.data)

    async with running_engine(profile=SMALL, data=engine.store.data) as successor:
        await successor.rested()
        assert len(await successor.records_of(ModelRequested)) == asked + 1


async def test_commands_that_were_taken_are_recorded_and_answered_and_later_ones_are_refused() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one"))) as engine:
        await engine.send("first")
        await gate.reached.wait()
        waiting = [engine.post("second"), engine.post("elsewhere", key=OTHER)]
        drain = drain_of(engine)
        async with finishing(drain):
            for key in (KEY, OTHER, ConversationKey("acme", "eve", "new")):
                with pytest.raises(Unavailable, match="the server is stopping") as refused:
                    engine.post("too late", key=key)
                assert refused.value.retry_after_s
            for reply in waiting:
                await reply.wait()
            gate.opened.set()
        assert [len(await engine.records_of(MessageReceived, key=key)) for key in (KEY, OTHER)] == [2, 1]
        assert await engine.records_of(TurnPrepared, key=OTHER) == []
        assert not engine.supervisor.accepts


async def test_a_cancel_is_taken_to_the_end() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("never"), said=("so far",))) as engine:
        await engine.send("first")
        await gate.reached.wait()
        async with finishing(drain_of(engine)):
            assert await engine.cancel() == 1
        assert len(await engine.records_of(TurnCancelled)) == 1
        assert not await left(engine.store.data)


async def test_a_cancel_that_meets_a_turn_between_two_lives_is_to_be_asked_again() -> None:
    gate, held = Gate(), Gate()
    async with running_engine(waits(gate, calls(use("look", "a")))) as engine:
        await engine.send("first")
        await gate.reached.wait()
        engine.supervisor.stop_taking()
        release = engine.store.release

        async def slowly(*arguments: Any, **named: Any) -> None:
            await held.passed()
            await release(*arguments, **named)

        engine.store.release = slowly  # type: ignore[method-assign]
        gate.opened.set()
        with anyio.fail_after(DEADLINE_S):
            await held.reached.wait()
        reply = engine.supervisor.post(KEY, CancelTurn(principal="ann"))
        held.opened.set()
        with anyio.fail_after(DEADLINE_S), pytest.raises(Unavailable):
            await reply.wait()


async def test_a_call_that_waits_for_its_place_asks_nobody_any_more() -> None:
    gate = Gate()
    turn = TurnOptions(cancel_grace_s=0.0, model_calls_max=1, model_calls_per_owner_max=1)
    async with running_engine(waits(gate, says("one")), turn=turn) as engine:
        await engine.send("first")
        await gate.reached.wait()
        await engine.send("second", key=OTHER)
        await anyio.wait_all_tasks_blocked()
        async with finishing(drain_of(engine)):
            while engine.supervisor.live_status(OTHER) is not None:
                await anyio.lowlevel.checkpoint()
            assert await left(engine.store.data, OTHER)
            gate.opened.set()
        assert len(engine.model.requests) == 1

    async with running_engine(data=engine.store.data) as successor:
        await successor.rested(OTHER)
        assert len(await successor.records_of(TurnFinished, key=OTHER)) == 1


async def test_the_pause_before_a_call_is_repeated_is_not_waited_for() -> None:
    patient = RetryOptions(retries_max=5, base_s=1_000.0, pause_max_s=1_000.0)
    async with running_engine(fails(ProviderUnavailable("down")), retry=patient) as engine:
        await engine.send("first")
        await anyio.wait_all_tasks_blocked()
        assert [turn.step for turn in engine.supervisor.turns()] == ["pause"]
        async with finishing(drain_of(engine)):
            pass
        assert len(engine.model.requests) == 1
        assert await left(engine.store.data)


async def test_a_turn_between_two_lives_leaves_no_snapshot_and_one_at_rest_leaves_its_own() -> None:
    gate = Gate()
    eager = ActorOptions(snapshot_min_bytes=1)
    async with running_engine(echo, waits(gate, calls(use("look", "a"))), actor=eager) as engine:
        await engine.ask(LONG, key=OTHER)
        await engine.send(LONG)
        await gate.reached.wait()
        async with finishing(drain_of(engine)):
            gate.opened.set()
        assert engine.store.data.of(KEY).snapshot is None
        assert engine.store.data.of(OTHER).snapshot is not None
        assert await left(engine.store.data)


async def test_turns_are_shown_with_the_step_that_is_under_way() -> None:
    asked, ran = Gate(), Gate()
    plays = [waits(asked, calls(use("pay", "a"), use("look", "b"))), says("paid")]
    async with running_engine(*plays, tools=[writes("pay", stops_at(ran))], retry=AT_ONCE) as engine:
        assert engine.supervisor.turns() == ()
        await engine.send("pay it")
        await asked.reached.wait()
        await engine.send("and then")
        (turn,) = engine.supervisor.turns()
        assert (turn.key, turn.agent, turn.turn, turn.waiting) == (KEY, "clerk", 1, 1)
        assert turn.step == "call_model"
        (prepared,) = await engine.records_of(TurnPrepared)
        assert turn.began_us == prepared.at_us
        assert turn.step_began_us >= turn.began_us
        asked.opened.set()
        await ran.reached.wait()
        await anyio.wait_all_tasks_blocked()
        (turn,) = engine.supervisor.turns()
        assert (turn.step, turn.of) == ("run_tools", ("pay",))
        assert len(await engine.records_of(ToolStarted)) == 2
        ran.opened.set()
        await engine.rested()
        assert engine.supervisor.turns() == ()
