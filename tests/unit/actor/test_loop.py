"""What an actor promises to those who send: acknowledged once durable, recorded once, placed as they wished."""

from typing import Any

import anyio
import pytest

from tests.support.doubles import Gate, calls, echo, fails, reads, says, stops_at, use, waits, writes
from tests.support.engine import KEY, Engine, receipt_of, running_engine
from torpor.actor.options import ActorOptions
from torpor.conversation.publish import event_of, text_of
from torpor.errors import Busy, ClientError, NothingToCancel, NotOffered, Rejected, UnknownAgent
from torpor.provider_errors import KeyRefused, RequestInvalid
from torpor.records.commands import SendMessage
from torpor.records.events import MessageReceivedEvent
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import (
    ConversationCreated,
    MessageReceived,
    ModelReplied,
    ModelRequested,
    ToolFinished,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
)
from torpor.records.terms import Offer, WhenBusy
from torpor.toolhost.contract import ToolContext


def answers(engine: Engine) -> list[str]:
    """The last thing that each request of the model said, oldest request first."""
    return [str(request["messages"][-1]["content"][-1].get("text")) for request in engine.model.requests]


async def order_of_turns(engine: Engine) -> list[tuple[MessageId, ...]]:
    return [record.messages for record in await engine.records_of(TurnPrepared)]


async def test_a_message_becomes_a_turn_with_its_reply() -> None:
    async with running_engine(says("hel", "lo")) as engine:
        heard = engine.watch()
        receipt = await engine.send("hi")
        await heard.until(TurnFinished)
        assert heard.said() == {"1-1-1": "hello"}
        assert (receipt.message_id, receipt.event, receipt.position) == ("m_1", 1, 0)
        assert [type(record) for record in heard.records] == [MessageReceived, TurnPrepared, ModelReplied, TurnFinished]


async def test_the_first_message_creates_the_conversation_with_the_agent_it_names() -> None:
    async with running_engine(agents=("clerk", "cook")) as engine:
        await engine.send("hi", agent="cook")
        await engine.rested()
        assert [record.agent for record in await engine.records_of(ConversationCreated)] == ["cook"]


async def test_a_conversation_of_an_agent_that_nobody_defined_is_not_created() -> None:
    async with running_engine() as engine:
        with pytest.raises(UnknownAgent, match="no agent 'cook' in this home, expected one of clerk"):
            await engine.send("hi", agent="cook")
        assert await engine.records() == ()
        await engine.send("hi")


async def test_nothing_is_heard_before_the_commit() -> None:
    async with running_engine(says("hello")) as engine:
        heard = engine.watch()
        engine.store.hold()
        reply = engine.post("hi")
        await engine.store.holds_one()
        await anyio.wait_all_tasks_blocked()
        assert engine.model.requests, "the model is asked while the commit is on its way"
        assert not reply.is_done
        assert (heard.records, heard.deltas) == ([], [])
        engine.store.let_go()
        await receipt_of(reply)
        await heard.until(TurnFinished)
        assert heard.said() == {"1-1-1": "hello"}


async def test_a_later_message_is_acknowledged_after_its_own_commit() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one"))) as engine:
        heard = engine.watch()
        await engine.send("first")
        await gate.reached.wait()
        engine.store.hold()
        reply = engine.post("second")
        await engine.store.holds_one()
        await anyio.wait_all_tasks_blocked()
        assert not reply.is_done
        assert len(heard.of(MessageReceived)) == 1
        engine.store.let_go()
        assert (await receipt_of(reply)).position == 1
        gate.opened.set()
        await heard.until(TurnFinished, count=2)


async def test_messages_that_arrive_together_share_a_commit() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one"))) as engine:
        await engine.send("first")
        await gate.reached.wait()
        before = len(engine.store.appends)
        replies = [engine.post(f"message {number}") for number in range(5)]
        receipts = [await receipt_of(reply) for reply in replies]
        assert len(engine.store.appends) == before + 1
        assert [receipt.position for receipt in receipts] == [1, 2, 3, 4, 5]
        gate.opened.set()
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == 6


async def test_a_message_sent_again_before_its_commit_gets_the_receipt_of_the_first() -> None:
    async with running_engine() as engine:
        engine.store.hold()
        replies = [engine.post("hi", message_id="m"), engine.post("hi", message_id="m")]
        await engine.store.holds_one()
        replies.append(engine.post("hi", message_id="m"))
        engine.store.let_go()
        first, second, third = [await receipt_of(reply) for reply in replies]
        assert first == second == third
        await engine.rested()
        assert len(await engine.records_of(MessageReceived)) == 1


