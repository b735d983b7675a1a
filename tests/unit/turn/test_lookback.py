"""A message may have exchanges quoted that were folded away, for its own turn and no longer."""

from typing import Any

import anyio
import msgspec

from tests.support.doubles import Gate, Play, calls, reads, says, stops_at, use, waits
from tests.support.engine import DEADLINE_S, KEY, Engine, receipt_of, running_engine
from torpor.conversation.budget import Profile
from torpor.errors import StoreUnavailable
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.ids import ConversationKey
from torpor.records.journal import ContextReplaced, JournalRecord, ModelRequested, TurnFinished, TurnPrepared
from torpor.records.terms import Usage, WhenBusy
from torpor.turn.options import TurnOptions

LONG = "x" * 1_200
SMALL = Profile(budget_tokens=6_000, headroom_tokens=500)
"""Enough for about eight turns of ``LONG``."""
TURNS = 9


async def fill(engine: Engine, *, key: ConversationKey = KEY, long: str = LONG) -> None:
    """Talk until the first turns are folded."""
    for number in range(TURNS):
        await engine.ask(f"message <{number}> {long}", key=key)


async def look_back(engine: Engine, exchanges: int, *, text: str = "and before that?") -> TurnPrepared:
    """Send a message that asks for these, and return how its turn began."""
    await receipt_of(engine.post(text, lookback=exchanges))
    await engine.rested()
    return (await engine.records_of(TurnPrepared))[-1]


def uncounted(play: Play) -> Play:
    """The same from a host that does not count, so that estimates go by sizes alone."""

    async def played(request: ModelRequest, sink: ReplySink) -> ModelReply:
        return msgspec.structs.replace(await play(request, sink), usage=Usage())

    return played


def quotations(request: dict[str, Any]) -> list[str]:
    blocks = (block for message in request["messages"] for block in message["content"])
    return [block["text"] for block in blocks if block.get("text", "").startswith("<lookback")]


async def test_the_last_folded_exchanges_are_quoted_at_every_call_of_the_turn_and_at_none_after_it() -> None:
    async with running_engine(profile=SMALL) as engine:
        await fill(engine)
        (replaced,) = await engine.records_of(ContextReplaced)
        last = replaced.turns[1]
        engine.model.plays.extend((uncounted(calls(use("look", "a"))), says("There.")))
        first = len(engine.model.requests)
        prepared = await look_back(engine, 2)
        await engine.ask("thanks")
        during, after = engine.model.requests[first : first + 2], engine.model.requests[first + 2 :]
    assert prepared.lookback == (last - 1, last)
    (text,) = quotations(during[0])
    assert quotations(during[1]) == [text]
    assert [quotations(request) for request in after] == [[]]
    assert text.index(f'<exchange turn="{last - 1}">') < text.index(f'<exchange turn="{last}">')
    assert f"<user>message &lt;{last - 1}&gt; {LONG}</user>" in text
    assert f"<assistant>you said: message &lt;{last - 1}&gt; {LONG}</assistant>" in text
    assert "left_out" not in text


async def test_nothing_is_quoted_while_everything_can_be_seen() -> None:
    async with running_engine() as engine:
        await engine.ask("hello")
        prepared = await look_back(engine, 50)
    assert prepared.lookback == ()
    assert prepared.turn_only == ()


async def test_the_oldest_exchanges_give_way_and_the_request_stays_below_the_line_for_folding() -> None:
    async with running_engine(profile=SMALL) as engine:
        await fill(engine)
        folds = len(await engine.records_of(ContextReplaced))
        prepared = await look_back(engine, 50)
        (text,) = quotations(engine.model.requests[-1])
        (request,) = (await engine.records_of(ModelRequested))[-1:]
        last = (await engine.state()).covered[0]
        assert len(await engine.records_of(ContextReplaced)) == folds
    assert 0 < len(prepared.lookback) < last
    assert prepared.lookback == tuple(range(last - len(prepared.lookback) + 1, last + 1))
    assert f'earlier_left_out="{last - len(prepared.lookback)}"' in text
    assert request.estimated_tokens <= 0.8 * SMALL.budget_tokens
    assert request.sections["lookback"] == prepared.sections["lookback"]
    assert sum(request.sections.values()) == SMALL.budget_tokens
    assert request.over == ()


async def test_a_profile_with_an_allotment_for_the_conversation_bounds_it_too() -> None:
    profile = msgspec.structs.replace(SMALL, conversation_tokens=2_000)
    async with running_engine(profile=profile) as engine:
        await fill(engine, long="y" * 500)
        prepared = await look_back(engine, 50)
        (request,) = (await engine.records_of(ModelRequested))[-1:]
    assert prepared.lookback
    assert request.sections["history"] + request.sections["lookback"] <= profile.conversation_tokens
    assert request.over == ()


