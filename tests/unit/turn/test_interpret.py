"""Turns from their first commit to their last, whatever ends them."""

import anyio
import pytest

from tests.support.doubles import (
    Crash,
    FakeTool,
    Gate,
    ManualClock,
    Play,
    calls,
    fails,
    place,
    raises,
    reads,
    replies,
    says,
    stops_at,
    use,
    waits,
    writes,
)
from tests.support.engine import KEY, Engine, Recorder, running_engine
from torpor.conversation.steps import StepOptions
from torpor.errors import UnknownAgent
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.provider_errors import ProviderUnavailable, RequestInvalid
from torpor.records.blocks import canonical, text_block
from torpor.records.ids import ConversationKey
from torpor.records.journal import (
    AttemptStarted,
    ConversationCreated,
    LateResult,
    MessageReceived,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    PreambleChanged,
    ToolFinished,
    ToolStarted,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
)
from torpor.records.terms import WhenBusy
from torpor.turn.options import TurnOptions

UNKNOWN = (
    "Outcome unknown: pay was started and the turn was ended while it ran. It may or may not have taken effect. "
    "Do not assume either, and do not repeat it without checking."
)
LONG_GRACE = TurnOptions(cancel_grace_s=60.0)


def last_message(engine: Engine) -> list[str]:
    """What the blocks of the last user message of the last request say."""
    blocks = engine.model.requests[-1]["messages"][-1]["content"]
    return [block.get("text") or block.get("content") for block in blocks]


def outcomes(heard: Recorder) -> dict[str, str]:
    return {place(record.call_id): record.outcome.value for record in heard.of(ToolFinished)}


async def test_a_plain_turn_needs_two_flushes() -> None:
    async with running_engine(says("hello")) as engine:
        await engine.ask("hi")
        assert [[type(record) for record in batch] for batch in engine.store.appends] == [
            [ConversationCreated, MessageReceived, PreambleChanged, TurnPrepared, ModelRequested],
            [ModelReplied, TurnFinished],
        ]


@pytest.mark.parametrize(
    "tools", [(reads("one"), reads("two")), (writes("one"), writes("two"))], ids=["reads", "writes"]
)
async def test_a_turn_of_two_tools_needs_four_flushes(tools: tuple[FakeTool, ...]) -> None:
    async with running_engine(calls(use("one", "a"), use("two", "b")), tools=tools) as engine:
        await engine.ask("hi")
        assert [[type(record) for record in batch] for batch in engine.store.appends] == [
            [ConversationCreated, MessageReceived, PreambleChanged, TurnPrepared, ModelRequested],
            [ModelReplied, ToolStarted, ToolStarted],
            [ToolFinished, ToolFinished, ModelRequested],
            [ModelReplied, TurnFinished],
        ]


async def test_a_second_turn_needs_no_preamble() -> None:
    async with running_engine() as engine:
        await engine.ask("one")
        await engine.ask("two")
        assert [type(record) for record in engine.store.appends[2]] == [MessageReceived, TurnPrepared, ModelRequested]


async def test_a_changed_agent_is_told_once_and_named_from_then_on() -> None:
    async with running_engine() as engine:
        await engine.ask("one")
        image = engine.store.image()
    async with running_engine(data=image, system="You are another clerk.") as engine:
        await engine.ask("two")
        await engine.ask("three")
        changes = await engine.records_of(PreambleChanged)
        assert [record.turn for record in changes] == [0, 0]
        asked = [record.preamble for record in await engine.records_of(ModelRequested)]
        assert asked == [changes[0].digest, changes[1].digest, changes[1].digest]
        assert engine.model.requests[-1]["system"] == [{"type": "text", "text": "You are another clerk."}]


async def test_an_empty_reply_ends_the_turn_and_leaves_no_message() -> None:
    async with running_engine(replies()) as engine:
        await engine.ask("one")
        await engine.ask("two")
        assert [message["role"] for message in engine.model.requests[1]["messages"]] == ["user"]
        assert last_message(engine) == ["one", "two"]


async def test_text_that_says_nothing_is_left_out_of_the_reply() -> None:
    async with running_engine(replies(text_block("\n\n"), text_block("yes"))) as engine:
        await engine.ask("one")
        assert [record.blocks for record in await engine.records_of(ModelReplied)] == [(text_block("yes"),)]


