"""What becomes of tool calls: every outcome, side by side, and after a power cut."""

from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from tests.support.doubles import (
    FakeTool,
    Gate,
    Ledger,
    ManualClock,
    Probe,
    Run,
    calls,
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
from tests.support.engine import DEADLINE_S, KEY, Engine, Recorder, running_engine
from torpor.conversation.state import CallState, CallStatus, TurnState
from torpor.errors import ToolFailed, ToolRefused, ToolTimedOut
from torpor.records.blocks import canonical
from torpor.records.ids import CallId, ConversationKey, MessageId
from torpor.records.journal import (
    AttemptStarted,
    ModelReplied,
    ModelRequested,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnFinished,
)
from torpor.records.terms import Effect, Outcome
from torpor.store.memory_data import MemoryData
from torpor.toolhost.contract import ToolContext, ToolResult
from torpor.turn.options import TurnOptions
from torpor.turn.tool_batch import idempotency_key, settled_as_they_stand


def outcomes(heard: Recorder) -> dict[str, str]:
    return {place(record.call_id): record.outcome.value for record in heard.of(ToolFinished)}


def results(engine: Engine) -> list[tuple[str, bool]]:
    """The results in the last request: their text, and whether each is an error."""
    blocks = engine.model.requests[-1]["messages"][-1]["content"]
    found = [block for block in blocks if block["type"] == "tool_result"]
    return [(block["content"], block.get("is_error", False)) for block in found]


async def answered_with(*uses: Any, tools: tuple[FakeTool, ...] = ()) -> tuple[dict[str, str], list[tuple[str, bool]]]:
    """How the calls of one reply end, and what the model reads of them."""
    async with running_engine(calls(*uses), tools=tools) as engine:
        heard = engine.watch()
        await engine.send("go")
        await heard.until(TurnFinished)
        return outcomes(heard), results(engine)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ToolRefused("not after ten"), "denied"),
        (ToolFailed("no such account"), "failed"),
        (ToolTimedOut("tool", deadline_s=3), "failed"),
    ],
)
async def test_a_read_that_does_not_succeed_is_an_error_that_says_why(error: Exception, outcome: str) -> None:
    ended, read = await answered_with(use("tool", "a"), tools=(reads("tool", raises(error)),))
    assert (ended, read) == ({"a": outcome}, [(str(error), True)])


async def test_a_write_past_its_deadline_is_unknown() -> None:
    error = ToolTimedOut("pay", deadline_s=3)
    ended, read = await answered_with(use("pay", "a"), tools=(writes("pay", raises(error)),))
    assert (ended, read) == ({"a": "unknown"}, [("tool 'pay' did not finish within 3 s", True)])


async def test_a_tool_that_nobody_offers_fails_and_names_those_that_are() -> None:
    async with running_engine(calls(use("gone", "a"))) as engine:
        heard = engine.watch()
        await engine.send("go")
        await heard.until(TurnFinished)
        assert outcomes(heard) == {"a": "failed"}
        assert results(engine) == [("no tool 'gone' is offered, expected one of look", True)]
        assert heard.of(ToolStarted) == []


async def test_one_failure_does_not_touch_the_calls_beside_it() -> None:
    tools = (reads("bad", raises(ToolFailed("no"))), writes("denied", raises(ToolRefused("never"))), writes("pay"))
    uses = (use("bad", "a"), use("pay", "b"), use("denied", "c"), use("gone", "d"), use("look", "e"))
    ended, read = await answered_with(*uses, tools=tools)
    assert ended == {"a": "failed", "b": "succeeded", "c": "denied", "d": "failed", "e": "succeeded"}
    assert [is_error for _, is_error in read] == [True, False, True, True, False]


