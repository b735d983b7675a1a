"""What ``store.contract`` promises of writing, over every backend, on both event loops."""

import anyio
import msgspec
import pytest

from tests.support.sample_records import (
    KEY,
    conversation,
    created,
    finished,
    message,
    opening,
    receipt,
    requested,
)
from tests.support.writing import DEADLINE_S, hand_over, journal, lease_of, put
from torpor.errors import DuplicateMessage, Fenced, InvariantBroken, WrongSequence
from torpor.records.commands import Receipt
from torpor.records.ids import MessageId
from torpor.records.journal import JournalRecord
from torpor.store.contract import Head, Snapshot, Store, Ticket


class TestAppend:
    async def test_a_conversation_never_written_to_has_head_zero_and_loads_empty(self, store: Store) -> None:
        await lease_of(store)
        loaded = await store.load(KEY)
        assert (loaded.head, loaded.snapshot, loaded.tail, loaded.tail_bytes) == (Head(), None, (), 0)
        assert await store.head(KEY) == Head()
        assert await store.describe(KEY) is None
        assert await store.list_conversations(tenant=None, owner=None, limit=10) == ()
        assert await store.events_after(KEY, event=0, limit=10) == ()
        assert await store.records_after(KEY, seq=0, limit=10) == ()
        assert await store.receipt(KEY, MessageId("m_2")) is None
        assert (await store.jobs(KEY), await store.timers(KEY)) == ((), ())

    async def test_what_was_appended_is_loaded_in_order(self, store: Store) -> None:
        lease = await lease_of(store)
        first, second = opening(), (requested(3), finished(4, event=2))
        await put(store, lease, first, batch_id="one")
        await put(store, lease, second, batch_id="two")
        loaded = await store.load(KEY)
        assert loaded.tail == (*first, *second)
        assert loaded.head == Head(seq=4, event=2, batch_id="two") == await store.head(KEY)
        assert loaded.tail_bytes >= sum(len(msgspec.json.encode(record)) for record in loaded.tail)

    async def test_the_head_keeps_its_event_over_a_batch_without_a_public_record(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening())
        await put(store, lease, [requested(3)], batch_id="quiet")
        assert await store.head(KEY) == Head(seq=3, event=1, batch_id="quiet")

    async def test_a_batch_of_256_records_is_one_append_and_257_are_refused(self, store: Store) -> None:
        lease = await lease_of(store)
        records: tuple[JournalRecord, ...] = (created(), *(message(seq, event=seq - 1) for seq in range(2, 258)))
        with pytest.raises(InvariantBroken, match="257 records, expected 1 to 256"):
            hand_over(store, lease, records)
        await put(store, lease, records[:256])
        assert await journal(store) == records[:256]

    async def test_an_empty_batch_is_refused(self, store: Store) -> None:
        lease = await lease_of(store)
        with pytest.raises(InvariantBroken, match="0 records"):
            store.append(KEY, fence=lease.fence, expected_seq=0, batch_id="b", records=(), dedupe={}, due_us=None)

    @pytest.mark.parametrize(
        "records",
        [
            (created(), message(3, event=1)),
            (created(), message(2, event=1), message(3, event=1)),
            (created(), message(2, event=1), message(3, event=3)),
        ],
        ids=["a gap in seq", "an event used again", "a gap in events"],
    )
    async def test_a_batch_whose_numbers_do_not_follow_is_refused(
        self, store: Store, records: tuple[JournalRecord, ...]
    ) -> None:
        lease = await lease_of(store)
        with pytest.raises(InvariantBroken):
            hand_over(store, lease, records)
        assert await store.head(KEY) == Head()

    async def test_a_batch_that_reuses_an_event_number_of_the_journal_is_refused(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening())
        with pytest.raises(InvariantBroken):
            await put(store, lease, [message(3, event=1)])
        assert await store.head(KEY) == Head(seq=2, event=1, batch_id="b")

    async def test_a_wrong_sequence_writes_nothing_and_names_the_head(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening())
        with pytest.raises(WrongSequence) as ahead:
            await put(store, lease, [message(4, event=3)], dedupe={MessageId("m_4"): receipt("m_4")}, due_us=1)
        with pytest.raises(WrongSequence) as behind:
            await put(store, lease, [created()])
        assert (ahead.value.expected_seq, ahead.value.head_seq) == (3, 2)
        assert (behind.value.expected_seq, behind.value.head_seq) == (0, 2)
        assert await journal(store) == opening()
        assert await store.receipt(KEY, MessageId("m_4")) is None
        assert await store.due(now_us=10, limit=10) == ()

    async def test_a_stale_fence_writes_nothing(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening())
        stale = msgspec.structs.replace(lease, fence=lease.fence - 1)
        with pytest.raises(Fenced) as refused:
            await put(store, stale, [message(3, event=2)], dedupe={MessageId("m_3"): receipt("m_3")}, due_us=1)
        assert (refused.value.fence, refused.value.newer) == (lease.fence - 1, lease.fence)
        assert await journal(store) == opening()
        assert await store.receipt(KEY, MessageId("m_3")) is None

    async def test_a_stale_fence_is_told_before_a_wrong_sequence(self, store: Store) -> None:
        lease = await lease_of(store)
        stale = msgspec.structs.replace(lease, fence=lease.fence - 1)
        with pytest.raises(Fenced):
            await put(store, stale, [message(9, event=7)])

    async def test_every_waiter_of_a_ticket_gets_the_same_answer(self, store: Store) -> None:
        lease = await lease_of(store)
        good = hand_over(store, lease, opening())
        bad = hand_over(store, lease, [message(7, event=2)])
        answers: list[str] = []

        async def ask(ticket: Ticket) -> None:
            try:
                await ticket.wait()
                answers.append("durable")
            except WrongSequence as exc:
                answers.append(exc.code)

        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                for ticket in (good, good, bad, bad):
                    tasks.start_soon(ask, ticket)
            await good.wait()
        assert sorted(answers) == ["durable", "durable", "wrong_sequence", "wrong_sequence"]

    async def test_a_cancelled_waiter_loses_nothing(self, store: Store) -> None:
        lease = await lease_of(store)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await hand_over(store, lease, opening(), batch_id="kept").wait()
        assert scope.cancelled_caught
        assert await store.head(KEY) == Head(seq=2, event=1, batch_id="kept")
        await put(store, lease, [message(3, event=2)])
        assert await journal(store) == (*opening(), message(3, event=2))

    async def test_the_head_stands_behind_every_append_handed_over_before(self, store: Store) -> None:
        lease = await lease_of(store)
        hand_over(store, lease, opening(), batch_id="one")
        with anyio.fail_after(DEADLINE_S):
            assert await store.head(KEY) == Head(seq=2, event=1, batch_id="one")

    async def test_a_refused_batch_does_not_touch_the_other_conversations_of_its_group(self, store: Store) -> None:
        leases = [await lease_of(store, conversation(number)) for number in range(20)]
        tickets = [hand_over(store, lease, opening()) for lease in leases]
        tickets[7:7] = [hand_over(store, leases[7], [message(9, event=5)])]
        outcomes: list[str] = []
        for ticket in tickets:
            try:
                with anyio.fail_after(DEADLINE_S):
                    await ticket.wait()
                outcomes.append("durable")
            except WrongSequence:
                outcomes.append("refused")
        assert outcomes == ["durable"] * 7 + ["refused"] + ["durable"] * 13
        for lease in leases:
            assert await journal(store, lease.key) == opening()

    async def test_appends_of_one_conversation_keep_the_order_in_which_they_were_handed_over(
        self, store: Store
    ) -> None:
        lease = await lease_of(store)
        tickets = [hand_over(store, lease, [created()], batch_id="b_1")]
        tickets += [hand_over(store, lease, [message(seq, event=seq - 1)], batch_id=f"b_{seq}") for seq in range(2, 40)]
        with anyio.fail_after(DEADLINE_S):
            for ticket in tickets:
                await ticket.wait()
        assert [record.seq for record in await journal(store)] == list(range(1, 40))
        assert await store.head(KEY) == Head(seq=39, event=38, batch_id="b_39")

    @pytest.mark.parametrize(
        "text",
        ["žluťoučký kůň", "日本語 🐎 é", 'quotes " and \\ and \n and \u2028', "a\u0000b \u0001", "\U0010ffff"],
        ids=["czech", "astral", "escapes", "controls", "last code point"],
    )
    async def test_any_unicode_text_comes_back_as_it_was(self, store: Store, text: str) -> None:
        lease = await lease_of(store)
        records: tuple[JournalRecord, ...] = (
            created(agent=f"agent {text}", title=text),
            message(2, event=1, text=text),
        )
        id_ = MessageId(f"id {text}".replace("\0", ""))  # an id holds no NUL, see records.ids
        await put(store, lease, records, batch_id=text, dedupe={id_: receipt(id_)})
        assert await journal(store) == records
        assert await store.receipt(KEY, id_) == receipt(id_)
        assert (await store.head(KEY)).batch_id == text
        row = await store.describe(KEY)
        assert row is not None
        assert (row.agent, row.title) == (f"agent {text}", text)

    async def test_a_text_that_is_not_unicode_is_refused_and_its_neighbours_are_kept(self, store: Store) -> None:
        broken, whole = await lease_of(store, conversation(1)), await lease_of(store, conversation(2))
        refused = hand_over(store, broken, opening(title="lone \ud800 surrogate"))
        kept = hand_over(store, whole, opening())
        with pytest.raises(InvariantBroken), anyio.fail_after(DEADLINE_S):
            await refused.wait()
        with anyio.fail_after(DEADLINE_S):
            await kept.wait()
        assert await store.head(conversation(1)) == Head()
        assert await journal(store, conversation(2)) == opening()