async def test_the_step_limit_ends_a_turn_that_goes_on_for_ever() -> None:
    plays = [calls(use("look", f"call_{number}")) for number in range(3)]
    async with running_engine(*plays, steps=StepOptions(step_limit=3)) as engine:
        heard = engine.watch()
        await engine.send("go on")
        failed = await heard.until(TurnFailed)
        assert (failed.code, failed.detail) == ("step_limit", "3 model calls in one turn, the limit is 3")
        assert len(heard.of(ToolFinished)) == 3
        await engine.ask("and now?")
        assert last_message(engine)[-2:] == ["[The previous message could not be answered: step_limit.]", "and now?"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [((), ()), (("The three", " causes"), (text_block("The three causes"),)), ((" ", "\n"), ())],
    ids=["nothing", "text", "blanks"],
)
async def test_a_model_that_fails_ends_the_turn_and_keeps_what_it_said(
    said: tuple[str, ...], kept: tuple[object, ...]
) -> None:
    async with running_engine(fails(ProviderUnavailable("overloaded"), said=said)) as engine:
        heard = engine.watch()
        await engine.send("why?")
        failed = await heard.until(TurnFailed)
        assert (failed.code, failed.detail, failed.partial) == ("model_unavailable", "overloaded", kept)
        assert [record.code for record in await engine.records_of(ModelFailed)] == ["model_unavailable"]
        await engine.ask("again")
        assert last_message(engine)[-1] == "again"


async def test_a_request_that_the_model_refuses_fails_its_turn_only() -> None:
    async with running_engine(fails(RequestInvalid("too odd"))) as engine:
        heard = engine.watch()
        await engine.send("why?")
        assert (await heard.until(TurnFailed)).code == "model_request_invalid"
        await engine.ask("again")
        assert len(heard.of(TurnFinished)) == 1


async def test_a_model_that_does_not_end_within_its_deadline_fails_the_turn() -> None:
    async with running_engine(waits(Gate(), says("late")), turn=TurnOptions(model_deadline_s=0.0)) as engine:
        heard = engine.watch()
        await engine.send("why?")
        failed = await heard.until(TurnFailed)
        assert (failed.code, failed.detail) == ("model_timed_out", "no complete reply within 0 s")


async def test_model_calls_wait_for_a_free_place() -> None:
    gates = [Gate(), Gate()]
    plays = [waits(gates[0], says("one")), waits(gates[1], says("two"))]
    other = ConversationKey("acme", "ann", "c_2")
    async with running_engine(*plays, turn=TurnOptions(model_calls_max=1)) as engine:
        heard = engine.watch(other)
        await engine.send("first")
        await gates[0].reached.wait()
        await engine.send("second", key=other)
        await anyio.wait_all_tasks_blocked()
        assert len(engine.model.requests) == 1
        gates[0].opened.set()
        await gates[1].reached.wait()
        gates[1].opened.set()
        await heard.until(TurnFinished)


async def test_three_crashes_at_one_model_call_fail_the_turn_and_the_conversation_goes_on() -> None:
    async with running_engine(*[fails(Crash("bug"))] * 3) as engine:
        heard = engine.watch()
        engine.post("boom")  # the crash may come before the receipt, as it does with a slow disk
        failed = await heard.until(TurnFailed)
        assert failed.code == "crashed"
        assert failed.detail == "a model call of round 1 did not survive 3 attempts"
        attempts = await engine.records_of(AttemptStarted)
        assert [(record.step, record.round, record.attempt) for record in attempts] == [
            ("call_model", 1, 2),
            ("call_model", 1, 3),
        ]
        assert [record.call for record in await engine.records_of(ModelRequested)] == ["1-1-1", "1-1-2", "1-1-3"]
        assert len({str(request) for request in engine.model.requests}) == 1
        await engine.ask("still there?")
        assert heard.of(TurnFinished)[0].turn == 2


async def test_three_crashes_at_one_batch_of_tools_fail_the_turn_and_every_call_has_its_result() -> None:
    plays = [calls(use("find", "a"), use("look", "b"))]
    async with running_engine(*plays, tools=[reads("find", raises(Crash("bug")))]) as engine:
        heard = engine.watch()
        await engine.insist("boom")
        failed = await heard.until(TurnFailed)
        assert failed.code == "crashed"
        assert "did not survive 3 attempts" in failed.detail
        assert engine.ledger.of("started").count("find") == 3
        assert outcomes(heard)["a"] == "interrupted"
        await engine.ask("still there?")
        assert heard.of(TurnFinished)[0].turn == 2


async def test_crashes_at_different_steps_do_not_add_up() -> None:
    crash = fails(Crash("bug"))
    plays = [crash, crash, calls(use("look", "a")), crash, crash, says("done")]
    async with running_engine(*plays) as engine:
        heard = engine.watch()
        engine.post("hi")
        await heard.until(TurnFinished)
        attempts = [(record.round, record.attempt) for record in await engine.records_of(AttemptStarted)]
        assert attempts == [(1, 2), (1, 3), (2, 2), (2, 3)]