async def test_a_result_without_text_is_sent_as_it_is_and_an_error_without_text_says_so() -> None:
    async def nothing(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(outcome=Outcome(arguments["outcome"]), text="")

    uses = (use("tool", "a", outcome="succeeded"), use("tool", "b", outcome="failed"))
    _, read = await answered_with(*uses, tools=(reads("tool", nothing),))
    assert read == [("", False), ("the tool failed without a message", True)]


async def test_a_handle_and_a_count_of_replaced_characters_are_on_record() -> None:
    async def long(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(outcome=Outcome.SUCCEEDED, text="the first part", handle="ab", cleaned=2)

    async with running_engine(calls(use("tool", "a")), tools=[reads("tool", long)]) as engine:
        heard = engine.watch()
        await engine.send("go")
        record = await heard.until(ToolFinished)
        assert (record.handle, record.cleaned) == ("ab", 2)


@pytest.mark.parametrize(
    ("arguments", "shown"), [(b"null", "null"), (b"[]", "[]"), (b'"{}"', '"{}"'), (b"3", "3"), (b"true", "true")]
)
async def test_arguments_that_are_no_object_are_stored_as_one_and_answered_without_a_run(
    arguments: bytes, shown: str
) -> None:
    block = canonical({"type": "tool_use", "id": "a", "name": "pay", "input": msgspec.Raw(arguments)})
    async with running_engine(replies(block, stop_reason="tool_use"), tools=[writes("pay")]) as engine:
        heard = engine.watch()
        await engine.send("go")
        await heard.until(TurnFinished)
        assert outcomes(heard) == {"a": "failed"}
        assert engine.ledger.entries == []
        assert heard.of(ToolStarted) == []
        (text, is_error) = results(engine)[0]
        assert is_error
        assert text == f"arguments of pay are {shown}, expected a JSON object; nothing was done"
        assert engine.model.requests[-1]["messages"][1]["content"][0]["input"] == {}
        await engine.ask("and?")


async def test_a_call_without_arguments_is_a_call_with_none() -> None:
    block = canonical({"type": "tool_use", "id": "a", "name": "pay"})
    async with running_engine(replies(block, stop_reason="tool_use"), tools=[writes("pay")]) as engine:
        heard = engine.watch()
        await engine.send("go")
        await heard.until(TurnFinished)
        assert outcomes(heard) == {"a": "succeeded"}
        assert engine.model.requests[-1]["messages"][1]["content"][0]["input"] == {}


async def test_arguments_that_did_not_arrive_whole_are_answered_without_a_run() -> None:
    play = replies(
        use("pay", "a"), use("pay", "b"), stop_reason="tool_use", unusable={1: "cut short; nothing was done"}
    )
    async with running_engine(play, tools=[writes("pay")]) as engine:
        heard = engine.watch()
        await engine.send("go")
        await heard.until(TurnFinished)
        assert outcomes(heard) == {"a": "succeeded", "b": "failed"}
        assert results(engine)[1] == ("cut short; nothing was done", True)
        assert engine.ledger.of("started") == ["pay"]


async def test_a_write_waits_for_its_record_and_a_read_need_not() -> None:
    gate = Gate()
    play = waits(gate, calls(use("look", "a"), use("pay", "b")))
    async with running_engine(play, tools=[writes("pay")]) as engine:
        heard = engine.watch()
        await engine.send("go")
        await gate.reached.wait()
        engine.store.hold()
        gate.opened.set()
        await engine.store.holds_one()
        await anyio.wait_all_tasks_blocked()
        assert engine.ledger.of("started") == ["look"]
        assert heard.of(ToolFinished) == []
        engine.store.let_go()
        await heard.until(TurnFinished)
        assert engine.ledger.of("started") == ["look", "pay"]


async def test_calls_run_side_by_side_and_a_slow_one_holds_up_nobody_elses_result() -> None:
    gate = Gate()
    tools = [writes("slow", stops_at(gate)), writes("quick")]
    async with running_engine(calls(use("slow", "a"), use("quick", "b")), tools=tools) as engine:
        heard = engine.watch()
        await engine.send("go")
        assert place((await heard.until(ToolFinished)).call_id) == "b"
        assert [place(record.call_id) for record in await engine.records_of(ToolFinished)] == ["b"]
        gate.opened.set()
        await heard.until(TurnFinished)
        assert [text for text, _ in results(engine)] == ["done", "quick did {}"]


async def test_a_tool_knows_on_whose_behalf_it_runs_and_under_which_key() -> None:
    seen: list[ToolContext] = []

    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        seen.append(context)
        return "done"

    async with running_engine(calls(use("pay", "a"), use("pay", "b")), tools=[writes("pay", run)]) as engine:
        heard = engine.watch()
        await engine.send("go")
        await heard.until(TurnFinished)
        first, second = sorted(seen, key=lambda context: context.call_id)
        assert (first.tenant, first.owner, first.conversation, first.principal) == ("acme", "ann", "c_1", "ann")
        assert (first.turn, place(first.call_id)) == (1, "a")
        assert [record.idempotency_key for record in heard.of(ToolStarted)] == [
            first.idempotency_key,
            second.idempotency_key,
        ]


def test_a_key_is_the_same_for_one_call_and_different_for_every_other() -> None:
    other = ConversationKey("acme", "ann", "c_2")
    turn = TurnState(number=1, messages=(MessageId("m_1"),), principal="ann")
    keys = [
        idempotency_key(KEY, turn, CallId("a"), born_us=1),
        idempotency_key(KEY, turn, CallId("b"), born_us=1),
        idempotency_key(KEY, msgspec.structs.replace(turn, number=2), CallId("a"), born_us=1),
        idempotency_key(other, turn, CallId("a"), born_us=1),
        idempotency_key(KEY, turn, CallId("a"), born_us=2),
        idempotency_key(KEY, msgspec.structs.replace(turn, messages=(MessageId("m_2"),)), CallId("a"), born_us=1),
    ]
    assert len(set(keys)) == len(keys)
    assert keys[0] == idempotency_key(KEY, turn, CallId("a"), born_us=1)
    assert all(len(key) == 32 for key in keys)


async def test_a_journal_begun_anew_gives_other_keys_though_every_name_in_it_is_the_same() -> None:
    keys: list[str] = []
    clock = ManualClock()
    for _ in range(2):
        clock.advance(1)
        async with running_engine(calls(use("pay", "a")), tools=[writes("pay")], clock=clock) as engine:
            heard = engine.watch()
            await engine.send("pay", message_id="m")
            await heard.until(TurnFinished)
            keys.extend(record.idempotency_key for record in heard.of(ToolStarted))
    assert len(set(keys)) == 2


async def test_a_read_that_will_not_stop_holds_up_nobody_once_its_turn_is_cancelled() -> None:
    gate = Gate()

    async def stubborn(arguments: dict[str, Any], context: ToolContext) -> str:
        with anyio.CancelScope(shield=True):
            await gate.passed()
        return "late"

    async with running_engine(calls(use("look", "a")), tools=[reads("look", stubborn)]) as engine:
        heard = engine.watch()
        await engine.send("one")
        await gate.reached.wait()
        await engine.cancel()
        assert [record.outcome for record in heard.of(ToolFinished)] == [Outcome.INTERRUPTED]
        await engine.send("two")
        await heard.until(TurnFinished)
        gate.opened.set()
        await engine.rested()


async def test_an_actor_comes_to_rest_though_a_read_stopped_while_a_write_had_its_grace() -> None:
    reading, paying, turn = Gate(), Gate(), TurnOptions(cancel_grace_s=DEADLINE_S)
    tools = [reads("look", stops_at(reading)), writes("pay", stops_at(paying))]
    async with running_engine(calls(use("look", "a"), use("pay", "b")), tools=tools, turn=turn) as engine:
        await engine.send("one")
        await reading.reached.wait()
        await paying.reached.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.cancel)
            with anyio.fail_after(DEADLINE_S):
                while not engine.ledger.of("cancelled"):
                    await anyio.lowlevel.checkpoint()
            paying.opened.set()
        await engine.rested()
        assert [record.outcome for record in await engine.records_of(ToolFinished)] == [
            Outcome.SUCCEEDED,
            Outcome.INTERRUPTED,
        ]
        await engine.hibernate()


async def cut_off(tool: FakeTool, gate: Gate, *more: FakeTool) -> tuple[MemoryData, Ledger]:
    """What a power cut leaves while ``tool`` runs and ``more`` have ended."""
    uses = [use(tool.spec.name, "a"), *(use(other.spec.name, f"call_{index}") for index, other in enumerate(more))]
    async with running_engine(calls(*uses), tools=[tool, *more]) as engine:
        heard = engine.watch()
        await engine.send("go")
        await gate.reached.wait()
        await heard.until(ToolStarted)
        if more:
            await heard.until(ToolFinished, count=len(more))
        image = engine.store.image()
        started = Ledger()
        started.entries = list(engine.ledger.entries)
    return image, started


async def recovered(
    data: MemoryData, *tools: FakeTool, ledger: Ledger
) -> tuple[dict[str, str], list[tuple[str, bool]]]:
    """How the interrupted calls end in the next life, and what the model reads of them."""
    async with running_engine(says("done"), tools=tools, data=data, ledger=ledger) as engine:
        await engine.rested()
        ended: dict[str, str] = {
            place(record.call_id): record.outcome.value for record in await engine.records_of(ToolFinished)
        }
        assert [record.attempt for record in await engine.records_of(AttemptStarted)] == [2]
        assert len(await engine.records_of(TurnFinished)) == 1
        return ended, results(engine)


async def test_a_read_that_was_cut_off_runs_again() -> None:
    gate = Gate()
    data, ledger = await cut_off(reads("find", stops_at(gate)), gate)
    ended, read = await recovered(data, reads("find"), ledger=ledger)
    assert (ended, read) == ({"a": "succeeded"}, [("find did {}", False)])
    assert ledger.of("started") == ["find", "find"]
    assert len({entry.key for entry in ledger.entries}) == 1


async def test_a_write_that_was_cut_off_is_unknown_and_not_run_again() -> None:
    gate = Gate()
    data, ledger = await cut_off(writes("pay", stops_at(gate)), gate)
    ended, read = await recovered(data, writes("pay"), ledger=ledger)
    assert ended == {"a": "unknown"}
    assert read[0][1]
    assert read[0][0].startswith(
        "Outcome unknown: pay was started and the process ended before its result was recorded."
    )
    assert ledger.of("started") == ["pay"]


async def test_a_result_that_was_durable_is_not_asked_for_again() -> None:
    gate = Gate()
    data, ledger = await cut_off(writes("pay", stops_at(gate)), gate, writes("post"))
    ended, _ = await recovered(data, writes("pay"), writes("post"), ledger=ledger)
    assert ended == {"a": "unknown", "b": "succeeded"}
    assert sorted(ledger.of("started")) == ["pay", "post"]


def knows(result: ToolResult | None) -> Probe:
    async def probe(context: ToolContext) -> ToolResult | None:
        return result

    return probe


PAID = ToolResult(outcome=Outcome.SUCCEEDED, text="paid 5")
NEVER = ToolResult(outcome=Outcome.NEVER_STARTED, text="")


@pytest.mark.parametrize(
    ("accepts_key", "probe", "ended", "text", "runs"),
    [
        (False, knows(PAID), "succeeded", "paid 5", 1),
        (True, knows(PAID), "succeeded", "paid 5", 1),
        (False, knows(NEVER), "succeeded", "pay did {}", 2),
        (True, knows(None), "succeeded", "pay did {}", 2),
        (True, None, "succeeded", "pay did {}", 2),
        (False, knows(None), "unknown", "Outcome unknown", 1),
    ],
    ids=["probed", "probed before a retry", "never started", "unknown but keyed", "keyed", "unknown"],
)
async def test_a_write_that_was_cut_off_is_asked_about_and_repeated_only_under_its_key(
    *, accepts_key: bool, probe: Probe | None, ended: str, text: str, runs: int
) -> None:
    gate = Gate()
    data, ledger = await cut_off(writes("pay", stops_at(gate), accepts_key=accepts_key, probe=probe), gate)
    tool = writes("pay", accepts_key=accepts_key, probe=probe)
    outcome, read = await recovered(data, tool, ledger=ledger)
    assert outcome == {"a": ended}
    assert read[0][0].startswith(text)
    assert len(ledger.of("started")) == runs
    assert len(ledger.of("probed")) == (probe is not None)
    assert len({entry.key for entry in ledger.entries}) == 1


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (raises(ToolFailed("no funds")), "trying again under the same key ended as failed (no funds)"),
        (raises(ToolRefused("closed")), "trying again under the same key ended as denied (closed)"),
    ],
)
async def test_a_retry_that_does_not_succeed_leaves_the_first_attempt_unknown(run: Run, told: str) -> None:
    gate = Gate()
    data, ledger = await cut_off(writes("pay", stops_at(gate), accepts_key=True), gate)
    ended, read = await recovered(data, writes("pay", run, accepts_key=True), ledger=ledger)
    assert ended == {"a": "unknown"}
    assert told in read[0][0]


