"""Pages far behind the head: the same records as anywhere, and read beside the event loop."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.sample_records import KEY, conversation, created, message, requested
from tests.support.writing import write
from torpor.records.blocks import text_block
from torpor.records.journal import JournalRecord
from torpor.store.codec import MAX_BATCH_RECORDS
from torpor.store.sqlite.engine import SqliteStore, open_sqlite
from torpor.store.sqlite.reader import SqliteReader

SIZES = (1, 2, MAX_BATCH_RECORDS, 7, 100)
"""Of batches, over and over."""
RECORDS_MIN = 7_500
LIMIT = 60


def journal() -> list[tuple[JournalRecord, ...]]:
    """Batches of one conversation; every third record is public."""
    batches: list[tuple[JournalRecord, ...]] = [(created(),)]
    seq, event = 1, 0
    while seq < RECORDS_MIN:
        batch: list[JournalRecord] = []
        for _ in range(SIZES[len(batches) % len(SIZES)]):
            seq += 1
            event += seq % 3 == 0
            batch.append(message(seq, event=event) if seq % 3 == 0 else requested(seq))
        batches.append(tuple(batch))
    return batches


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with open_sqlite(tmp_path) as opened:
        for batch in journal():
            await write(opened, batch)
            await write(opened, batch, key=conversation(2))
        yield opened


async def test_pages_from_anywhere_are_the_same_records(store: SqliteStore) -> None:
    records = [record for batch in journal() for record in batch]
    public = [record for record in records if record.event]
    ends = [batch[-1].seq for batch in journal()]
    for seq in sorted({0, 1, *ends, *(end - 1 for end in ends), *range(0, len(records), 331)}):
        assert [*await store.records_after(KEY, seq=seq, limit=LIMIT)] == records[seq : seq + LIMIT]
    for event in range(0, len(public) + 1, 97):
        assert [*await store.events_after(KEY, event=event, limit=LIMIT)] == public[event : event + LIMIT]


async def test_what_is_far_is_read_beside_the_event_loop(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    for name in ("records_after", "events_after"):
        read = getattr(SqliteReader, name)

        def watched(*args: Any, read: Any = read, **named: Any) -> Any:
            threads.append(threading.get_ident())
            return read(*args, **named)

        monkeypatch.setattr(SqliteReader, name, watched)
    head = await store.head(KEY)
    assert head.event > 2_300
    await store.records_after(KEY, seq=head.seq - LIMIT, limit=LIMIT)
    await store.events_after(KEY, event=head.event - LIMIT, limit=LIMIT)
    assert threads == [threading.get_ident()] * 2
    threads.clear()
    await store.records_after(KEY, seq=0, limit=LIMIT)
    await store.events_after(KEY, event=0, limit=LIMIT)
    assert threads.count(threading.get_ident()) == 0


@pytest.mark.parametrize(("size_bytes", "found"), [(None, 6), (100_000, 1), (10_000_000, 6)])
async def test_what_is_large_is_read_beside_the_event_loop_unless_little_of_it_is_asked_for(
    size_bytes: int | None, found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: dict[int, int] = {}
    read = SqliteReader.records_after

    def watched(*args: Any, **named: Any) -> Any:
        records = read(*args, **named)
        me = threading.get_ident()
        decoded[me] = max(decoded.get(me, 0), len(records))
        return records

    monkeypatch.setattr(SqliteReader, "records_after", watched)
    async with open_sqlite(tmp_path) as store:
        await write(store, (created(),))
        for seq in range(2, 8):
            large = msgspec.structs.replace(message(seq, event=seq - 1), blocks=(text_block("x" * 200_000),))
            await write(store, (large,))
        records = await store.records_after(KEY, seq=1, limit=100, size_bytes=size_bytes)

    assert [record.seq for record in records] == list(range(2, 2 + found))
    assert decoded[threading.get_ident()] <= 2
