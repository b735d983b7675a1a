"""Who lives, who is started again, and what one conversation's failure does to nobody else."""

import anyio
import anyio.lowlevel
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.doubles import Crash, Gate, calls, fails, says, stops_at, use, waits, writes
from tests.support.engine import DEADLINE_S, KEY, QUICK, Engine, receipt_of, running_engine
from torpor.errors import (
    Fenced,
    InvariantBroken,
    JournalCorrupt,
    NothingToCancel,
    Quarantined,
    Retry,
    StoreFull,
    StoreUnavailable,
    Unavailable,
)
from torpor.records.ids import ConversationKey
from torpor.records.journal import MessageReceived, TurnFailed, TurnFinished
from torpor.store.codec import StoredBatch
from torpor.store.contract import Loaded
from torpor.store.in_memory import InMemoryStore
from torpor.store.requests import Quarantine
from torpor.supervisor.contract import LiveStatus
from torpor.supervisor.crashes import root_cause

OTHER = ConversationKey("acme", "ann", "c_2")
ONE_RESTART = msgspec.structs.replace(QUICK, restarts_max=1)


async def forgotten(engine: Engine, key: ConversationKey = KEY) -> None:
    """Wait until nothing of the conversation lives."""
    with anyio.fail_after(DEADLINE_S):
        while engine.supervisor.live_status(key) is not None:
            await anyio.lowlevel.checkpoint()


def tampered(engine: Engine, records: bytes, *, key: ConversationKey = KEY) -> None:
    """Replace what the first batch of the journal holds."""
    batch = engine.store.data.of(key).batches[0]
    engine.store.data.replace_batch(key, 0, StoredBatch(batch.first_seq, batch.last_seq, batch.last_event, records))


async def test_concurrent_thaws_of_one_conversation_are_one_load() -> None:
    async with running_engine() as engine:
        await engine.ask("hi")
        await engine.hibernate()
        engine.store.loads = 0
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(engine.wake)
        assert engine.store.loads == 1


async def test_a_thaw_writes_nothing() -> None:
    async with running_engine() as engine:
        await engine.ask("hi")
        await engine.hibernate()
        before = len(engine.store.appends)
        await engine.wake()
        assert len(engine.store.appends) == before


async def test_what_is_due_is_claimed_at_start_without_a_client() -> None:
    gates = {key: Gate() for key in (KEY, OTHER)}
    async with running_engine(*(waits(gate, says("never")) for gate in gates.values())) as engine:
        for key, gate in gates.items():
            await engine.send("hi", key=key)
            await gate.reached.wait()
        await engine.ask("at rest", key=ConversationKey("acme", "ann", "c_3"))
        image = engine.store.image()
    async with running_engine(data=image) as engine:
        for key in gates:
            await engine.rested(key)
            assert len(await engine.records_of(TurnFinished, key=key)) == 1
        assert engine.supervisor.live_status(ConversationKey("acme", "ann", "c_3")) is None


async def test_what_is_due_is_claimed_a_few_at_a_time() -> None:
    keys = [ConversationKey("acme", "ann", f"c_{number}") for number in range(5)]
    gates = [Gate() for _ in keys]
    async with running_engine(*(waits(gate, says("never")) for gate in gates)) as engine:
        for key, gate in zip(keys, gates, strict=True):
            await engine.send("hi", key=key)
            await gate.reached.wait()
        image = engine.store.image()
    slow = msgspec.structs.replace(QUICK, due_batch=2, sweep_s=3600.0)
    gates = [Gate() for _ in keys]
    async with running_engine(*(waits(gate, says("never")) for gate in gates), data=image, options=slow) as engine:
        await anyio.wait_all_tasks_blocked()
        assert len([key for key in keys if engine.supervisor.live_status(key)]) == 2


