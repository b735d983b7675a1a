"""Leases proper: two supervisors over one medium, on both event loops."""

from collections.abc import AsyncIterator

import anyio
import pytest

from tests.support.sample_records import KEY, START_US, conversation, opening, requested
from torpor.errors import Fenced, LeaseHeld, StoreUnavailable
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord
from torpor.store.contract import Head, Lease, Snapshot, Store
from torpor.store.in_memory import InMemoryStore
from torpor.store.memory_data import MemoryData

TTL_S = 10
TTL_US = TTL_S * 1_000_000


@pytest.fixture
def data() -> MemoryData:
    """The medium."""
    return MemoryData()


@pytest.fixture
async def stores(data: MemoryData) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores over the same data."""
    async with InMemoryStore(data) as first, InMemoryStore(data) as second:
        yield first, second


async def take(store: Store, holder: str, *, now_us: int = START_US, key: ConversationKey = KEY) -> Lease:
    return await store.acquire(key, holder=holder, ttl_s=TTL_S, now_us=now_us)


async def put(store: Store, lease: Lease, records: tuple[JournalRecord, ...]) -> None:
    with anyio.fail_after(10):
        await store.append(
            lease.key,
            fence=lease.fence,
            expected_seq=records[0].seq - 1,
            batch_id="b",
            records=records,
            dedupe={},
            due_us=None,
        ).wait()


async def test_a_lease_is_refused_while_another_holds_it(stores: tuple[Store, Store]) -> None:
    first, second = stores
    held = await take(first, "s_1")
    with pytest.raises(LeaseHeld) as refused:
        await take(second, "s_2", now_us=held.expires_us - 1)
    assert (refused.value.holder, refused.value.until_us) == ("s_1", START_US + TTL_US)


async def test_a_lease_that_lapsed_is_taken_over_with_a_greater_fence(stores: tuple[Store, Store]) -> None:
    first, second = stores
    old = await take(first, "s_1")
    new = await take(second, "s_2", now_us=old.expires_us)
    assert new.fence > old.fence


async def test_the_holder_that_was_replaced_writes_nothing_more(stores: tuple[Store, Store]) -> None:
    first, second = stores
    old = await take(first, "s_1")
    await put(first, old, opening())
    new = await take(second, "s_2", now_us=old.expires_us)
    for store in stores:
        with pytest.raises(Fenced) as refused:
            await put(store, old, (requested(3),))
        assert (refused.value.fence, refused.value.newer) == (old.fence, new.fence)
        with pytest.raises(Fenced):
            await store.put_snapshot(KEY, fence=old.fence, snapshot=Snapshot(seq=2, version=1, data=b"late"))
    assert (await second.load(KEY)).tail == opening()
    assert (await second.load(KEY)).snapshot is None


async def test_a_renewed_lease_cannot_be_taken_until_its_new_end(stores: tuple[Store, Store]) -> None:
    first, second = stores
    lease = await take(first, "s_1")
    renewed = await first.renew(lease, ttl_s=TTL_S, now_us=START_US + 5)
    assert (renewed.fence, renewed.expires_us) == (lease.fence, START_US + 5 + TTL_US)
    with pytest.raises(LeaseHeld):
        await take(second, "s_2", now_us=lease.expires_us)
    await take(second, "s_2", now_us=renewed.expires_us)


async def test_a_late_renewal_does_not_steal_the_lease_back(stores: tuple[Store, Store]) -> None:
    first, second = stores
    old = await take(first, "s_1")
    new = await take(second, "s_2", now_us=old.expires_us)
    with pytest.raises(Fenced):
        await first.renew(old, ttl_s=TTL_S, now_us=old.expires_us + 1)
    await put(second, new, opening())
    with pytest.raises(LeaseHeld) as refused:
        await take(first, "s_1", now_us=old.expires_us + 1)
    assert refused.value.holder == "s_2"


async def test_a_late_release_does_not_end_the_new_lease(stores: tuple[Store, Store]) -> None:
    first, second = stores
    old = await take(first, "s_1")
    new = await take(second, "s_2", now_us=old.expires_us)
    await first.release(old)
    await put(second, new, opening())
    with pytest.raises(LeaseHeld):
        await take(first, "s_1", now_us=old.expires_us + 1)


async def test_a_released_lease_is_free_at_once_and_writes_no_more(stores: tuple[Store, Store]) -> None:
    first, second = stores
    old = await take(first, "s_1")
    await first.release(old)
    with pytest.raises(Fenced):
        await put(first, old, opening())
    with pytest.raises(Fenced):
        await first.renew(old, ttl_s=TTL_S, now_us=START_US)
    new = await take(second, "s_2")
    assert new.fence > old.fence
    await put(second, new, opening())


async def test_fences_grow_with_every_grant_also_to_the_same_holder(stores: tuple[Store, Store]) -> None:
    first, _ = stores
    fences = [(await take(first, "s_1")).fence for _ in range(4)]
    assert fences == sorted(set(fences))


async def test_a_lapsed_lease_that_nobody_took_still_writes(stores: tuple[Store, Store]) -> None:
    first, _ = stores
    lease = await take(first, "s_1")
    await put(first, await first.renew(lease, ttl_s=TTL_S, now_us=lease.expires_us + 99), opening())


async def test_leases_of_different_conversations_are_independent(stores: tuple[Store, Store]) -> None:
    first, second = stores
    await take(first, "s_1", key=conversation(1))
    await take(second, "s_2", key=conversation(2))


async def test_a_lease_alone_makes_no_conversation(stores: tuple[Store, Store]) -> None:
    first, second = stores
    await take(first, "s_1")
    assert await second.describe(KEY) is None
    assert await second.list_conversations(tenant=None, owner=None, limit=9) == ()


async def test_what_one_store_committed_outlives_its_crash(data: MemoryData, stores: tuple[Store, Store]) -> None:
    _, survivor = stores
    held: list[float] = []
    with anyio.CancelScope() as world:
        async with InMemoryStore(data, latency=lambda: held.pop() if held else 0) as doomed:
            lease = await take(doomed, "s_1")
            await put(doomed, lease, opening())
            held.append(3600)
            lost = doomed.append(
                KEY, fence=lease.fence, expected_seq=2, batch_id="lost", records=(requested(3),), dedupe={}, due_us=None
            )
            await anyio.wait_all_tasks_blocked()
            world.cancel()
            await anyio.lowlevel.checkpoint()
    with pytest.raises(StoreUnavailable):
        await lost.wait()
    assert await survivor.head(KEY) == Head(seq=2, event=1, batch_id="b")
    assert (await survivor.load(KEY)).tail == opening()