async def test_a_write_whose_tool_vanished_is_unknown() -> None:
    gate = Gate()
    data, ledger = await cut_off(writes("pay", stops_at(gate)), gate)
    ended, read = await recovered(data, ledger=ledger)
    assert ended == {"a": "unknown"}
    assert read[0][0].startswith("Outcome unknown: pay was started and the tool is no longer there to ask.")


async def test_a_read_whose_tool_vanished_was_stopped_and_changed_nothing() -> None:
    gate = Gate()
    data, ledger = await cut_off(reads("find", stops_at(gate)), gate)
    ended, _ = await recovered(data, ledger=ledger)
    assert ended == {"a": "interrupted"}


async def test_a_write_that_is_cut_off_at_every_attempt_ends_the_turn_unknown() -> None:
    gate = Gate()
    data, ledger = await cut_off(writes("pay", stops_at(gate), accepts_key=True), gate)
    for _ in range(2):
        again = Gate()
        async with running_engine(
            tools=[writes("pay", stops_at(again), accepts_key=True)], data=data, ledger=ledger
        ) as engine:
            await again.reached.wait()
            data = engine.store.image()
    async with running_engine(tools=[writes("pay")], data=data, ledger=ledger) as engine:
        await engine.rested()
        assert [record.code for record in await engine.records_of(TurnFailed)] == ["crashed"]
        assert [record.outcome for record in await engine.records_of(ToolFinished)] == ["unknown"]
        assert ledger.of("started") == ["pay"] * 3