@pytest.mark.parametrize("few", [{"due_batch": 1}, {"live_max": 1}], ids=str)
async def test_what_is_due_is_claimed_to_the_last_one_though_the_clock_was_set_back(few: dict[str, int]) -> None:
    keys = [ConversationKey("acme", "ann", f"c_{number}") for number in range(4)]
    gates = [Gate() for _ in keys]
    async with running_engine(*(waits(gate, says("never")) for gate in gates)) as engine:
        for key, gate in zip(keys, gates, strict=True):
            await engine.send("hi", key=key)
            await gate.reached.wait()
        image = engine.store.image()
    for held in image.conversations.values():
        assert held.due_us is not None
        held.due_us += 5 * 3_600_000_000
    options = msgspec.structs.replace(QUICK, **few)
    async with running_engine(data=image, options=options) as engine:
        with anyio.fail_after(DEADLINE_S):
            while any(held.due_us is not None for held in image.conversations.values()):
                await anyio.lowlevel.checkpoint()
        for key in keys:
            assert len(await engine.records_of(TurnFinished, key=key)) == 1


async def test_a_crash_never_touches_a_sibling() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("calm")), *[fails(Crash("bug"))] * 3) as engine:
        calm, wild = engine.watch(KEY), engine.watch(OTHER)
        await engine.send("slowly")
        await gate.reached.wait()
        await engine.insist("boom", key=OTHER)
        await wild.until(TurnFailed)
        gate.opened.set()
        await calm.until(TurnFinished)
        assert len(engine.store.data.of(KEY).batches) == 2
        assert calm.of(TurnFailed) == []


async def test_commands_without_an_answer_fail_as_unavailable_when_their_actor_crashes() -> None:
    async with running_engine(fails(Crash("bug"))) as engine:
        engine.store.hold()
        reply = engine.post("boom", message_id="m")
        await engine.store.holds_one()
        with anyio.fail_after(DEADLINE_S), pytest.raises(Unavailable) as caught:
            await reply.wait()
        assert (caught.value.retry, caught.value.retry_after_s) == (Retry.SAFE, 1.0)
        engine.store.let_go()
        await engine.rested()
        await engine.send("boom", message_id="m")
        assert len(await engine.records_of(MessageReceived)) == 1


async def test_commands_that_arrive_while_an_actor_is_started_again_wait_for_it() -> None:
    pause = msgspec.structs.replace(QUICK, restart_backoff_s=0.05)
    gate = Gate()
    async with running_engine(waits(gate, fails(Crash("bug"))), options=pause) as engine:
        heard = engine.watch()
        await engine.send("boom")
        gate.opened.set()
        with anyio.fail_after(DEADLINE_S):
            while (live := engine.supervisor.live_status(KEY)) is None or live.state != "thawing":
                await anyio.lowlevel.checkpoint()
        assert (await engine.send("and more")).position == 1
        await heard.until(TurnFinished, count=2)


async def test_a_conversation_that_never_gets_anywhere_is_quarantined(monkeypatch: pytest.MonkeyPatch) -> None:
    async def load(key: ConversationKey, *, use_snapshot: bool = True) -> Loaded:
        raise Crash("bug")

    async with running_engine(options=ONE_RESTART) as engine:
        await engine.ask("hi")
        await engine.hibernate()
        monkeypatch.setattr(engine.store, "load", load)
        with pytest.raises(Unavailable):
            await engine.send("again")
        await forgotten(engine)
        row = await engine.store.describe(KEY)
        assert row is not None
        assert row.quarantine == "2 crashes in a row, the last one Crash('bug')"
        with pytest.raises(Quarantined, match="2 crashes in a row"):
            await engine.send("and again")


async def test_a_full_disk_is_told_without_its_place_nor_a_traceback_and_is_over_once_there_is_room() -> None:
    async with running_engine(says("hello"), says("again"), options=ONE_RESTART) as engine:
        await engine.ask("hi")
        engine.store.core.fail(StoreFull("no space left for /data/torpor.db, nothing was written"), times=4)
        with capture_logs() as logs:
            for _ in range(4):
                with pytest.raises(Unavailable, match="the server's storage is full, retry in") as caught:
                    await engine.send("more")
                assert caught.value.retry_after_s is not None
        await engine.ask("and more")
        await engine.rested()

    crashes = [line for line in logs if line["event"] == "actor.crashed"]
    assert [line["exc_info"] for line in crashes] == [None] * 4
    assert all("/data/torpor.db" in line["why"] for line in crashes)