async def test_a_message_sent_again_after_its_commit_gets_the_receipt_of_the_first() -> None:
    async with running_engine() as engine:
        first = await engine.send("hi", message_id="m")
        await engine.ask("something else")
        assert await engine.send("hi", message_id="m") == first
        await engine.rested()
        assert len(await engine.records_of(MessageReceived)) == 2


async def test_a_message_sent_again_after_hibernation_gets_the_receipt_of_the_first() -> None:
    async with running_engine() as engine:
        first = await engine.send("hi", message_id="m")
        await engine.rested()
        await engine.hibernate()
        assert await engine.send("hi", message_id="m") == first
        assert len(await engine.records_of(MessageReceived)) == 1


async def test_a_message_sent_again_after_a_restart_gets_the_receipt_of_the_first() -> None:
    async with running_engine() as engine:
        first = await engine.send("hi", message_id="m")
        image = engine.store.image()
    async with running_engine(data=image) as engine:
        assert await engine.send("hi", message_id="m") == first
        await engine.rested()
        assert len(await engine.records_of(MessageReceived)) == 1
        assert len(await engine.records_of(TurnFinished)) == 1


async def test_a_hundred_messages_sent_twice_at_once_are_all_kept_once_in_one_order() -> None:
    bounds = ActorOptions(mailbox_capacity=400, unprocessed_max=200)
    async with running_engine(actor=bounds) as engine:
        one, other = engine.watch(), engine.watch()
        sent: dict[str, list[int]] = {}

        async def send(number: int) -> None:
            receipt = await engine.send(f"message {number}", message_id=f"id_{number}")
            sent.setdefault(receipt.message_id, []).append(receipt.event)

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(send, number)
                tasks.start_soon(send, number)
        await one.until(TurnFinished, count=100)
        received = await engine.records_of(MessageReceived)
        assert {record.message_id: [record.event] * 2 for record in received} == sent
        assert one.records == other.records
        assert [ids for (ids,) in await order_of_turns(engine)] == [record.message_id for record in received]


async def test_messages_that_queue_get_a_turn_each_in_order() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one"))) as engine:
        heard = engine.watch()
        await engine.send("first")
        await gate.reached.wait()
        await engine.send("second")
        await engine.send("third")
        gate.opened.set()
        await heard.until(TurnFinished, count=3)
        assert await order_of_turns(engine) == [("m_1",), ("m_2",), ("m_3",)]
        assert answers(engine) == ["first", "second", "third"]


async def test_a_message_that_steers_joins_the_next_model_call_behind_the_results() -> None:
    gate = Gate()
    async with running_engine(calls(use("find", "a")), says("done"), tools=[reads("find", stops_at(gate))]) as engine:
        heard = engine.watch()
        await engine.send("look it up")
        await gate.reached.wait()
        await engine.send("in the garden", when_busy=WhenBusy.STEER)
        await engine.send("and then", when_busy=WhenBusy.QUEUE)
        gate.opened.set()
        await heard.until(TurnFinished, count=2)
        asked = [record.joined for record in await engine.records_of(ModelRequested)]
        assert asked == [(), ("m_2",), ()]
        joined = engine.model.requests[1]["messages"][-1]["content"]
        assert [block["type"] for block in joined] == ["tool_result", "text"]
        assert joined[-1]["text"] == "in the garden"
        assert await order_of_turns(engine) == [("m_1",), ("m_3",)]


async def test_a_message_that_steers_and_finds_no_model_call_becomes_the_next_turn() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one"))) as engine:
        heard = engine.watch()
        await engine.send("first")
        await gate.reached.wait()
        await engine.send("second")
        await engine.send("steering", when_busy=WhenBusy.STEER)
        gate.opened.set()
        await heard.until(TurnFinished, count=3)
        assert await order_of_turns(engine) == [("m_1",), ("m_2",), ("m_3",)]