async def test_a_model_is_told_that_nothing_fits_below_such_an_allotment() -> None:
    profile = msgspec.structs.replace(SMALL, conversation_tokens=600)
    async with running_engine(profile=profile) as engine:
        await fill(engine, long="y" * 500)
        prepared = await look_back(engine, 2)
        (text,) = quotations(engine.model.requests[-1])
    assert prepared.lookback == ()
    assert 'earlier_left_out="2"' in text


async def test_a_message_without_room_for_a_single_exchange_goes_without() -> None:
    async with running_engine(profile=SMALL) as engine:
        await fill(engine)
        folds = len(await engine.records_of(ContextReplaced))
        prepared = await look_back(engine, 3, text="z" * 7_000)
        assert len(await engine.records_of(ContextReplaced)) == folds
    assert prepared.lookback == ()


async def test_a_message_that_joins_a_running_turn_has_nothing_quoted() -> None:
    gate = Gate()
    async with running_engine(tools=(reads("wait", stops_at(gate)),), profile=SMALL) as engine:
        await fill(engine)
        engine.model.plays.append(uncounted(calls(use("wait", "a"))))
        await engine.send("first")
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        await receipt_of(engine.post("second", when_busy=WhenBusy.STEER, lookback=2))
        gate.opened.set()
        await engine.rested()
        prepared = await engine.records_of(TurnPrepared)
    assert len(prepared) == TURNS + 1
    assert prepared[-1].lookback == ()


async def test_a_message_that_interrupts_goes_before_one_whose_quotation_is_still_read() -> None:
    async with running_engine(profile=SMALL) as engine:
        await fill(engine)
        gate = Gate()
        read = engine.store.records_after

        async def slow(*args: Any, **named: Any) -> tuple[JournalRecord, ...]:
            await gate.passed()
            return await read(*args, **named)

        engine.store.records_after = slow  # type: ignore[method-assign]  # the port, while it is in use
        first = await receipt_of(engine.post("and before that?", lookback=2))
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        second = await receipt_of(engine.post("no, wait", when_busy=WhenBusy.INTERRUPT))
        gate.opened.set()
        await engine.rested()
        begun = [(record.messages, len(record.lookback)) for record in await engine.records_of(TurnPrepared)]
    assert begun[TURNS:] == [((second.message_id,), 0), ((first.message_id,), 2)]


async def test_what_was_quoted_is_the_same_after_a_crash_in_the_turn() -> None:
    gate = Gate()
    async with running_engine(profile=SMALL) as engine:
        await fill(engine)
        engine.model.plays.append(waits(gate, says("never")))
        await receipt_of(engine.post("and before that?", lookback=2))
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        before, data = engine.model.requests[-1], engine.store.data
    async with running_engine(profile=SMALL, data=data) as engine:
        await engine.wake()
        await engine.rested()
        again = engine.model.requests[0]
    assert quotations(before)
    assert again == before


async def test_a_message_is_accepted_while_its_quotation_is_still_read() -> None:
    async with running_engine(profile=SMALL) as engine:
        await fill(engine)
        gate = Gate()
        read = engine.store.records_after

        async def slow(*args: Any, **named: Any) -> tuple[JournalRecord, ...]:
            await gate.passed()
            return await read(*args, **named)

        engine.store.records_after = slow  # type: ignore[method-assign]  # the port, while it is in use
        receipt = await receipt_of(engine.post("and before that?", lookback=2))
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        waiting = await engine.records_of(TurnPrepared)
        gate.opened.set()
        await engine.rested()
        prepared = await engine.records_of(TurnPrepared)
    assert receipt.position == 0
    assert (len(waiting), len(prepared)) == (TURNS, TURNS + 1)
    assert len(prepared[-1].lookback) == 2


async def test_what_cannot_be_read_in_time_does_not_hold_up_the_turn() -> None:
    options = TurnOptions(lookback_deadline_s=0.01, cancel_grace_s=0.0)
    async with running_engine(profile=SMALL, turn=options) as engine:
        await fill(engine)

        async def stuck(*args: Any, **named: Any) -> tuple[JournalRecord, ...]:
            await anyio.sleep_forever()
            raise AssertionError

        engine.store.records_after = stuck  # type: ignore[method-assign]  # the port, while it is in use
        await receipt_of(engine.post("and before that?", lookback=2))
        await engine.rested()
        prepared = (await engine.records_of(TurnPrepared))[-1]
    assert prepared.lookback == ()


async def test_what_cannot_be_read_at_all_does_not_either() -> None:
    async with running_engine(profile=SMALL) as engine:
        await fill(engine)

        async def failing(*args: Any, **named: Any) -> tuple[JournalRecord, ...]:
            raise StoreUnavailable("the disk is gone")

        engine.store.records_after = failing  # type: ignore[method-assign]  # the port, while it is in use
        await receipt_of(engine.post("and before that?", lookback=2))
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == TURNS + 1