async def test_a_store_that_fails_again_and_again_quarantines_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def load(key: ConversationKey, *, use_snapshot: bool = True) -> Loaded:
        raise StoreUnavailable("no disk")

    async with running_engine(options=ONE_RESTART) as engine:
        await engine.ask("hi")
        await engine.hibernate()
        with monkeypatch.context() as patch:
            patch.setattr(engine.store, "load", load)
            for _ in range(4):
                with pytest.raises(Unavailable):
                    await engine.send("again")
        with anyio.fail_after(DEADLINE_S):
            while True:
                try:
                    await engine.send("again")
                    break
                except Unavailable:
                    await anyio.lowlevel.checkpoint()
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == 2


@pytest.mark.parametrize(
    ("records", "reason"),
    [(b"[]", "record"), (b"not json", "cannot be decoded"), (b'[{"kind":"unknown"}]', "cannot be decoded")],
)
async def test_a_journal_that_cannot_be_read_quarantines_and_is_left_as_it_is(records: bytes, reason: str) -> None:
    async with running_engine() as engine:
        await engine.ask("hi")
        await engine.hibernate()
        tampered(engine, records)
        before = engine.store.data.of(KEY).head
        with pytest.raises(Quarantined, match=reason):
            await engine.send("again")
        await forgotten(engine)
        row = await engine.store.describe(KEY)
        assert row is not None
        assert reason in row.quarantine
        assert engine.store.data.of(KEY).head == before
        with pytest.raises(Quarantined, match=reason):
            await engine.wake()


async def test_a_journal_that_can_be_read_but_not_continued_quarantines() -> None:
    async with running_engine() as engine:
        await engine.ask("hi")
        await engine.hibernate()
        batch = engine.store.data.of(KEY).batches[0]
        tampered(engine, batch.records.replace(b'"link":"', b'"link":"00'))
        with pytest.raises(Quarantined, match="requested link 00"):
            await engine.send("again")


async def test_a_quarantined_conversation_is_not_claimed_and_its_siblings_are() -> None:
    gates = {key: Gate() for key in (KEY, OTHER)}
    async with running_engine(*(waits(gate, says("never")) for gate in gates.values())) as engine:
        for key, gate in gates.items():
            await engine.send("hi", key=key)
            await gate.reached.wait()
        image = engine.store.image()
    async with running_engine(data=image) as engine:
        tampered(engine, b"not json")
        await engine.rested(OTHER)
        await forgotten(engine)
        loads = engine.store.loads
        await engine.ask("more", key=OTHER)
        assert engine.store.loads == loads
        assert len(await engine.records_of(TurnFinished, key=OTHER)) == 2


async def test_an_operator_releases_a_quarantined_conversation() -> None:
    async with running_engine() as engine:
        await engine.ask("hi")
        await engine.hibernate()
        await engine.store.quarantine(KEY, reason="looked odd")
        with pytest.raises(Quarantined, match="looked odd"):
            await engine.send("again")
        await forgotten(engine)
        await engine.store.quarantine(KEY, reason="")
        await engine.ask("again")
        assert len(await engine.records_of(TurnFinished)) == 2


async def test_the_status_of_a_conversation_says_what_its_actor_does() -> None:
    tool, model = Gate(), Gate()
    plays = [calls(use("pay", "a")), waits(model, says("done"))]
    async with running_engine(*plays, tools=[writes("pay", stops_at(tool))]) as engine:
        assert engine.supervisor.live_status(KEY) is None
        reply = engine.post("hi")
        assert engine.supervisor.live_status(KEY) == LiveStatus(state="thawing")
        await receipt_of(reply)
        await tool.reached.wait()
        await engine.send("more")
        assert engine.supervisor.live_status(KEY) == LiveStatus(state="running", turn=1, waiting=1)
        tool.opened.set()
        model.opened.set()
        await engine.rested()
        assert engine.supervisor.live_status(KEY) == LiveStatus(state="idle")


