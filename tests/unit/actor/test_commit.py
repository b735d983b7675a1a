"""The one write path: what a commit that fails, or whose answer is lost, does to what was folded ahead of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.doubles import CountingIds, Gate, ManualClock, calls, says, use, waits, writes
from tests.support.engine import DEADLINE_S, KEY, Recorder, receipt_of, running_engine
from tests.support.probed_store import ProbedStore, append_of
from torpor.actor.commit import Journal
from torpor.bus.local import LocalBus
from torpor.conversation.state import BadHistory, ConversationState
from torpor.conversation.steps import StepOptions
from torpor.errors import (
    DuplicateMessage,
    Fenced,
    InvariantBroken,
    Retry,
    StoreError,
    StoreFull,
    StoreUnavailable,
    Unavailable,
    WrongSequence,
)
from torpor.records.blocks import text_block
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import (
    FOLD_CUT,
    AttemptStarted,
    CompactionFailed,
    ConversationCreated,
    JournalRecord,
    MessageReceived,
    ModelReplied,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
)
from torpor.store.codec import MAX_BATCH_RECORDS
from torpor.store.contract import Job
from torpor.store.memory_data import MemoryData

CREATED = ConversationCreated(agent="clerk")
WRONG_SEQUENCE = WrongSequence(KEY.path, expected_seq=0, head_seq=2)


def job(name: str, *, due_us: int = 0) -> Job:
    return Job(id=name, kind="refresh", due_us=due_us)


def message(number: int) -> MessageReceived:
    return MessageReceived(message_id=MessageId(f"m_{number}"), principal="ann", blocks=(text_block(f"{number}"),))


class World:
    """A journal under a lease, with a recorder on its bus."""

    def __init__(self, journal: Journal, *, store: ProbedStore, heard: Recorder, rung: list[int]) -> None:
        self.journal = journal
        self.rung = rung
        """Where the journal stood each time that jobs were announced."""
        self.store = store
        self.heard = heard
        self.effects: list[str] = []

    def then(self, name: str) -> None:
        self.journal.after_commit(lambda: self.effects.append(name))

    @property
    def stored(self) -> int:
        return self.store.data.of(KEY).head.seq


@asynccontextmanager
async def world(key: ConversationKey = KEY) -> AsyncIterator[World]:
    """Args: key: whose journal it is, which is the conversation's or a sub-agent's."""
    async with ProbedStore(MemoryData()) as store:
        bus, clock = LocalBus(), ManualClock()
        heard = Recorder(store)
        bus.subscribe(KEY, heard)
        lease = await store.acquire(KEY, holder="s_1", ttl_s=30, now_us=clock.now_us())
        rung: list[int] = []
        journal = Journal(
            key,
            ConversationState(),
            lease=msgspec.structs.replace(lease, key=key),
            store=store,
            bus=bus,
            clock=clock,
            ids=CountingIds(),
            steps=StepOptions(),
            jobs_added=lambda: rung.append(store.data.of(KEY).head.seq),
        )
        yield World(journal, store=store, heard=heard, rung=rung)
        assert heard.early == []


async def test_what_is_added_is_folded_at_once_and_written_by_the_next_flush() -> None:
    async with world() as w:
        w.journal.add(CREATED, message(1))
        w.then("accepted")
        assert (w.journal.state.seq, w.stored, w.effects, w.journal.has_committed) == (2, 0, [], False)
        await w.journal.flush()
        assert (w.stored, w.effects, w.journal.has_committed) == (2, ["accepted"], True)
        assert len(w.store.appends) == 1


async def test_records_that_cannot_follow_are_refused_and_nothing_is_added() -> None:
    async with world() as w:
        w.journal.add(CREATED)
        with pytest.raises(BadHistory):
            w.journal.add(message(1), TurnPrepared(turn=5, messages=(MessageId("m_1"),)))
        assert w.journal.state.seq == 1
        await w.journal.flush()
        assert w.stored == 1


async def test_nothing_to_write_writes_nothing() -> None:
    async with world() as w:
        await w.journal.flush()
        await w.journal.submit()
        w.journal.add()
        assert w.store.appends == []


async def test_an_effect_of_what_is_durable_already_happens_at_once() -> None:
    async with world() as w:
        w.journal.add(CREATED)
        await w.journal.flush()
        w.then("at once")
        assert w.effects == ["at once"]


async def test_a_conversation_is_due_while_something_is_to_be_done_and_its_sub_agents_never_are() -> None:
    for key, due in ((KEY, True), (KEY.child("a"), False)):
        async with world(key) as w:
            w.journal.add(CREATED, message(1))
            await w.journal.flush()
            w.journal.add(TurnPrepared(turn=1, messages=(MessageId("m_1"),)))
            await w.journal.flush()
            assert [mark is not None for mark in w.store.due_marks] == [due, due]
            assert await w.store.due(now_us=2**60, limit=9) == ((key,) if due else ())


async def test_what_is_handed_over_is_published_when_it_lands_and_not_before() -> None:
    async with world() as w:
        w.store.hold()
        w.journal.add(CREATED, message(1))
        w.then("accepted")
        await w.journal.submit()
        assert (w.heard.records, w.effects) == ([], [])
        w.store.let_go()
        await w.journal.flush()
        assert [type(record) for record in w.heard.records] == [MessageReceived]
        assert w.effects == ["accepted"]


async def test_a_turn_that_failed_is_logged_once_it_is_durable_without_what_was_said() -> None:
    failed = TurnFailed(turn=1, code="model_unavailable", detail="said: hello", note=text_block("[failed]"))
    async with world() as w:
        w.journal.add(CREATED, message(1), TurnPrepared(turn=1, messages=(MessageId("m_1"),)))
        w.store.hold()
        with capture_logs() as logged:
            w.journal.add(failed)
            await w.journal.submit()
            assert logged == []
            w.store.let_go()
            await w.journal.flush()

    (line,) = [entry for entry in logged if entry["event"] == "turn.failed"]
    assert line == {
        "event": "turn.failed",
        "log_level": "warning",
        "conversation": KEY.path,
        "agent": "clerk",
        "turn": 1,
        "code": "model_unavailable",
    }


async def test_a_summary_that_failed_is_logged_with_how_long_nobody_is_asked_and_one_that_was_cut_is_not() -> None:
    failed = CompactionFailed(turn=1, code="deadline", detail="said: hello")
    async with world() as w:
        w.journal.add(CREATED, message(1), TurnPrepared(turn=1, messages=(MessageId("m_1"),)))
        with capture_logs() as logged:
            w.journal.add(failed, msgspec.structs.replace(failed, left_alone_until_us=2**60))
            w.journal.add(msgspec.structs.replace(failed, code=FOLD_CUT))
            await w.journal.flush()

    told = [entry for entry in logged if entry["event"] == "compaction.failed"]
    assert [(line["code"], line["left_alone_s"] > 0) for line in told] == [("deadline", False), ("deadline", True)]
    assert "said" not in str(told)


async def test_at_most_one_append_is_in_flight_and_later_records_share_the_next() -> None:
    async with world() as w:
        w.store.hold()
        w.journal.add(CREATED, message(1))
        await w.journal.submit()
        async with anyio.create_task_group() as tasks:
            for number in (2, 3, 4):
                w.journal.add(message(number))
                tasks.start_soon(w.journal.flush)
            await anyio.wait_all_tasks_blocked()
            assert len(w.store.appends) == 1
            w.store.let_go()
        assert [len(batch) for batch in w.store.appends] == [2, 3]
        assert [record.event for record in w.heard.records] == [1, 2, 3, 4]


async def test_effects_happen_in_order_each_after_its_own_commit() -> None:
    async with world() as w:
        w.journal.add(CREATED, message(1))
        w.then("first")
        await w.journal.submit()
        w.journal.add(message(2))
        w.then("second")
        w.then("third")
        await w.journal.flush()
        assert w.effects == ["first", "second", "third"]


async def test_jobs_go_with_the_record_added_last_and_are_announced_once_they_are_durable() -> None:
    async with world() as w:
        w.store.hold()
        w.journal.add(CREATED)
        w.journal.add_job(job("a"))
        await w.journal.submit()
        w.journal.add(message(1))
        w.journal.add_job(job("b", due_us=7))
        w.journal.add_job(job("b", due_us=8))
        assert (await w.store.jobs(KEY), w.rung) == ((), [])
        w.store.let_go()
        await w.journal.flush()
        assert w.rung == [1, 2]
        assert [(stored.id, stored.due_us) for stored in await w.store.jobs(KEY)] == [("a", 0), ("b", 8)]
        w.journal.add(message(2))
        await w.journal.flush()
        assert w.rung == [1, 2]


async def test_a_job_with_nothing_left_to_hand_over_goes_with_the_next_append() -> None:
    async with world() as w:
        w.journal.add(CREATED)
        await w.journal.flush()
        w.journal.add_job(job("a"))
        await w.journal.flush()
        assert await w.store.jobs(KEY) == ()
        w.journal.add(message(1))
        await w.journal.flush()
        assert [stored.id for stored in await w.store.jobs(KEY)] == ["a"]


async def test_a_job_of_a_record_that_waits_for_a_later_batch_goes_with_that_one() -> None:
    async with world() as w:
        w.journal.add(CREATED, *(message(number) for number in range(MAX_BATCH_RECORDS)))
        w.journal.add_job(job("a"))
        await w.journal.flush()
        assert [len(batch) for batch in w.store.appends] == [MAX_BATCH_RECORDS, 1]
        assert w.rung == [MAX_BATCH_RECORDS + 1]


async def test_the_jobs_of_a_batch_that_is_refused_are_not_announced() -> None:
    async with world() as w:
        w.store.core.fail(StoreFull("the disk is full"))
        w.journal.add(CREATED)
        w.journal.add_job(job("a"))
        with pytest.raises(StoreFull):
            await w.journal.flush()
        assert (await w.store.jobs(KEY), w.rung) == ((), [])


@pytest.mark.parametrize("name", ["", "a/b", "two words", "x" * 129])
async def test_a_job_that_operators_could_not_name_is_refused(name: str) -> None:
    async with world() as w:
        with pytest.raises(InvariantBroken, match="has no usable id"):
            w.journal.add_job(job(name))


async def test_a_conversation_is_due_until_it_rests() -> None:
    async with world() as w:
        w.journal.add(CREATED)
        await w.journal.flush()
        w.journal.add(message(1))
        await w.journal.flush()
        assert w.store.due_marks == [None, ManualClock().now_us()]


async def test_receipts_enter_the_index_with_their_records_and_are_forgotten_once_durable() -> None:
    async with world() as w:
        receipt = Receipt(message_id=MessageId("m_1"), event=1, at_us=7)
        w.journal.add(CREATED, message(1))
        w.journal.remember(receipt)
        assert w.journal.pending_receipt(MessageId("m_1")) == receipt
        await w.journal.flush()
        assert w.journal.pending_receipt(MessageId("m_1")) is None
        assert await w.store.receipt(KEY, MessageId("m_1")) == receipt


async def test_who_stops_waiting_for_a_flush_withdraws_nothing() -> None:
    async with world() as w:
        w.store.hold()
        w.journal.add(CREATED, message(1))
        w.then("accepted")
        with anyio.move_on_after(0):
            await w.journal.flush()
        w.store.let_go()
        await w.journal.flush()
        assert (w.stored, w.effects) == (2, ["accepted"])


@pytest.mark.parametrize("error", [StoreUnavailable("lost"), WRONG_SEQUENCE])
async def test_a_lost_answer_to_a_commit_that_happened_is_no_failure(error: StoreError) -> None:
    async with world() as w:
        w.store.core.fail(error, applied=True)
        w.journal.add(CREATED, message(1))
        w.then("accepted")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(w.journal.flush)
        assert (w.stored, w.effects, len(w.heard.records)) == (2, ["accepted"], 1)
        w.journal.add(message(2))
        await w.journal.flush()
        assert w.stored == 3


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("lost"),
        WRONG_SEQUENCE,
        StoreFull("disk full"),
        Fenced(KEY.path, fence=1, newer=2),
        DuplicateMessage(KEY.path, message_id="m_1", receipt=b"{}"),
    ],
)
async def test_a_commit_that_failed_breaks_the_journal_for_good(error: StoreError) -> None:
    async with world() as w:
        w.store.core.fail(error)
        w.journal.add(CREATED, message(1))
        w.then("accepted")
        for attempt in (w.journal.flush, w.journal.flush, w.journal.submit):
            with pytest.raises(type(error)):
                await attempt()
        w.journal.add(message(2))
        with pytest.raises(type(error)):
            await w.journal.flush()
        assert (w.stored, w.effects, w.heard.records) == (0, [], [])
        assert len(w.store.appends) == 1
        assert not w.journal.has_committed


async def test_everybody_who_waits_for_a_commit_learns_that_it_failed() -> None:
    async with world() as w:
        w.store.core.fail(StoreFull("disk full"))
        w.journal.add(CREATED, message(1))
        failures: list[StoreError] = []

        async def flush() -> None:
            try:
                await w.journal.flush()
            except StoreFull as exc:
                failures.append(exc)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(flush)
        assert len(failures) == 3


async def test_a_full_disk_is_answered_as_unavailable_and_the_next_append_is_clean() -> None:
    async with running_engine() as engine:
        heard = engine.watch()
        engine.store.core.fail(StoreFull("the disk is full"))
        with pytest.raises(Unavailable, match="storage is full") as caught:
            await engine.send("hi", message_id="m")
        assert caught.value.retry is Retry.SAFE
        assert heard.records == []
        await engine.send("hi", message_id="m")
        await engine.rested()
        assert [record.seq for record in await engine.records()] == list(range(1, 8))
        assert len(await engine.records_of(TurnFinished)) == 1


async def test_a_model_call_that_overlaps_with_a_commit_that_fails_is_stopped_and_its_reply_dropped() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("never"), said=("Half",)), says("whole")) as engine:
        heard = engine.watch()
        engine.store.hold()
        engine.store.core.fail(StoreFull("the disk is full"))
        reply = engine.post("hi", message_id="m")
        await gate.reached.wait()
        engine.store.let_go()
        with pytest.raises(Unavailable):
            await receipt_of(reply)
        assert heard.deltas == []
        await engine.send("hi", message_id="m")
        await heard.until(TurnFinished)
        assert heard.said() == {"1-1-1": "whole"}


@pytest.mark.parametrize("kind", [MessageReceived, ModelReplied, ToolFinished, TurnFinished])
async def test_a_lost_answer_is_settled_by_the_batch_id_and_nothing_is_done_twice(kind: type[JournalRecord]) -> None:
    async with running_engine(calls(use("pay", "a")), says("done"), tools=[writes("pay")]) as engine:
        engine.store.core.fail(StoreUnavailable("lost"), applied=True, hits=append_of(kind))
        heard = engine.watch()
        await engine.send("hi", message_id="m")
        await heard.until(TurnFinished)
        assert engine.store.loads == 1
        assert await engine.records_of(AttemptStarted) == []
        assert engine.ledger.of("started") == ["pay"]
        assert len(engine.model.requests) == 2


@pytest.mark.parametrize("kind", [ModelReplied, ToolFinished, TurnFinished])
async def test_a_commit_that_did_not_happen_is_done_again_after_a_reload(kind: type[JournalRecord]) -> None:
    plays = [calls(use("look", "a")), says("done"), says("done")]
    async with running_engine(*plays) as engine:
        engine.store.core.fail(StoreUnavailable("lost"), hits=append_of(kind))
        heard = engine.watch()
        await engine.send("hi")
        await heard.until(TurnFinished)
        assert engine.store.loads == 2
        assert len(await engine.records_of(TurnFinished)) == 1
        assert [record.event for record in heard.records] == list(range(1, len(heard.records) + 1))


async def test_a_message_that_was_not_recorded_is_answered_unavailable_and_accepted_when_sent_again() -> None:
    async with running_engine() as engine:
        engine.store.core.fail(StoreUnavailable("lost"))
        with pytest.raises(Unavailable, match="storage does not answer"):
            await engine.send("hi", message_id="m")
        receipt = await engine.send("hi", message_id="m")
        await engine.rested()
        assert receipt.event == 1
        assert len(await engine.records_of(MessageReceived)) == 1


async def test_a_write_whose_start_is_not_durable_does_not_begin() -> None:
    async with running_engine(calls(use("pay", "a")), calls(use("pay", "a")), tools=[writes("pay")]) as engine:
        engine.store.core.fail(StoreFull("the disk is full"), hits=append_of(ToolStarted))
        heard = engine.watch()
        await engine.send("pay")
        await heard.until(TurnFinished)
        assert engine.ledger.of("started") == ["pay"]
        assert len(heard.of(ToolStarted)) == 1


async def test_a_message_taken_during_a_commit_whose_answer_is_lost_is_accepted_once() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one"))) as engine:
        await engine.send("first")
        await gate.reached.wait()
        engine.store.hold()
        gate.opened.set()
        await engine.store.holds_one()
        reply = engine.post("second")
        await anyio.wait_all_tasks_blocked()
        engine.store.core.fail(StoreUnavailable("lost"), applied=True)
        engine.store.let_go()
        with anyio.fail_after(DEADLINE_S):
            await reply.wait()
        await engine.rested()
        assert engine.store.loads == 1
        assert len(await engine.records_of(TurnFinished)) == 2
