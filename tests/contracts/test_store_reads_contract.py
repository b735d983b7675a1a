"""What ``store.contract`` promises of reading, marks, lists and leases, over every backend, on both event loops."""

import msgspec
import pytest

from tests.support.sample_records import (
    KEY,
    START_US,
    conversation,
    created,
    finished,
    message,
    opening,
    receipt,
    requested,
)
from tests.support.writing import journal, lease_of, put
from torpor.errors import Fenced, WrongSequence
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord
from torpor.store.contract import DirectoryRow, Head, Job, Snapshot, Store, Timer


class TestReading:
    async def test_records_are_read_in_pages(self, store: Store) -> None:
        lease = await lease_of(store)
        records: list[JournalRecord] = [created()]
        await put(store, lease, records)
        for seq in range(2, 30, 3):
            batch = [message(seq + offset, event=seq + offset - 1) for offset in range(3)]
            await put(store, lease, batch)
            records += batch
        for limit in (1, 2, 5, 100):
            read: list[JournalRecord] = []
            while page := await store.records_after(KEY, seq=len(read), limit=limit):
                assert len(page) <= limit
                read += page
            assert read == records
        assert await store.records_after(KEY, seq=99, limit=10) == ()

    async def test_only_public_records_are_events(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening())
        for turn in range(8):
            seq, event = 3 + 4 * turn, 2 + 2 * turn
            await put(store, lease, [requested(seq)])
            await put(
                store, lease, [message(seq + 1, event=event), requested(seq + 2), finished(seq + 3, event=event + 1)]
            )
        assert [record.event for record in await store.events_after(KEY, event=0, limit=99)] == list(range(1, 18))
        assert [record.event for record in await store.events_after(KEY, event=5, limit=4)] == [6, 7, 8, 9]
        assert [record.event for record in await store.events_after(KEY, event=16, limit=4)] == [17]
        assert await store.events_after(KEY, event=17, limit=4) == ()
        assert await store.events_after(KEY, event=99, limit=4) == ()

    async def test_a_read_bounded_in_bytes_gives_the_batch_that_fills_it_and_the_next_goes_on(
        self, store: Store
    ) -> None:
        lease = await lease_of(store)
        await put(store, lease, [created()])
        for seq in range(2, 30, 3):
            await put(store, lease, [message(seq + offset, event=seq + offset - 1) for offset in range(3)])
        every = await store.records_after(KEY, seq=0, limit=99)
        sizes: list[int] = []
        read: list[JournalRecord] = []
        while page := await store.records_after(KEY, seq=len(read), limit=99, size_bytes=1):
            sizes.append(len(page))
            read += page
        events: list[JournalRecord] = []
        while page := await store.events_after(KEY, event=len(events), limit=99, size_bytes=1):
            events += page

        assert sizes == [1, *[3] * 10]
        assert (tuple(read), tuple(events)) == (every, tuple(record for record in every if record.event))
        assert await store.records_after(KEY, seq=0, limit=99, size_bytes=10_000_000) == every
        assert await store.events_after(KEY, event=0, limit=4, size_bytes=10_000_000) == tuple(events[:4])

    async def test_a_page_of_events_is_full_while_there_are_more(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening())
        for seq in range(3, 40):
            await put(store, lease, [requested(seq)])
        await put(store, lease, [finished(40, event=2)])
        assert [record.event for record in await store.events_after(KEY, event=0, limit=2)] == [1, 2]


class TestDue:
    async def test_conversations_are_due_at_their_mark_oldest_first(self, store: Store) -> None:
        for number, due_us in ((1, 300), (2, 100), (3, None), (4, 200), (5, 900)):
            await put(store, await lease_of(store, conversation(number)), opening(), due_us=due_us)
        assert await store.due(now_us=300, limit=10) == (conversation(2), conversation(4), conversation(1))
        assert await store.due(now_us=300, limit=2) == (conversation(2), conversation(4))
        assert await store.due(now_us=99, limit=10) == ()

    async def test_each_append_replaces_the_mark(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening(), due_us=100)
        await put(store, lease, [requested(3)], due_us=500)
        assert await store.due(now_us=499, limit=10) == ()
        assert await store.due(now_us=500, limit=10) == (KEY,)
        await put(store, lease, [requested(4)], due_us=None)
        assert await store.due(now_us=10**18, limit=10) == ()

    async def test_a_quarantined_conversation_is_not_due_until_it_is_released(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening(), due_us=100)
        await store.quarantine(KEY, reason="record 2 is missing")
        assert await store.due(now_us=100, limit=10) == ()
        row = await store.describe(KEY)
        assert row is not None
        assert row.quarantine == "record 2 is missing"
        await store.quarantine(KEY, reason="")
        assert await store.due(now_us=100, limit=10) == (KEY,)

    async def test_quarantining_what_does_not_exist_creates_nothing(self, store: Store) -> None:
        await store.quarantine(KEY, reason="why not")
        assert await store.describe(KEY) is None
        assert await journal(store) == ()