async def test_a_message_that_interrupts_ends_the_turn_and_is_next() -> None:
    gate = Gate()
    async with running_engine(waits(gate, echo, said=("I was about", " to"))) as engine:
        heard = engine.watch()
        await engine.send("first")
        await heard.until_text("I was about to")
        await engine.send("waiting")
        receipt = await engine.send("stop", when_busy=WhenBusy.INTERRUPT)
        await heard.until(TurnFinished, count=2)
        cut = heard.of(TurnCancelled)[0]
        assert (cut.turn, cut.reason, receipt.position) == (1, "interrupt", 1)
        assert await order_of_turns(engine) == [("m_1",), ("m_3",), ("m_2",)]
        said = engine.model.requests[1]["messages"]
        assert said[1] == {"role": "assistant", "content": [{"text": "I was about to", "type": "text"}]}
        assert [block["text"] for block in said[2]["content"]] == [
            "[Your previous reply was cut short by a new message.]",
            "stop",
        ]


async def test_a_message_that_interrupts_stops_a_tool() -> None:
    gate = Gate()
    async with running_engine(calls(use("find", "a")), tools=[reads("find", stops_at(gate))]) as engine:
        heard = engine.watch()
        await engine.send("look it up")
        await gate.reached.wait()
        await engine.send("never mind", when_busy=WhenBusy.INTERRUPT)
        await heard.until(TurnFinished)
        assert [record.outcome for record in heard.of(ToolFinished)] == ["interrupted"]
        assert engine.ledger.of("cancelled") == ["find"]


@pytest.mark.parametrize("when_busy", WhenBusy)
async def test_whatever_it_wishes_a_message_that_meets_no_turn_starts_one(when_busy: WhenBusy) -> None:
    async with running_engine() as engine:
        heard = engine.watch()
        assert (await engine.send("hi", when_busy=when_busy)).position == 0
        await heard.until(TurnFinished)
        assert heard.of(TurnCancelled) == []


async def test_a_message_that_interrupts_while_others_wait_for_the_first_turn_goes_first() -> None:
    async with running_engine() as engine:
        heard = engine.watch()
        replies = [engine.post("one"), engine.post("two"), engine.post("now", when_busy=WhenBusy.INTERRUPT)]
        for reply in replies:
            await receipt_of(reply)
        await heard.until(TurnFinished, count=3)
        assert await order_of_turns(engine) == [("m_3",), ("m_1",), ("m_2",)]
        assert heard.of(TurnCancelled) == []


async def test_a_message_that_is_rejected_leaves_no_trace() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one"))) as engine:
        await engine.send("first")
        await gate.reached.wait()
        with pytest.raises(Rejected, match="turn 1 is running"):
            await engine.send("second", message_id="again", when_busy=WhenBusy.REJECT)
        assert len(await engine.records_of(MessageReceived)) == 1
        gate.opened.set()
        await engine.rested()
        await engine.send("second", message_id="again", when_busy=WhenBusy.REJECT)


async def test_the_thirty_third_unprocessed_message_is_answered_busy_and_may_come_again() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one"))) as engine:
        await engine.send("first")
        await gate.reached.wait()
        for number in range(32):
            await engine.send(f"message {number}")
        with pytest.raises(Busy, match="32 waiting") as caught:
            await engine.send("one too many", message_id="m_late")
        assert caught.value.retry_after_s == 1.0
        gate.opened.set()
        await engine.rested()
        await engine.send("one too many", message_id="m_late")
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == 34


async def test_a_message_known_already_is_answered_though_the_queue_is_full() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one")), actor=ActorOptions(unprocessed_max=1)) as engine:
        await engine.send("first")
        await gate.reached.wait()
        receipt = await engine.send("second", message_id="m")
        assert await engine.send("second", message_id="m") == receipt
        with pytest.raises(Busy):
            await engine.send("third")


async def test_a_full_mailbox_is_answered_busy_at_once() -> None:
    async with running_engine(actor=ActorOptions(mailbox_capacity=2)) as engine:
        replies = [engine.post("one"), engine.post("two")]
        with pytest.raises(Busy, match="mailbox is full"):
            engine.post("three")
        for reply in replies:
            await receipt_of(reply)
        await engine.send("three")


async def test_there_is_nothing_to_cancel_at_rest() -> None:
    async with running_engine() as engine:
        await engine.ask("hi")
        with pytest.raises(NothingToCancel):
            await engine.cancel()