async def test_the_list_shows_the_stores_rows_and_what_lives() -> None:
    async with running_engine() as engine:
        await engine.ask("hi")
        await engine.ask("hi", key=OTHER)
        await engine.hibernate(OTHER)
        rows = await engine.supervisor.list_conversations(tenant="acme", owner="ann", limit=10)
        assert [(listing.row.key, listing.live) for listing in rows] == [(KEY, LiveStatus(state="idle")), (OTHER, None)]
        assert await engine.supervisor.list_conversations(tenant="other", owner=None, limit=10) == ()
        (second,) = await engine.supervisor.list_conversations(tenant=None, owner=None, limit=10, after=KEY)
        assert second.row.key == OTHER
        assert repr(engine.supervisor) == "<Supervisor s_1 live=1 stopping=False>"


async def test_who_stops_waiting_for_an_answer_withdraws_nothing() -> None:
    async with running_engine() as engine:
        heard = engine.watch()
        with anyio.move_on_after(0):
            await engine.send("hi")
        await heard.until(TurnFinished)


async def test_a_cancel_of_a_conversation_that_sleeps_finds_nothing_to_cancel() -> None:
    async with running_engine() as engine:
        await engine.ask("hi")
        await engine.hibernate()
        with pytest.raises(NothingToCancel):
            await engine.cancel()


async def test_a_conversation_that_nobody_wrote_to_leaves_no_trace() -> None:
    async with running_engine() as engine:
        await engine.wake()
        with pytest.raises(NothingToCancel):
            await engine.cancel()
        await engine.hibernate()
        assert await engine.records() == ()
        assert await engine.store.describe(KEY) is None


@pytest.mark.parametrize("error", [StoreUnavailable("no disk"), Crash("bug")])
async def test_a_look_around_that_fails_is_not_the_last_and_ends_nobody(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("never"))) as engine:
        await engine.send("hi")
        await gate.reached.wait()
        image = engine.store.image()
    looks: list[int] = []
    original = InMemoryStore.due

    async def due(store: InMemoryStore, *, now_us: int, limit: int) -> tuple[ConversationKey, ...]:
        looks.append(limit)
        if len(looks) == 1:
            raise error
        return await original(store, now_us=now_us, limit=limit)

    monkeypatch.setattr(InMemoryStore, "due", due)
    async with running_engine(data=image) as engine:
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == 1
        assert len(looks) > 1


async def test_a_quarantine_that_cannot_be_written_is_answered_all_the_same() -> None:
    async with running_engine() as engine:
        await engine.ask("hi")
        await engine.hibernate()
        tampered(engine, b"not json")
        engine.store.core.fail(StoreUnavailable("no disk"), hits=lambda request: isinstance(request, Quarantine))
        with pytest.raises(Quarantined, match="cannot be decoded"):
            await engine.send("again")
        await engine.ask("elsewhere", key=OTHER)


def test_of_errors_that_ended_an_actor_together_the_one_that_decides_is_found() -> None:
    fenced = Fenced("k", fence=1, newer=2)
    corrupt, lost, bug = JournalCorrupt("k", reason="r"), StoreUnavailable("lost"), InvariantBroken("bug")
    assert root_cause(bug) is bug
    assert root_cause(ExceptionGroup("", [bug])) is bug
    assert root_cause(ExceptionGroup("", [bug, ExceptionGroup("", [lost])])) is lost
    assert root_cause(ExceptionGroup("", [lost, corrupt])) is corrupt
    assert root_cause(ExceptionGroup("", [lost, ExceptionGroup("", [corrupt, fenced])])) is fenced