class TestReceipts:
    async def test_a_receipt_is_found_by_its_message_id(self, store: Store) -> None:
        lease = await lease_of(store)
        both = {MessageId("m_2"): receipt("m_2", event=1), MessageId("m_3"): receipt("m_3", event=2)}
        await put(store, lease, (*opening(), message(3, event=2)), dedupe=both)
        assert await store.receipt(KEY, MessageId("m_2")) == receipt("m_2", event=1)
        assert await store.receipt(KEY, MessageId("m_3")) == receipt("m_3", event=2)
        assert await store.receipt(KEY, MessageId("m_4")) is None

    async def test_a_message_seen_before_refuses_the_batch_and_brings_its_first_receipt(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening(), dedupe={MessageId("m_2"): receipt("m_2", event=1)})
        again = {MessageId("new"): receipt("new", event=2), MessageId("m_2"): receipt("m_2", event=2)}
        with pytest.raises(DuplicateMessage) as refused:
            await put(store, lease, [message(3, event=2)], dedupe=again)
        assert refused.value.message_id == "m_2"
        assert msgspec.json.decode(refused.value.receipt, type=Receipt) == receipt("m_2", event=1)
        assert await journal(store) == opening()
        assert await store.receipt(KEY, MessageId("new")) is None

    async def test_the_same_message_id_in_another_conversation_is_another_message(self, store: Store) -> None:
        for number in (1, 2):
            lease = await lease_of(store, conversation(number))
            await put(store, lease, opening(), dedupe={MessageId("m_2"): receipt("m_2", event=number)})
        assert await store.receipt(conversation(1), MessageId("m_2")) == receipt("m_2", event=1)
        assert await store.receipt(conversation(2), MessageId("m_2")) == receipt("m_2", event=2)

    async def test_message_ids_that_differ_by_case_are_different(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening(), dedupe={MessageId("M"): receipt("M")})
        assert await store.receipt(KEY, MessageId("m")) is None


