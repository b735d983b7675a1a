"""A conversation that is set aside, by an operator or of itself, and how it goes on after its release."""

import anyio
import anyio.lowlevel
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.doubles import Crash, Gate, ManualClock, calls, fails, says, use, waits, writes
from tests.support.engine import DEADLINE_S, KEY, QUICK, Engine, receipt_of, running_engine
from torpor.errors import Quarantined, StoreUnavailable, Unavailable
from torpor.records.ids import ConversationKey
from torpor.records.journal import ToolFinished, TurnFinished
from torpor.records.terms import Outcome
from torpor.store.contract import DirectoryRow, Loaded, QuarantineKind
from torpor.store.requests import Quarantine

OTHER = ConversationKey("acme", "ann", "c_2")
STILL = msgspec.structs.replace(QUICK, sweep_s=3_600.0)
"""Nothing happens by itself but at the start."""


async def quarantine(engine: Engine, *, key: ConversationKey = KEY, reason: str = "looks odd") -> None:
    with anyio.fail_after(DEADLINE_S):
        await engine.supervisor.quarantine(key, reason=reason)


async def release(engine: Engine, *, key: ConversationKey = KEY) -> None:
    with anyio.fail_after(DEADLINE_S):
        await engine.supervisor.release(key)


async def crash_on(engine: Engine) -> None:
    """Say something again and again, each time until it has come to nothing or the conversation is set aside."""
    for _ in range(10):
        await engine.insist("boom")
        with anyio.fail_after(DEADLINE_S):
            while (row := await row_of(engine)).due_us is not None and not row.quarantine:
                await anyio.lowlevel.checkpoint()


async def row_of(engine: Engine, key: ConversationKey = KEY) -> DirectoryRow:
    row = await engine.store.describe(key)
    assert row is not None
    return row


async def test_only_what_changes_something_is_counted() -> None:
    async with running_engine(says("yes")) as engine:
        await engine.ask("hello")
        await release(engine)
        for _ in range(2):
            await quarantine(engine)
        for _ in range(2):
            await release(engine)
        statistics = engine.supervisor.statistics()
        assert (statistics.quarantines, statistics.releases) == (1, 1)


async def test_the_release_of_what_is_not_quarantined_is_nothing() -> None:
    async with running_engine(says("yes")) as engine:
        await engine.ask("hello")
        heard = engine.watch()
        with capture_logs() as logs:
            await release(engine)
            await release(engine, key=OTHER)
        assert heard.standings == 0
        assert [line for line in logs if line["event"] == "conversation.released"] == []


@pytest.mark.parametrize(("kind", "level"), [*zip(QuarantineKind, ("error", "error", "info"), strict=True)])
async def test_what_an_operator_sets_aside_is_no_error(kind: QuarantineKind, level: str) -> None:
    async with running_engine(says("yes")) as engine:
        await engine.ask("hello")
        with capture_logs() as logs, anyio.fail_after(DEADLINE_S):
            await engine.supervisor.quarantine(KEY, reason="looks odd", kind=kind)
    assert [line["log_level"] for line in logs if line["event"] == "conversation.quarantined"] == [level]


async def test_a_running_turn_is_cut_off_with_its_journal_untouched_and_goes_on_after_the_release() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("never")), says("at last"), options=STILL) as engine:
        heard = engine.watch()
        await engine.send("hi")
        await gate.reached.wait()
        before = await engine.records()
        await quarantine(engine)
        assert engine.supervisor.live_status(KEY) is None
        assert await engine.records() == before
        assert heard.standings == 1
        await release(engine)
        await heard.until(TurnFinished)
        assert heard.standings == 2
        assert (await engine.records())[: len(before)] == before


async def test_a_write_that_was_cut_off_is_told_as_unknown_after_the_release_and_not_repeated() -> None:
    gate, paid = Gate(), list[object]()

    async def pays(arguments: object, context: object) -> str:
        paid.append(arguments)
        await gate.passed()
        return "paid"

    async with running_engine(calls(use("pay", "a")), says("hm"), tools=[writes("pay", pays)], options=STILL) as engine:
        heard = engine.watch()
        await engine.send("pay")
        await gate.reached.wait()
        await quarantine(engine)
        await release(engine)
        await heard.until(TurnFinished)
        (result,) = await engine.records_of(ToolFinished)
        assert (len(paid), result.outcome) == (1, Outcome.UNKNOWN)


async def test_the_mark_keeps_who_found_it_why_when_and_the_last_record() -> None:
    clock = ManualClock()
    async with running_engine(options=STILL, clock=clock) as engine:
        await engine.ask("hi")
        clock.advance(60.0)
        await quarantine(engine, reason="a customer asked")
        row = await row_of(engine)
        assert (row.quarantine_kind, row.quarantine) == ("operator", "a customer asked")
        assert (row.quarantined_us, row.quarantine_seq) == (clock.now_us(), row.head.seq)
        await release(engine)
        row = await row_of(engine)
        assert (row.quarantine_kind, row.quarantine, row.quarantined_us, row.quarantine_seq) == ("", "", 0, 0)


@pytest.mark.parametrize("is_awake", [True, False])
async def test_what_is_sent_meanwhile_is_refused_with_the_reason_and_accepted_after_the_release(
    is_awake: bool,
) -> None:
    async with running_engine(options=STILL) as engine:
        await engine.ask("hi")
        if not is_awake:
            await engine.hibernate()
        await quarantine(engine)
        for _ in range(2):
            with pytest.raises(Quarantined, match="looks odd"):
                await engine.send("again", message_id="m")
        await release(engine)
        await engine.send("again", message_id="m")
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == 2