async def test_of_two_who_take_up_an_offer_one_is_refused_and_nothing_is_done_twice() -> None:
    pay = writes("pay")
    plays = (fails(RequestInvalid("odd"), said=("hel",)), calls(use("pay", "a")), says("paid"))
    async with running_engine(*plays, tools=[pay]) as engine:
        await engine.ask("pay bob")
        (failed,) = await engine.records_of(TurnFailed)
        assert failed.offers == (Offer.CONTINUE,)
        with pytest.raises(NotOffered, match="does not offer 'retry'"):
            await receipt_of(engine.post("", resume=Offer.RETRY))
        first, second = (engine.post("", message_id=id_, resume=Offer.CONTINUE) for id_ in ("c_1", "c_2"))
        receipt = await receipt_of(first)
        with pytest.raises(NotOffered, match="taken up already: send a message instead"):
            await receipt_of(second)
        assert await receipt_of(engine.post("", message_id="c_1", resume=Offer.CONTINUE)) == receipt
        await engine.rested()
        with pytest.raises(NotOffered):
            await receipt_of(engine.post("", resume=Offer.CONTINUE))
        assert engine.ledger.of("started") == ["pay"]


@pytest.mark.parametrize("is_told", [True, False])
async def test_an_offer_stands_after_a_restart_whether_it_is_told_by_the_snapshot_or_by_the_journal(
    is_told: bool,
) -> None:
    options = ActorOptions(snapshot_min_bytes=1 if is_told else 1_000_000, snapshot_share=0.01)
    async with running_engine(fails(KeyRefused("no")), says("hi"), actor=options) as engine:
        await engine.ask("hello")
        await engine.hibernate()
        assert bool(engine.store.snapshots) == is_told
        await receipt_of(engine.post("", resume=Offer.RETRY))
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == 1


async def test_an_offer_that_another_message_passed_over_does_not_stand_any_more() -> None:
    async with running_engine(fails(KeyRefused("no")), says("hi")) as engine:
        await engine.ask("hello")
        await engine.ask("never mind")
        with pytest.raises(NotOffered):
            await receipt_of(engine.post("", resume=Offer.RETRY))


async def test_one_refusal_does_not_touch_the_commands_beside_it() -> None:
    async with running_engine(actor=ActorOptions(unprocessed_max=1)) as engine:
        first, second = engine.post("one"), engine.post("two")
        await receipt_of(first)
        with pytest.raises(ClientError):
            await receipt_of(second)
        await engine.rested()
        assert len(await engine.records_of(MessageReceived)) == 1


async def test_conversations_do_not_hear_each_other() -> None:
    other = ConversationKey("acme", "ann", "c_2")
    async with running_engine() as engine:
        mine, theirs = engine.watch(KEY), engine.watch(other)
        await engine.send("mine")
        await engine.send("theirs", key=other)
        await mine.until(TurnFinished)
        await theirs.until(TurnFinished)
        assert {record.message_id for record in mine.of(MessageReceived)} == {"m_1"}
        assert {record.message_id for record in theirs.of(MessageReceived)} == {"m_2"}


async def test_a_running_tool_tells_the_clients_how_it_goes() -> None:
    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        context.report("half way")
        return "done"

    async with running_engine(calls(use("pay", "a")), tools=[writes("pay", run)]) as engine:
        heard = engine.watch()
        await engine.send("pay")
        await heard.until(TurnFinished)
        assert [(progress.name, progress.text) for progress in heard.progress] == [("pay", "half way")]


@pytest.mark.parametrize(
    "text",
    [
        "naïve \U0001f469\u200d\U0001f467",
        "two\nlines\ttab\r\n",
        'quo"te \\ {"a":[1]}',
        "nul\u2400 \ufffd",
        "\u202eright to left",
        "x" * 100_000,
    ],
    ids=["emoji", "lines", "json", "cleaned", "bidi", "long"],
)
async def test_text_is_kept_verbatim_in_journal_event_and_request(text: str) -> None:
    command = SendMessage(message_id=MessageId("m"), principal="ann", text=text, cleaned=2)
    async with running_engine(says(text)) as engine:
        heard = engine.watch()
        await receipt_of(engine.supervisor.post(KEY, command))
        await heard.until(TurnFinished)
        event = event_of(heard.of(MessageReceived)[0])
        assert isinstance(event, MessageReceivedEvent)
        assert (event.text, event.cleaned) == (text, 2)
        assert heard.said() == {"1-1-1": text}
        await engine.ask("and again")
        said = [message["content"][0]["text"] for message in engine.model.requests[-1]["messages"]]
        assert said == [text, text, "and again"]
        (stored,) = [record for record in await engine.records_of(MessageReceived) if record.message_id == "m"]
        assert text_of(stored.blocks) == text
