"""What the user works on is told at any time, durable when it is answered, and costs nothing when it is told again."""

import anyio
import pytest

from tests.support.doubles import Gate, ManualClock, says, waits
from tests.support.engine import DEADLINE_S, KEY, Engine, running_engine
from torpor.errors import UnknownAgent
from torpor.records.commands import UpdateContext
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext
from torpor.records.journal import ContextChanged, ConversationCreated, TurnFinished, TurnPrepared

ROOM = WorkingContext(record=SelectedRecord(type="room", id="7"), screen=ContextPart(text="the plan of the house"))
OTHER_ROOM = WorkingContext(record=SelectedRecord(type="room", id="8"))


async def tell(engine: Engine, context: WorkingContext, *, agent: str = "") -> object:
    with anyio.fail_after(DEADLINE_S):
        return await engine.supervisor.deliver(KEY, UpdateContext(principal="ann", context=context, agent=agent))


async def test_a_context_that_no_turn_follows_is_durable_when_it_is_answered() -> None:
    async with running_engine() as engine:
        assert await tell(engine, ROOM) == 1
        created, changed = await engine.records()
        assert isinstance(created, ConversationCreated)
        assert isinstance(changed, ContextChanged)
        assert engine.store.data.of(KEY).due_us is None
        data = engine.store.image()
    async with running_engine(data=data) as engine:
        await engine.ask("hello")
        (prepared,) = await engine.records_of(TurnPrepared)
        assert b"the plan of the house" in bytes(prepared.signal[0])


async def test_the_same_context_is_not_written_again_until_half_of_its_time_has_passed() -> None:
    clock = ManualClock()
    async with running_engine(clock=clock) as engine:
        assert [await tell(engine, context) for context in (ROOM, ROOM, OTHER_ROOM, ROOM)] == [1, 1, 2, 3]
        assert len(await engine.records_of(ContextChanged)) == 3
        clock.advance(engine.parts.surroundings.context.expiry_s * 0.6)
        assert await tell(engine, ROOM) == 3
        assert len(await engine.records_of(ContextChanged)) == 4


async def test_a_context_that_is_told_while_a_turn_runs_is_for_the_next_one() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("One.")), says("Two.")) as engine:
        recorder = engine.watch()
        await engine.send("one")
        await gate.reached.wait()
        assert await tell(engine, ROOM) == 1
        gate.opened.set()
        await recorder.until(TurnFinished)
        await engine.ask("two")
        assert [bool(record.signal) for record in await engine.records_of(TurnPrepared)] == [False, True]


async def test_a_context_that_is_told_before_the_conversation_sleeps_is_there_when_it_wakes() -> None:
    async with running_engine() as engine:
        await tell(engine, ROOM)
        assert await engine.hibernate() is True
        await engine.ask("hello")
        (prepared,) = await engine.records_of(TurnPrepared)
        assert prepared.signal


async def test_a_context_for_an_agent_that_does_not_exist_creates_nothing() -> None:
    async with running_engine() as engine:
        with pytest.raises(UnknownAgent):
            await tell(engine, ROOM, agent="cook")
        assert await engine.records() == ()