class TestSnapshots:
    async def test_a_load_is_the_snapshot_and_the_records_after_it(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening())
        await put(store, lease, [requested(3)])
        snapshot = Snapshot(seq=2, version=7, data=b"\x00fold\xff")
        await store.put_snapshot(KEY, fence=lease.fence, snapshot=snapshot)
        loaded = await store.load(KEY)
        assert (loaded.snapshot, loaded.tail) == (snapshot, (requested(3),))
        assert loaded.tail_bytes == len(msgspec.json.encode([requested(3)]))
        whole = await store.load(KEY, use_snapshot=False)
        assert (whole.snapshot, whole.tail) == (None, (*opening(), requested(3)))

    async def test_a_snapshot_at_the_head_leaves_no_tail(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening())
        await store.put_snapshot(KEY, fence=lease.fence, snapshot=Snapshot(seq=2, version=1, data=b"x"))
        loaded = await store.load(KEY)
        assert (loaded.tail, loaded.tail_bytes, loaded.head.seq) == ((), 0, 2)

    async def test_a_snapshot_within_a_batch_leaves_the_rest_of_it(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, (*opening(), requested(3), requested(4)))
        await store.put_snapshot(KEY, fence=lease.fence, snapshot=Snapshot(seq=3, version=1, data=b"x"))
        assert (await store.load(KEY)).tail == (requested(4),)

    async def test_a_later_snapshot_replaces_the_earlier_one(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening())
        for data in (b"first" * 5000, b"second" * 9000, b"third"):
            await store.put_snapshot(KEY, fence=lease.fence, snapshot=Snapshot(seq=2, version=1, data=data))
            assert (await store.load(KEY)).snapshot == Snapshot(seq=2, version=1, data=data)

    async def test_a_snapshot_past_the_head_is_refused(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening())
        for key, seq, head in ((KEY, 3, 2), (conversation(9), 1, 0)):
            fence = lease.fence if key == KEY else (await lease_of(store, key)).fence
            with pytest.raises(WrongSequence) as refused:
                await store.put_snapshot(key, fence=fence, snapshot=Snapshot(seq=seq, version=1, data=b"x"))
            assert (refused.value.expected_seq, refused.value.head_seq) == (seq, head)
        assert (await store.load(KEY)).snapshot is None

    async def test_a_snapshot_under_a_stale_fence_is_refused(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening())
        with pytest.raises(Fenced):
            await store.put_snapshot(KEY, fence=lease.fence - 1, snapshot=Snapshot(seq=2, version=1, data=b"x"))
        assert (await store.load(KEY)).snapshot is None