async def test_a_reply_that_was_durable_is_not_asked_for_again_when_its_tools_are_cut_off() -> None:
    gate = Gate()
    data, ledger = await cut_off(reads("find", stops_at(gate)), gate)
    async with running_engine(says("done"), tools=[reads("find")], data=data, ledger=ledger) as engine:
        await engine.rested()
        assert len(engine.model.requests) == 1
        assert [record.round for record in await engine.records_of(ModelRequested)] == [1, 2]
        assert [record.round for record in await engine.records_of(ModelReplied)] == [1, 2]


def call(call_id: str, status: CallStatus, effect: Effect = Effect.WRITE) -> CallState:
    return CallState(id=CallId(call_id), name="tool", arguments=msgspec.Raw(b"{}"), status=status, effect=effect)


def test_each_open_call_is_settled_as_it_stands() -> None:
    turn = TurnState(
        number=3,
        messages=(MessageId("m"),),
        principal="ann",
        calls=(
            call("a", CallStatus.INTENDED),
            call("b", CallStatus.STARTED, Effect.READ),
            call("c", CallStatus.STARTED),
            call("d", CallStatus.SETTLED),
            call("e", CallStatus.STARTED),
        ),
    )
    records = settled_as_they_stand(turn, why="it was late", but={CallId("e")})
    settled = [record for record in records if isinstance(record, ToolFinished)]
    assert [(record.turn, record.call_id, record.outcome) for record in settled] == [
        (3, "a", Outcome.NEVER_STARTED),
        (3, "b", Outcome.INTERRUPTED),
        (3, "c", Outcome.UNKNOWN),
    ]
    assert b"was started and it was late" in bytes(settled[2].block)