class TestJobsAndTimers:
    async def test_jobs_are_kept_by_id_with_their_payload_byte_for_byte(self, store: Store) -> None:
        lease = await lease_of(store)
        odd = msgspec.Raw('{"b": [1.0, 1e3], "a":"\\u00e9 \\" 日本", "n": 12345678901234567890}'.encode())
        jobs = (
            Job(id="j_2", kind="extract", due_us=20, payload=odd),
            Job(id="j_1", kind="refresh", due_us=10, payload=msgspec.Raw(b'"text"')),
        )
        await put(store, lease, opening(), jobs=jobs)
        stored = await store.jobs(KEY)
        assert [(job.id, job.kind, job.due_us, bytes(job.payload)) for job in stored] == [
            ("j_1", "refresh", 10, b'"text"'),
            ("j_2", "extract", 20, bytes(odd)),
        ]

    async def test_a_job_under_a_known_id_is_that_job_again(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening(), jobs=[Job(id="j", kind="extract", due_us=20)])
        await put(store, lease, [requested(3)], jobs=[Job(id="j", kind="extract", due_us=30)])
        assert [(job.id, job.due_us) for job in await store.jobs(KEY)] == [("j", 30)]

    async def test_timers_are_replaced_by_id(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening(), timers=[Timer(id="b", due_us=2), Timer(id="a", due_us=1)])
        await put(store, lease, [requested(3)], timers=[Timer(id="b", due_us=9)])
        assert await store.timers(KEY) == (Timer(id="a", due_us=1), Timer(id="b", due_us=9))

    async def test_a_refused_batch_leaves_no_job_and_no_timer(self, store: Store) -> None:
        lease = await lease_of(store)
        with pytest.raises(WrongSequence):
            await put(
                store,
                lease,
                [message(2, event=1)],
                jobs=[Job(id="j", kind="extract", due_us=1)],
                timers=[Timer(id="t", due_us=1)],
            )
        assert (await store.jobs(KEY), await store.timers(KEY)) == ((), ())


class TestDirectory:
    async def test_a_row_tells_what_the_appends_told(self, store: Store) -> None:
        lease = await lease_of(store)
        await put(store, lease, opening(agent="nurse", title="Blood tests"), batch_id="one")
        await put(store, lease, [requested(3, at_us=START_US + 5)], batch_id="two", due_us=START_US + 9)
        expected = DirectoryRow(
            key=KEY,
            agent="nurse",
            title="Blood tests",
            head=Head(seq=3, event=1, batch_id="two"),
            created_us=START_US,
            updated_us=START_US + 5,
            due_us=START_US + 9,
            quarantine="",
        )
        assert await store.describe(KEY) == expected
        assert await store.list_conversations(tenant=None, owner=None, limit=10) == (expected,)

    async def test_lists_are_in_key_order_and_paged_without_gap_or_repeat(self, store: Store) -> None:
        keys = [
            ConversationKey(tenant, owner, id_)
            for tenant in ("a", "b")
            for owner in ("x", "y", "é")
            for id_ in ("C", "c", "c_", "c_1")
        ]
        for key in reversed(keys):
            await put(store, await lease_of(store, key), opening())
        for limit in (1, 5, 100):
            listed: list[ConversationKey] = []
            after: ConversationKey | None = None
            while page := await store.list_conversations(tenant=None, owner=None, limit=limit, after=after):
                listed += [row.key for row in page]
                after = page[-1].key
            assert listed == sorted(keys)

    async def test_lists_hold_one_tenant_or_one_owner_when_asked(self, store: Store) -> None:
        keys = [ConversationKey(tenant, owner, "c") for tenant in ("a", "ab", "A") for owner in ("x", "xy", "X")]
        for key in keys:
            await put(store, await lease_of(store, key), opening())
        of_tenant = await store.list_conversations(tenant="a", owner=None, limit=99)
        assert [row.key for row in of_tenant] == sorted(key for key in keys if key.tenant == "a")
        of_owner = await store.list_conversations(tenant="a", owner="x", limit=99)
        assert [row.key for row in of_owner] == [ConversationKey("a", "x", "c")]
        anywhere = await store.list_conversations(tenant=None, owner="x", limit=99)
        assert [row.key for row in anywhere] == sorted(key for key in keys if key.owner == "x")
        behind = await store.list_conversations(tenant="a", owner=None, limit=99, after=ConversationKey("a", "x", "c"))
        assert [row.key.owner for row in behind] == ["xy"]


