"""Writing to a store of any kind, as its only writer would."""

from collections.abc import Mapping, Sequence

import anyio

from tests.support.sample_records import KEY, START_US
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord
from torpor.store.contract import Job, Lease, Store, Ticket, Timer

DEADLINE_S = 20


async def lease_of(store: Store, key: ConversationKey = KEY) -> Lease:
    return await store.acquire(key, holder="s_1", ttl_s=30, now_us=START_US)


def hand_over(
    store: Store,
    lease: Lease,
    records: Sequence[JournalRecord],
    *,
    batch_id: str = "b",
    dedupe: Mapping[MessageId, Receipt] | None = None,
    due_us: int | None = None,
    jobs: Sequence[Job] = (),
    timers: Sequence[Timer] = (),
) -> Ticket:
    """Append ``records`` where their numbers say."""
    return store.append(
        lease.key,
        fence=lease.fence,
        expected_seq=records[0].seq - 1,
        batch_id=batch_id,
        records=records,
        dedupe=dedupe or {},
        due_us=due_us,
        jobs=jobs,
        timers=timers,
    )


async def put(
    store: Store,
    lease: Lease,
    records: Sequence[JournalRecord],
    *,
    batch_id: str = "b",
    dedupe: Mapping[MessageId, Receipt] | None = None,
    due_us: int | None = None,
    jobs: Sequence[Job] = (),
    timers: Sequence[Timer] = (),
) -> None:
    """Append ``records`` and wait until they are durable."""
    ticket = hand_over(store, lease, records, batch_id=batch_id, dedupe=dedupe, due_us=due_us, jobs=jobs, timers=timers)
    with anyio.fail_after(DEADLINE_S):
        await ticket.wait()


async def write(
    store: Store, records: Sequence[JournalRecord], *, key: ConversationKey = KEY, due_us: int | None = None
) -> None:
    """Take the lease, append ``records`` as batch ``b_<last seq>``, and wait until they are durable."""
    await put(store, await lease_of(store, key), records, batch_id=f"b_{records[-1].seq}", due_us=due_us)


async def journal(store: Store, key: ConversationKey = KEY) -> tuple[JournalRecord, ...]:
    return (await store.load(key, use_snapshot=False)).tail