async def test_a_cancel_before_any_text_ends_the_turn_without_a_reply() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("never"))) as engine:
        heard = engine.watch()
        await engine.send("one")
        await gate.reached.wait()
        assert await engine.cancel() == 1
        assert [(record.reason, record.partial) for record in heard.of(TurnCancelled)] == [("client", ())]
        await engine.ask("two")
        assert last_message(engine) == ["one", "[The previous turn was ended early by the user.]", "two"]


async def test_a_cancel_in_the_middle_of_the_text_keeps_what_was_said() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("never"), said=("Half of ", "it"))) as engine:
        heard = engine.watch()
        await engine.send("one")
        await heard.until_text("Half of it")
        assert await engine.cancel() == 1
        assert heard.of(TurnCancelled)[0].partial == (text_block("Half of it"),)
        await engine.ask("two")
        assert engine.model.requests[1]["messages"][1]["content"] == [{"type": "text", "text": "Half of it"}]
        assert last_message(engine) == ["[Your previous reply was cut short by the user.]", "two"]


async def test_a_cancel_keeps_finished_blocks_but_no_call_and_no_blank() -> None:
    gate = Gate()
    thinking = canonical({"type": "thinking", "thinking": "hm", "signature": "c2ln"})

    async def play(request: ModelRequest, sink: ReplySink) -> ModelReply:
        for block in (thinking, text_block("Well."), text_block("\n"), use("look", "a")):
            sink.block(block)
        sink.text("And")
        return await waits(gate, says("never"))(request, sink)

    async with running_engine(play) as engine:
        heard = engine.watch()
        await engine.send("one")
        await gate.reached.wait()
        await engine.cancel()
        assert heard.of(TurnCancelled)[0].partial == (thinking, text_block("Well."), text_block("And"))
        await engine.ask("two")


async def test_a_cancel_is_answered_once_the_end_is_durable() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("never"))) as engine:
        heard = engine.watch()
        await engine.send("one")
        await gate.reached.wait()
        engine.store.hold()
        answers: list[object] = []

        async def cancel() -> None:
            answers.append(await engine.cancel())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            await engine.store.holds_one()
            await anyio.wait_all_tasks_blocked()
            assert answers == []
            assert heard.of(TurnCancelled) == []
            engine.store.let_go()
        assert answers == [1]


async def test_two_cancels_of_one_turn_are_both_answered() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("never"))) as engine:
        heard = engine.watch()
        await engine.send("one")
        await gate.reached.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.cancel)
            tasks.start_soon(engine.cancel)
        assert len(heard.of(TurnCancelled)) == 1


async def test_what_waits_goes_on_after_a_cancel() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("never"))) as engine:
        heard = engine.watch()
        await engine.send("one")
        await gate.reached.wait()
        await engine.send("two")
        await engine.send("steering", when_busy=WhenBusy.STEER)
        await engine.cancel()
        await heard.until(TurnFinished, count=2)
        assert [record.messages for record in heard.of(TurnPrepared)] == [("m_1",), ("m_2",), ("m_3",)]


async def test_a_cancel_during_a_read_stops_it_and_says_that_nothing_changed() -> None:
    gate = Gate()
    async with running_engine(
        calls(use("find", "a")), tools=[reads("find", stops_at(gate))], turn=LONG_GRACE
    ) as engine:
        heard = engine.watch()
        await engine.send("find it")
        await heard.until(ToolStarted)
        await engine.cancel()
        assert outcomes(heard) == {"a": "interrupted"}
        assert engine.ledger.of("cancelled") == ["find"]
        await engine.ask("and?")
        assert last_message(engine) == [
            "Stopped while running: the turn was ended before find returned. It only reads, so nothing was changed.",
            "[The previous turn was ended early by the user.]",
            "and?",
        ]


async def test_a_write_that_ends_within_its_grace_keeps_its_result() -> None:
    gate = Gate()
    async with running_engine(calls(use("pay", "a")), tools=[writes("pay", stops_at(gate))], turn=LONG_GRACE) as engine:
        heard = engine.watch()
        await engine.send("pay")
        await gate.reached.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.cancel)
            await anyio.wait_all_tasks_blocked()
            assert heard.of(TurnCancelled) == []
            gate.opened.set()
        assert outcomes(heard) == {"a": "succeeded"}
        assert len(heard.of(TurnCancelled)) == 1
        await engine.ask("and?")
        assert last_message(engine) == ["done", "[The previous turn was ended early by the user.]", "and?"]


