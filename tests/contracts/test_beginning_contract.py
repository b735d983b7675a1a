"""What ``store.contract`` promises of a conversation that is written whole, over every backend, on both event loops."""

import msgspec
import pytest

from tests.support.sample_records import KEY, created, message, opening, receipt
from tests.support.writing import journal, lease_of, put
from torpor.errors import Fenced, InvariantBroken, WrongSequence
from torpor.records.ids import MessageId
from torpor.records.journal import JournalRecord
from torpor.store.contract import Head, Store

MANY: tuple[JournalRecord, ...] = (created(title="long"), *(message(seq, event=seq - 1) for seq in range(2, 1_001)))


@pytest.mark.parametrize("count", [2, 256, 257, 1_000])
async def test_it_is_there_with_all_its_records_and_receipts_and_is_not_due(store: Store, count: int) -> None:
    lease = await lease_of(store)
    receipts = {MessageId(f"m_{seq}"): receipt(f"m_{seq}", event=seq - 1) for seq in range(2, count + 1)}
    await store.begin(lease, records=MANY[:count], batch_id="b", dedupe=receipts)
    assert await journal(store) == MANY[:count]
    row = await store.describe(KEY)
    assert row is not None
    assert (row.head.seq, row.head.event, row.title, row.due_us) == (count, count - 1, "long", None)
    assert await store.receipt(KEY, MessageId(f"m_{count}")) == receipts[MessageId(f"m_{count}")]
    await put(store, lease, [message(count + 1, event=count)])


async def test_what_is_there_is_left_as_it_is(store: Store) -> None:
    lease = await lease_of(store)
    await put(store, lease, opening())
    with pytest.raises(WrongSequence):
        await store.begin(lease, records=MANY, batch_id="b", dedupe={})
    assert await journal(store) == opening()


async def test_nothing_is_written_without_the_fence(store: Store) -> None:
    lease = await lease_of(store)
    stale = msgspec.structs.replace(lease, fence=lease.fence - 1)
    with pytest.raises(Fenced):
        await store.begin(stale, records=MANY, batch_id="b", dedupe={})
    assert await store.head(KEY) == Head()


async def test_of_a_beginning_that_cannot_be_stored_nothing_is(store: Store) -> None:
    lease = await lease_of(store)
    twice = {MessageId("m_2"): receipt("m_2")}
    spoilt = (*MANY[:600], msgspec.structs.replace(message(601, event=600), principal="\ud800"), *MANY[601:])
    with pytest.raises(InvariantBroken):
        await store.begin(lease, records=spoilt, batch_id="b", dedupe=twice)
    assert await store.head(KEY) == Head()
    assert await store.receipt(KEY, MessageId("m_2")) is None
    await store.begin(lease, records=MANY, batch_id="b", dedupe=twice)
    assert await journal(store) == MANY
