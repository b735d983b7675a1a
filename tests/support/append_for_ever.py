"""A process that appends until it is killed, and says what it was told is durable: ``python -m … DIRECTORY``.

One line on standard output for each acknowledged append, ``<conversation> <last seq>``, flushed before the next one.
Several conversations append at once, so that groups of every size are under way when the signal comes. Each goes on
from where an earlier process left it.
"""

import sys
from pathlib import Path

import anyio
import structlog

from tests.support.sample_records import conversation, created, message, receipt
from torpor.records.ids import MessageId
from torpor.records.journal import JournalRecord
from torpor.store.contract import Snapshot, Store
from torpor.store.sqlite.engine import open_sqlite

CONVERSATIONS = 8


async def append_for_ever(store: Store, number: int) -> None:
    key = conversation(number)
    lease = await store.acquire(key, holder="child", ttl_s=1, now_us=0)
    head = await store.head(key)
    seq, event = head.seq, head.event
    while True:
        records: list[JournalRecord] = [created()] if seq == 0 else []
        first = seq + 1 + len(records)
        records += [
            message(first + place, event=event + 1 + place, text=f"{first + place} " * 50) for place in range(3)
        ]
        ids = {MessageId(f"m_{record.seq}"): receipt(f"m_{record.seq}") for record in records}
        ticket = store.append(
            key,
            fence=lease.fence,
            expected_seq=seq,
            batch_id=f"b_{records[-1].seq}",
            records=records,
            dedupe=ids,
            due_us=records[-1].seq,
        )
        await ticket.wait()
        seq, event = records[-1].seq, event + 3
        print(number, seq, flush=True)
        if seq % 10 == number:
            await store.put_snapshot(key, fence=lease.fence, snapshot=Snapshot(seq=seq, version=1, data=b"s" * 40_000))


async def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    async with open_sqlite(Path(sys.argv[1])) as store, anyio.create_task_group() as tasks:
        for number in range(CONVERSATIONS):
            tasks.start_soon(append_for_ever, store, number)


if __name__ == "__main__":
    anyio.run(main)