class TestIsolation:
    NEIGHBOURS = (
        ConversationKey("acme", "ann", "c_1"),
        ConversationKey("acme", "ann", "C_1"),
        ConversationKey("acme", "ann", "c_10"),
        ConversationKey("acme", "ann", "c%1"),
        ConversationKey("acme", "Ann", "c_1"),
        ConversationKey("acme", "an", "nc_1"),
        ConversationKey("Acme", "ann", "c_1"),
        ConversationKey("acmea", "nn", "c_1"),
        ConversationKey("acme", "á", "c_1"),
        ConversationKey("acme", "a\u0301", "c_1"),
    )

    async def test_keys_that_look_alike_share_nothing(self, store: Store) -> None:
        for place, key in enumerate(self.NEIGHBOURS):
            lease = await lease_of(store, key)
            text = f"belongs to {place}"
            await put(
                store,
                lease,
                opening(title=text, text=text),
                batch_id=text,
                dedupe={MessageId("m"): receipt("m", event=place + 1)},
                due_us=place,
                jobs=[Job(id="j", kind=text, due_us=place)],
                timers=[Timer(id="t", due_us=place)],
            )
            snapshot = Snapshot(seq=1, version=1, data=text.encode())
            await store.put_snapshot(key, fence=lease.fence, snapshot=snapshot)
        for place, key in enumerate(self.NEIGHBOURS):
            text = f"belongs to {place}"
            loaded = await store.load(key)
            assert loaded.head.batch_id == text
            assert loaded.snapshot == Snapshot(seq=1, version=1, data=text.encode())
            assert await journal(store, key) == opening(title=text, text=text)
            assert await store.receipt(key, MessageId("m")) == receipt("m", event=place + 1)
            assert [job.kind for job in await store.jobs(key)] == [text]
            assert await store.timers(key) == (Timer(id="t", due_us=place),)
            row = await store.describe(key)
            assert row is not None
            assert (row.title, row.due_us) == (text, place)

    async def test_another_owners_conversation_reads_as_one_that_does_not_exist(self, store: Store) -> None:
        await put(
            store,
            await lease_of(store),
            opening(),
            dedupe={MessageId("m_2"): receipt("m_2")},
            jobs=[Job(id="j", kind="extract", due_us=1)],
        )
        for stranger in self.NEIGHBOURS[1:]:
            assert await store.head(stranger) == Head()
            assert await journal(store, stranger) == ()
            assert await store.receipt(stranger, MessageId("m_2")) is None
            assert await store.events_after(stranger, event=0, limit=9) == ()
            assert await store.records_after(stranger, seq=0, limit=9) == ()
            assert await store.describe(stranger) is None
            assert await store.jobs(stranger) == ()


class TestLeases:
    async def test_a_lease_names_its_key_and_its_holder(self, store: Store) -> None:
        lease = await store.acquire(KEY, holder="s_7", ttl_s=30, now_us=START_US)
        assert (lease.key, lease.holder) == (KEY, "s_7")
        assert lease.fence >= 1

    async def test_a_renewed_lease_still_writes(self, store: Store) -> None:
        lease = await lease_of(store)
        renewed = await store.renew(lease, ttl_s=30, now_us=START_US + 1)
        assert renewed.fence == lease.fence
        await put(store, renewed, opening())
        assert (await store.head(KEY)).seq == 2

    async def test_a_lease_of_an_earlier_grant_cannot_be_renewed(self, store: Store) -> None:
        lease = await lease_of(store)
        with pytest.raises(Fenced):
            await store.renew(msgspec.structs.replace(lease, fence=lease.fence - 1), ttl_s=30, now_us=START_US)

    async def test_after_a_release_the_next_lease_writes_on(self, store: Store) -> None:
        first = await lease_of(store)
        await put(store, first, opening())
        await store.release(first)
        second = await store.acquire(KEY, holder="s_2", ttl_s=30, now_us=START_US)
        assert second.fence >= first.fence
        await put(store, second, [requested(3)])
        assert (await store.head(KEY)).seq == 3