async def test_a_write_that_outlives_its_grace_is_unknown_and_told_once_it_ends() -> None:
    gate = Gate()
    async with running_engine(calls(use("pay", "a")), tools=[writes("pay", stops_at(gate, "paid 5"))]) as engine:
        heard = engine.watch()
        await engine.send("pay")
        await gate.reached.wait()
        await engine.cancel()
        assert outcomes(heard) == {"a": "unknown"}
        assert engine.ledger.of("cancelled") == []
        gate.opened.set()
        late = await heard.until(LateResult)
        assert (place(late.call_id), late.of_turn, late.outcome) == ("a", 1, "succeeded")
        await engine.ask("and?")
        assert last_message(engine) == [
            UNKNOWN,
            "[The previous turn was ended early by the user.]",
            "[pay, reported as outcome unknown in turn 1, has succeeded: paid 5]",
            "and?",
        ]
        assert engine.ledger.of("started") == ["pay"]


async def test_a_write_that_ends_during_the_next_turn_is_told_at_the_turn_after() -> None:
    tool, model = Gate(), Gate()
    plays = [calls(use("pay", "a")), waits(model, says("hello"))]
    async with running_engine(*plays, tools=[writes("pay", stops_at(tool))]) as engine:
        heard = engine.watch()
        await engine.send("pay")
        await tool.reached.wait()
        await engine.cancel()
        await engine.send("hello?")
        await model.reached.wait()
        tool.opened.set()
        await heard.until(LateResult)
        model.opened.set()
        await heard.until(TurnFinished)
        await engine.ask("and?")
        assert last_message(engine) == ["[pay, reported as outcome unknown in turn 1, has succeeded: done]", "and?"]


async def test_a_write_that_ends_while_its_cancel_is_committed_is_on_record_before_the_actor_leaves() -> None:
    gate = Gate()
    async with running_engine(calls(use("pay", "a")), tools=[writes("pay", stops_at(gate))]) as engine:
        await engine.send("pay")
        await gate.reached.wait()
        engine.store.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.cancel)
            await engine.store.holds_one()
            tasks.start_soon(engine.hibernate)
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
            await anyio.wait_all_tasks_blocked()
            assert engine.ledger.of("ended") == ["pay"]
            engine.store.let_go()
        assert engine.supervisor.live_status(KEY) is None
        assert len(await engine.records_of(LateResult)) == 1


async def test_an_actor_does_not_leave_while_a_write_still_runs() -> None:
    gate = Gate()
    async with running_engine(calls(use("pay", "a")), tools=[writes("pay", stops_at(gate))]) as engine:
        await engine.send("pay")
        await gate.reached.wait()
        await engine.cancel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.hibernate)
            await anyio.wait_all_tasks_blocked()
            assert engine.supervisor.live_status(KEY) is not None
            gate.opened.set()
        assert len(await engine.records_of(LateResult)) == 1
        assert engine.supervisor.live_status(KEY) is None


async def test_a_cancel_before_a_tool_has_started_says_that_it_never_did() -> None:
    async with running_engine(calls(use("pay", "a"), use("pay", "b")), tools=[writes("pay")]) as engine:
        heard = engine.watch()
        gate = Gate()
        engine.model.plays.appendleft(waits(gate, engine.model.plays.popleft()))
        await engine.send("pay twice")
        engine.store.hold()
        gate.opened.set()
        await engine.store.holds_one()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.cancel)
            await anyio.wait_all_tasks_blocked()
            engine.store.let_go()
        assert outcomes(heard) == {"a": "never_started", "b": "never_started"}
        assert engine.ledger.entries == []
        await engine.ask("and?")
        never = "Not executed: the turn was ended before pay started. Nothing was done."
        assert last_message(engine) == [never, never, "[The previous turn was ended early by the user.]", "and?"]


async def test_a_power_cut_before_a_tool_has_started_leaves_a_call_that_is_run_once() -> None:
    async with running_engine(calls(use("pay", "a")), tools=[writes("pay")]) as engine:
        gate = Gate()
        engine.model.plays.appendleft(waits(gate, engine.model.plays.popleft()))
        await engine.send("pay")
        engine.store.hold()
        gate.opened.set()
        await engine.store.holds_one()
        image = engine.store.image()
        assert engine.ledger.entries == []
    plays = [calls(use("pay", "a"))]
    async with running_engine(*plays, tools=[writes("pay")], data=image, ledger=engine.ledger) as engine:
        heard = engine.watch()
        await heard.until(TurnFinished)
        assert engine.ledger.of("started") == ["pay"]