async def test_commands_without_an_answer_and_those_that_come_while_it_ends_hear_the_reason() -> None:
    async with running_engine(options=STILL) as engine:
        await engine.ask("hi")
        engine.store.hold()
        waiting = engine.post("before")
        await engine.store.holds_one()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: quarantine(engine))
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            with pytest.raises(Quarantined, match="looks odd"):
                engine.post("while it ends")
            with anyio.fail_after(DEADLINE_S), pytest.raises(Quarantined, match="looks odd"):
                await waiting.wait()
            engine.store.let_go()


async def test_one_that_waits_to_be_started_again_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[ConversationKey] = []

    async def load(key: ConversationKey, *, use_snapshot: bool = True) -> Loaded:
        loads.append(key)
        raise Crash("bug")

    slow = msgspec.structs.replace(STILL, restart_backoff_s=3_600.0, restart_backoff_max_s=3_600.0)
    async with running_engine(options=slow) as engine:
        await engine.ask("hi")
        await engine.hibernate()
        with monkeypatch.context() as patch:
            patch.setattr(engine.store, "load", load)
            with pytest.raises(Unavailable):
                await engine.send("again")
            reply = engine.post("and again")
            await quarantine(engine)
            with pytest.raises(Quarantined):
                await receipt_of(reply)
        assert loads == [KEY]
        assert engine.supervisor.live_status(KEY) is None


async def test_a_sibling_notices_nothing() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("done")), options=STILL) as engine:
        heard = engine.watch(OTHER)
        await engine.send("slowly", key=OTHER)
        await gate.reached.wait()
        await engine.ask("hi")
        await quarantine(engine)
        gate.opened.set()
        await heard.until(TurnFinished)
        assert heard.standings == 0


async def test_what_is_due_is_not_claimed_until_the_release() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("never")), says("done")) as engine:
        await engine.send("hi")
        await gate.reached.wait()
        await quarantine(engine)
        for _ in range(5):
            await anyio.sleep(QUICK.sweep_s)
            assert engine.supervisor.live_status(KEY) is None
        await release(engine)
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == 1


async def test_several_operators_at_once_are_all_answered() -> None:
    async with running_engine(options=STILL) as engine:
        await engine.ask("hi")
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(lambda: quarantine(engine))
        assert (await row_of(engine)).quarantine == "looks odd"
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(lambda: release(engine))
        await engine.ask("again")


async def test_a_mark_that_cannot_be_written_leaves_the_conversation_as_it_was() -> None:
    async with running_engine(options=STILL) as engine:
        await engine.ask("hi")
        engine.store.core.fail(StoreUnavailable("no disk"), hits=lambda request: isinstance(request, Quarantine))
        with pytest.raises(StoreUnavailable):
            await quarantine(engine)
        await engine.ask("again")
        assert len(await engine.records_of(TurnFinished)) == 2


async def test_one_that_another_server_holds_is_not_quarantined_here() -> None:
    async with running_engine(options=STILL) as engine:
        await engine.ask("hi")
        async with running_engine(data=engine.store.data, holder="s_2", options=STILL) as elsewhere:
            with pytest.raises(Unavailable, match="another server holds"):
                await quarantine(elsewhere)
        assert (await row_of(engine)).quarantine == ""


async def test_an_actor_that_does_not_end_in_time_is_told_and_ends_all_the_same() -> None:
    gate = Gate()

    async def stubborn(arguments: object, context: object) -> str:
        with anyio.CancelScope(shield=True):
            await gate.passed()
        return "late"

    hasty = msgspec.structs.replace(STILL, cut_deadline_s=0.01)
    async with running_engine(calls(use("pay", "a")), tools=[writes("pay", stubborn)], options=hasty) as engine:
        await engine.send("pay")
        await gate.reached.wait()
        with pytest.raises(Unavailable, match=r"did not end within 0\.01 s"):
            await quarantine(engine)
        gate.opened.set()
        with anyio.fail_after(DEADLINE_S):
            while engine.supervisor.live_status(KEY) is not None:
                await anyio.lowlevel.checkpoint()
        await quarantine(engine)
        assert (await row_of(engine)).quarantine == "looks odd"


async def test_one_that_crashes_again_and_again_is_quarantined_although_it_gets_somewhere() -> None:
    often = msgspec.structs.replace(QUICK, crashes_max=4)
    async with running_engine(*[fails(Crash("bug"))] * 20, options=often, clock=ManualClock()) as engine:
        heard = engine.watch()
        with pytest.raises(Quarantined, match="4 crashes within 300 s"):
            await crash_on(engine)
        row = await row_of(engine)
        assert (row.quarantine_kind, row.quarantine_seq) == ("crashes", row.head.seq)
        assert row.quarantine == "4 crashes within 300 s, the last one Crash('bug')"
        assert heard.standings == 1
        statistics = engine.supervisor.statistics()
        assert (statistics.crashes, statistics.restarts, statistics.quarantines) == (4, 3, 1)


async def test_after_a_release_crashes_are_counted_anew() -> None:
    often = msgspec.structs.replace(QUICK, crashes_max=4)
    plays = [*[fails(Crash("bug"))] * 6, says("well")]
    async with running_engine(*plays, options=often, clock=ManualClock()) as engine:
        with pytest.raises(Quarantined):
            await crash_on(engine)
        await release(engine)
        await engine.rested()
        await engine.insist("and now")
        await engine.rested()
        assert (await row_of(engine)).quarantine == ""
        assert engine.supervisor.statistics().releases == 1


async def test_a_release_of_what_is_not_quarantined_changes_nothing() -> None:
    async with running_engine(options=STILL) as engine:
        await engine.ask("hi")
        before = await engine.records()
        await release(engine)
        await engine.hibernate()
        assert await engine.records() == before
