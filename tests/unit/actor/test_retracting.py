"""The last message can be taken back, with everything that came of it but what was done."""

import json

import anyio
import pytest

from tests.support.doubles import Gate, fails, says, use, waits, writes
from tests.support.doubles import calls as asks
from tests.support.engine import DEADLINE_S, KEY, Engine, running_engine
from torpor.errors import NotRetractable, UnknownConversation
from torpor.provider_errors import RequestInvalid
from torpor.records.commands import RetractMessage
from torpor.records.ids import MessageId
from torpor.records.journal import MessageRetracted
from torpor.records.terms import WhenBusy


async def retract(engine: Engine, message_id: str) -> object:
    with anyio.fail_after(DEADLINE_S):
        return await engine.supervisor.deliver(KEY, RetractMessage(principal="ann", message_id=MessageId(message_id)))


def seen_last(engine: Engine) -> bytes:
    return json.dumps(engine.model.requests[-1]["messages"]).encode()


async def test_a_message_and_its_reply_leave_what_the_model_sees() -> None:
    async with running_engine(says("one"), says("two"), says("three")) as engine:
        heard = engine.watch()
        for text in ("first", "second"):
            await engine.ask(text)
        assert await retract(engine, "m_2") is True
        state = await engine.state()
        assert b"second" not in state.view.messages()
        await engine.ask("third")
        assert b"second" not in seen_last(engine)
        assert b"two" not in seen_last(engine)
        assert all(said in seen_last(engine) for said in (b"first", b"one", b"third"))
        (told,) = heard.of(MessageRetracted)
        assert (told.messages, told.turn, told.principal) == ((MessageId("m_2"),), 2, "ann")


async def test_what_was_taken_back_stays_so_after_a_restart_and_in_a_snapshot() -> None:
    async with running_engine(says("one"), says("two")) as engine:
        for text in ("first", "second"):
            await engine.ask(text)
        await retract(engine, "m_2")
        view = (await engine.state()).view
        data = engine.store.image()
    async with running_engine(says("three"), data=data) as engine:
        assert (await engine.state()).view == view
        await engine.send("third", message_id="m_9")
        await engine.rested()
        assert b"second" not in seen_last(engine)


async def test_asked_again_it_changes_nothing_and_the_one_before_it_stays() -> None:
    async with running_engine(says("one"), says("two")) as engine:
        for text in ("first", "second"):
            await engine.ask(text)
        for _ in range(2):
            assert await retract(engine, "m_2") is True
        with pytest.raises(NotRetractable):
            await retract(engine, "m_1")
        assert len(await engine.records_of(MessageRetracted)) == 1


async def test_writes_of_a_turn_that_is_taken_back_are_told() -> None:
    async with running_engine(asks(use("pay", "p_1")), says("paid"), says("on"), tools=[writes("pay")]) as engine:
        await engine.ask("pay it")
        await retract(engine, "m_1")
        await engine.ask("go on")
        assert b"pay (succeeded)" in seen_last(engine)
        assert b"pay it" not in seen_last(engine)


async def test_the_turn_that_runs_must_be_cancelled_first() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one")), says("two")) as engine:
        await engine.send("first")
        await gate.reached.wait()
        with pytest.raises(NotRetractable, match="cancel the turn first"):
            await retract(engine, "m_1")
        await engine.cancel()
        await retract(engine, "m_1")
        await engine.ask("second")
        assert b"first" not in seen_last(engine)
        assert b"cut short" not in seen_last(engine)
        assert b"ended early" not in seen_last(engine)


@pytest.mark.parametrize("when_busy", [WhenBusy.QUEUE, WhenBusy.STEER])
async def test_a_message_that_waits_never_begins(when_busy: WhenBusy) -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one"))) as engine:
        await engine.send("first")
        await gate.reached.wait()
        await engine.send("second", when_busy=when_busy)
        await retract(engine, "m_2")
        gate.opened.set()
        await engine.rested()
        state = await engine.state()
        assert state.turns == 1
        assert b"second" not in state.view.messages()


async def test_a_failed_turn_that_is_taken_back_is_marked_no_more() -> None:
    async with running_engine(fails(RequestInvalid("no"))) as engine:
        await engine.ask("first")
        await retract(engine, "m_1")
        row = await engine.store.describe(KEY)
        assert row is not None
        assert not row.is_failed
        state = await engine.state()
        assert (state.offers, state.notes) == ((), ())


@pytest.mark.parametrize("id_", ["m_1", "m_9"])
async def test_what_is_not_there_cannot_be_taken_back(id_: str) -> None:
    async with running_engine() as engine:
        with pytest.raises(UnknownConversation):
            await retract(engine, id_)
        assert await engine.store.describe(KEY) is None


async def test_a_message_that_nobody_sent_cannot_be_taken_back() -> None:
    async with running_engine(says("one")) as engine:
        await engine.ask("first")
        with pytest.raises(NotRetractable):
            await retract(engine, "m_9")