async def test_a_cancel_settles_each_call_of_a_batch_as_it_stands() -> None:
    read, write = Gate(), Gate()
    tools = [reads("find", stops_at(read)), writes("pay", stops_at(write))]
    plays = [calls(use("look", "a"), use("find", "b"), use("pay", "c"), use("gone", "d"))]
    async with running_engine(*plays, tools=tools) as engine:
        heard = engine.watch()
        await engine.send("go")
        await write.reached.wait()
        await heard.until(ToolFinished, count=2)
        await engine.cancel()
        assert outcomes(heard) == {"a": "succeeded", "b": "interrupted", "c": "unknown", "d": "failed"}
        await engine.send("and?")
        await heard.until(TurnFinished)


@pytest.mark.parametrize("then", [says("done"), calls(use("pay", "a"))], ids=["text", "call"])
async def test_a_cancel_that_comes_with_the_reply_ends_the_turn_once_either_way(then: Play) -> None:
    gate = Gate()
    async with running_engine(waits(gate, then), says("go on"), tools=[writes("pay")]) as engine:
        heard = engine.watch()
        await engine.send("one")
        await gate.reached.wait()
        gate.opened.set()
        assert await engine.cancel() == 1
        ends = [record for record in heard.records if isinstance(record, TurnCancelled | TurnFinished)]
        assert [record.turn for record in ends] == [1]
        await engine.ask("two")
        assert heard.records[-1].turn == 2


async def test_a_model_call_that_was_cut_off_by_a_power_cut_is_made_again_as_it_was() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("never"), said=("Half",))) as engine:
        heard = engine.watch()
        await engine.send("one")
        await heard.until_text("Half")
        image, asked = engine.store.image(), engine.model.requests
    async with running_engine(says("whole"), data=image) as engine:
        heard = engine.watch()
        await heard.until(TurnFinished)
        assert engine.model.requests == asked
        assert heard.said() == {"1-1-2": "whole"}
        assert [record.attempt for record in await engine.records_of(AttemptStarted)] == [2]


async def test_a_repeated_attempt_is_on_record_before_the_model_is_asked() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("never"))) as engine:
        await engine.send("one")
        await gate.reached.wait()
        image = engine.store.image()
    async with running_engine(data=image) as engine:
        engine.store.hold()
        await engine.store.holds_one()
        await anyio.wait_all_tasks_blocked()
        assert engine.model.requests == []
        engine.store.let_go()
        await engine.rested()
        assert len(engine.model.requests) == 1


async def test_an_agent_that_vanished_refuses_messages_and_leaves_the_history_readable() -> None:
    async with running_engine(agents=("cook", "clerk")) as engine:
        await engine.ask("one")
        before = await engine.records()
        image = engine.store.image()
    async with running_engine(data=image, agents=("clerk",)) as engine:
        with pytest.raises(UnknownAgent, match="no agent 'cook' in this home, expected one of clerk"):
            await engine.send("two")
        assert await engine.records() == before
        image = engine.store.image()
    async with running_engine(data=image, agents=("clerk", "cook")) as engine:
        await engine.ask("two")
        assert len(await engine.records_of(TurnFinished)) == 2


async def test_a_turn_whose_agent_vanished_ends_as_failed_with_every_call_settled() -> None:
    gate = Gate()
    plays, tools = [calls(use("pay", "a"))], [writes("pay", stops_at(gate))]
    async with running_engine(*plays, tools=tools, agents=("cook", "clerk")) as engine:
        await engine.send("pay")
        await gate.reached.wait()
        await engine.send("and then")
        image = engine.store.image()
    async with running_engine(data=image, agents=("clerk",), ledger=engine.ledger) as engine:
        await engine.rested()
        failed = await engine.records_of(TurnFailed)
        assert [(record.turn, record.code) for record in failed] == [(1, "unknown_agent"), (2, "unknown_agent")]
        assert failed[0].detail == "agent 'cook' is no longer defined in this home"
        assert [record.outcome for record in await engine.records_of(ToolFinished)] == ["unknown"]
        assert engine.ledger.of("started") == ["pay"]
        assert engine.model.requests == []


async def test_records_carry_the_time_at_which_they_were_made() -> None:
    clock = ManualClock()
    async with running_engine(clock=clock) as engine:
        await engine.ask("one")
        clock.advance(60)
        await engine.ask("two")
        times = [record.at_us for record in await engine.records_of(TurnPrepared)]
        assert times[1] - times[0] == 60_000_000
