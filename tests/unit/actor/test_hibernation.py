"""Leaving without losing anything: the mailbox, the lease, the snapshot, and what arrives in between."""

import anyio
import pytest

from tests.support.doubles import Gate, says, waits
from tests.support.engine import DEADLINE_S, KEY, Engine, receipt_of, running_engine
from tests.support.probed_store import any_snapshot
from torpor.actor.options import ActorOptions
from torpor.conversation.snapshot import SNAPSHOT_VERSION, decode_snapshot
from torpor.errors import Quarantined, StoreFull, StoreUnavailable, Unavailable
from torpor.records.commands import Hibernate
from torpor.records.ids import ConversationKey
from torpor.records.journal import MessageReceived, TurnFinished
from torpor.store.contract import Head, Lease, Snapshot
from torpor.supervisor.contract import LiveStatus

ALWAYS = ActorOptions(snapshot_min_bytes=1, snapshot_share=0.0)
"""A snapshot after every turn."""
NEVER = ActorOptions(snapshot_min_bytes=1_000_000_000)


def gate_on_release(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> Gate:
    """Stop the actor between closing its mailbox and giving its lease back."""
    gate, original = Gate(), engine.store.release

    async def release(lease: Lease) -> None:
        await gate.passed()
        await original(lease)

    monkeypatch.setattr(engine.store, "release", release)
    return gate


def gate_on_snapshot(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> Gate:
    """Stop the actor while it writes its snapshot, before it has closed its mailbox."""
    gate, original = Gate(), engine.store.put_snapshot

    async def put_snapshot(key: ConversationKey, *, fence: int, snapshot: Snapshot) -> None:
        await gate.passed()
        await original(key, fence=fence, snapshot=snapshot)

    monkeypatch.setattr(engine.store, "put_snapshot", put_snapshot)
    return gate


async def test_an_actor_at_rest_leaves_and_gives_its_lease_back() -> None:
    async with running_engine() as engine:
        await engine.ask("hi")
        assert await engine.hibernate() is True
        assert engine.supervisor.live_status(KEY) is None
        assert engine.store.data.of(KEY).holder == ""


async def test_everybody_who_asked_for_it_is_answered() -> None:
    async with running_engine() as engine:
        await engine.ask("hi")
        replies = [engine.supervisor.post(KEY, Hibernate()) for _ in range(3)]
        with anyio.fail_after(DEADLINE_S):
            assert [await reply.wait() for reply in replies] == [True, True, True]


async def test_a_message_that_arrives_while_the_actor_leaves_waits_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_engine() as engine:
        heard = engine.watch()
        await engine.ask("hi")
        gate = gate_on_release(monkeypatch, engine)
        leaving = engine.supervisor.post(KEY, Hibernate())
        await gate.reached.wait()
        assert engine.supervisor.live_status(KEY) == LiveStatus(state="hibernating")
        reply = engine.post("are you there?")
        await anyio.wait_all_tasks_blocked()
        assert not reply.is_done
        gate.opened.set()
        await receipt_of(reply)
        assert await leaving.wait() is True
        await heard.until(TurnFinished, count=2)
        assert engine.store.loads == 2


async def test_messages_beyond_a_mailbox_that_arrive_while_the_actor_leaves_are_answered_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_engine(actor=ActorOptions(mailbox_capacity=2)) as engine:
        await engine.ask("hi")
        gate = gate_on_release(monkeypatch, engine)
        engine.supervisor.post(KEY, Hibernate())
        await gate.reached.wait()
        replies = [engine.post("one"), engine.post("two")]
        with pytest.raises(Unavailable, match="between two incarnations"):
            engine.post("three")
        gate.opened.set()
        for reply in replies:
            await receipt_of(reply)
        await engine.rested()
        assert len(await engine.records_of(MessageReceived)) == 3


async def test_a_message_that_arrives_before_the_mailbox_is_closed_keeps_the_actor_until_it_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_engine(actor=ALWAYS) as engine:
        heard = engine.watch()
        gate = gate_on_snapshot(monkeypatch, engine)
        await engine.send("hi")
        leaving = engine.supervisor.post(KEY, Hibernate())
        await gate.reached.wait()
        reply = engine.post("one more")
        gate.opened.set()
        await receipt_of(reply)
        await heard.until(TurnFinished, count=2)
        with anyio.fail_after(DEADLINE_S):
            assert await leaving.wait() is True
        assert engine.store.loads == 1
        assert engine.supervisor.live_status(KEY) is None


async def test_a_message_taken_while_the_last_turn_comes_to_rest_is_answered_before_the_actor_leaves() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one"))) as engine:
        heard = engine.watch()
        await engine.send("first")
        await gate.reached.wait()
        engine.store.hold()
        gate.opened.set()
        await engine.store.holds_one()
        reply = engine.post("second")
        leaving = engine.supervisor.post(KEY, Hibernate(deadline_s=DEADLINE_S))
        engine.store.let_go()
        await receipt_of(reply)
        with anyio.fail_after(DEADLINE_S):
            assert await leaving.wait() is True
        assert len(heard.of(TurnFinished)) == 2


async def test_a_release_that_fails_is_a_crash_that_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_engine() as engine:
        await engine.ask("hi")

        async def release(lease: Lease) -> None:
            raise StoreUnavailable("no disk")

        with monkeypatch.context() as patch:
            patch.setattr(engine.store, "release", release)
            with pytest.raises(Unavailable):
                await engine.hibernate(deadline_s=0)
        await engine.ask("again")
        assert len(await engine.records_of(TurnFinished)) == 2


async def test_a_short_history_is_left_without_a_snapshot() -> None:
    async with running_engine() as engine:
        await engine.ask("hi")
        await engine.hibernate()
        assert engine.store.snapshots == []


async def test_a_snapshot_is_the_fold_of_the_journal_up_to_it() -> None:
    async with running_engine(actor=ALWAYS) as engine:
        await engine.ask("hi")
        await engine.hibernate()
        (snapshot,) = engine.store.snapshots
        assert (snapshot.version, snapshot.seq) == (SNAPSHOT_VERSION, (await engine.store.head(KEY)).seq)
        assert decode_snapshot(snapshot.data) == await engine.state()


async def test_what_a_snapshot_costs_stays_in_proportion_to_the_text() -> None:
    text = "x" * 3000
    async with running_engine() as engine:
        for number in range(60):
            await engine.ask(f"{number} {text}")
            await engine.hibernate()
        sizes = [len(snapshot.data) for snapshot in engine.store.snapshots]
        assert 8 <= len(sizes) <= 20
        assert sum(sizes) <= 8 * (await engine.state()).view.size_bytes


async def test_a_tail_is_never_longer_than_its_share_of_the_snapshot() -> None:
    text, kept = "x" * 3000, 0
    async with running_engine() as engine:
        for number in range(60):
            await engine.ask(f"{number} {text}")
            loaded = await engine.store.load(KEY)
            kept = len(loaded.snapshot.data) if loaded.snapshot else 0
            assert loaded.tail_bytes <= max(65_536, kept / 2) + 3 * len(text)
        assert kept
        await engine.hibernate()
        loaded = await engine.store.load(KEY)
        assert loaded.snapshot is not None
        assert loaded.tail_bytes <= max(16_384, len(loaded.snapshot.data) / 8)


async def test_a_conversation_thawed_from_a_snapshot_goes_on_as_one_folded_from_the_start() -> None:
    requests = []
    for options in (ALWAYS, NEVER):
        async with running_engine(actor=options) as engine:
            for number in range(4):
                await engine.ask(f"message {number}")
                await engine.hibernate()
            requests.append(engine.model.requests)
            assert bool(engine.store.snapshots) == (options is ALWAYS)
    assert requests[0] == requests[1]


async def test_no_snapshot_is_taken_in_the_middle_of_a_turn() -> None:
    gate = Gate()
    async with running_engine(says("one"), waits(gate, says("two")), actor=ALWAYS) as engine:
        await engine.ask("one")
        await engine.send("two")
        await gate.reached.wait()
        await engine.wake()
        await anyio.wait_all_tasks_blocked()
        assert [snapshot.seq for snapshot in engine.store.snapshots] == [7]
        gate.opened.set()
        await engine.hibernate()
        assert [snapshot.seq for snapshot in engine.store.snapshots] == [7, 12]


@pytest.mark.parametrize("error", [StoreFull("the disk is full"), StoreUnavailable("lost")])
async def test_a_snapshot_that_fails_holds_up_nobody(error: StoreFull | StoreUnavailable) -> None:
    async with running_engine(actor=ALWAYS) as engine:
        engine.store.core.fail(error, hits=any_snapshot)
        await engine.ask("hi")
        assert await engine.hibernate() is True
        assert engine.store.loads == 1
        await engine.ask("again")


async def test_a_snapshot_ahead_of_the_journal_quarantines() -> None:
    async with running_engine(actor=ALWAYS) as engine:
        await engine.ask("one")
        await engine.ask("two")
        await engine.hibernate()
        held = engine.store.data.of(KEY)
        held.batches.pop()
        held.head = Head(seq=held.batches[-1].last_seq, event=held.batches[-1].last_event, batch_id="b")
        with pytest.raises(Quarantined, match="snapshot"):
            await engine.send("three")


async def test_a_bad_snapshot_is_replaced_by_the_next_one() -> None:
    async with running_engine(actor=ALWAYS) as engine:
        await engine.ask("one")
        await engine.hibernate()
        held = engine.store.data.of(KEY)
        assert held.snapshot is not None
        held.snapshot = Snapshot(seq=held.snapshot.seq, version=SNAPSHOT_VERSION, data=b"rubbish")
        await engine.ask("two")
        await engine.hibernate()
        assert held.snapshot is not None
        assert decode_snapshot(held.snapshot.data) == await engine.state()
