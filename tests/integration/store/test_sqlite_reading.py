"""Reading the database file: damage is told by name, a running server is no obstacle, a sleeping one neither."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

from tests.support.sample_records import KEY, conversation, created, message, opening, requested
from tests.support.writing import write
from torpor.errors import JournalCorrupt, StoreUnusable
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord
from torpor.store.contract import Head, Snapshot, Store
from torpor.store.sqlite.connection import DATABASE_FILE
from torpor.store.sqlite.engine import SqliteStore, open_sqlite
from torpor.store.sqlite.reader import open_to_read

MARKER = "a text that is nowhere else in the file"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A store whose directory is ``tmp_path``."""
    async with open_sqlite(tmp_path) as opened:
        yield opened


async def put_five(store: Store) -> None:
    """Five batches of one conversation among those of another: records 1 to 6, event 1."""
    await write(store, opening())
    await write(store, opening(), key=conversation(2))
    for seq in range(3, 7):
        await write(store, (requested(seq),), due_us=5)
        await write(store, (requested(seq),), key=conversation(2))


def tamper(directory: Path, sql: str) -> None:
    db = sqlite3.connect(directory / DATABASE_FILE)
    with db:
        assert db.execute(sql).rowcount >= 1
    db.close()


OURS = "number = (SELECT number FROM conversations WHERE conversation = 'c_1')"


class TestDamage:
    @pytest.mark.parametrize(
        ("sql", "reason"),
        [
            (f"DELETE FROM journal WHERE {OURS} AND first_seq = 4", "records 1 to 4 are missing"),
            (f"DELETE FROM journal WHERE {OURS} AND first_seq = 6", "ends at record 0, expected 6"),
            (f"DELETE FROM journal WHERE {OURS} AND first_seq = 1", "records 1 to 2 are missing"),
            (f"UPDATE journal SET records = '[' WHERE {OURS} AND first_seq = 4", "batch 4 cannot be decoded"),
            (
                f"UPDATE journal SET records = CAST(x'5bff5d' AS TEXT) WHERE {OURS} AND first_seq = 4",
                "batch 4 cannot be decoded",
            ),
            (
                f"""UPDATE journal SET records = '[{{"kind":"of_a_later_version","seq":4}}]'
                WHERE {OURS} AND first_seq = 4""",
                "batch 4 cannot be decoded.*of_a_later_version",
            ),
            (f"UPDATE journal SET first_seq = 5 WHERE {OURS} AND first_seq = 4", "records 4 to 4 are missing"),
            (f"UPDATE journal SET last_seq = 5 WHERE {OURS} AND first_seq = 4", "record 5 is there twice"),
            (
                f"UPDATE journal SET last_event = 7 WHERE {OURS} AND first_seq = 4",
                "event 1, expected record 4, event 7",
            ),
            (f"UPDATE journal SET number = 99 WHERE {OURS} AND first_seq = 4", "records 1 to 4 are missing"),
            (f"UPDATE journal SET previous = position WHERE {OURS} AND first_seq = 4", "records 1 to 3 are missing"),
            (f"UPDATE journal SET previous = 1000 WHERE {OURS} AND first_seq = 4", "records 1 to 3 are missing"),
            ("UPDATE conversations SET last_position = 0 WHERE conversation = 'c_1'", "ends at record 0, expected 6"),
            ("UPDATE conversations SET seq = 7 WHERE conversation = 'c_1'", "ends at record 6, expected 7"),
            ("UPDATE conversations SET seq = 5 WHERE conversation = 'c_1'", "ends at record 6, event 1, expected 5, 1"),
            (
                "UPDATE conversations SET event = 9 WHERE conversation = 'c_1'",
                "ends at record 6, event 1, expected 6, 9",
            ),
        ],
    )
    async def test_a_journal_that_does_not_add_up_is_told_by_key_and_reason(
        self, tmp_path: Path, store: SqliteStore, sql: str, reason: str
    ) -> None:
        await put_five(store)
        tamper(tmp_path, sql)
        with pytest.raises(JournalCorrupt, match=f"acme/ann/c_1.*{reason}") as refused:
            await store.load(KEY)
        assert refused.value.key == KEY.path
        assert len((await store.load(conversation(2))).tail) == 6

    async def test_pages_of_a_journal_with_a_hole_end_in_an_error_and_not_early(
        self, tmp_path: Path, store: SqliteStore
    ) -> None:
        await put_five(store)
        tamper(tmp_path, f"DELETE FROM journal WHERE {OURS} AND first_seq = 1")
        with pytest.raises(JournalCorrupt):
            await store.records_after(KEY, seq=0, limit=100)
        with pytest.raises(JournalCorrupt):
            await store.events_after(KEY, event=0, limit=100)
        assert [record.seq for record in await store.records_after(KEY, seq=3, limit=100)] == [4, 5, 6]

    async def test_a_snapshot_ahead_of_the_journal_is_corrupt_and_without_it_the_journal_reads(
        self, tmp_path: Path, store: SqliteStore
    ) -> None:
        await put_five(store)
        lease = await store.acquire(KEY, holder="s", ttl_s=1, now_us=0)
        await store.put_snapshot(KEY, fence=lease.fence, snapshot=Snapshot(seq=6, version=1, data=b"x"))
        tamper(tmp_path, "UPDATE snapshots SET seq = 8")
        with pytest.raises(JournalCorrupt, match="snapshot is at record 8, but it ends at 6"):
            await store.load(KEY)
        assert len((await store.load(KEY, use_snapshot=False)).tail) == 6

    async def test_a_damaged_page_spoils_the_conversation_on_it_and_no_other(self, tmp_path: Path) -> None:
        async with open_sqlite(tmp_path) as store:
            await write(store, (created(), message(2, event=1, text=MARKER * 40)))
            await write(store, (created(), message(2, event=1, text="y" * 6000)), key=conversation(2))
        path = tmp_path / DATABASE_FILE
        data = bytearray(path.read_bytes())
        (page_bytes,) = (int.from_bytes(data[16:18], "big"),)
        page = data.index(MARKER.encode()) // page_bytes
        data[page * page_bytes : page * page_bytes + 8] = b"\xee" * 8
        path.write_bytes(data)
        async with open_sqlite(tmp_path) as store:
            with pytest.raises(JournalCorrupt, match=r"acme/ann/c_1.*database is damaged"):
                await store.load(KEY)
            assert [row.key for row in await store.list_conversations(tenant=None, owner=None, limit=9)] == [
                KEY,
                conversation(2),
            ]

    async def test_a_read_across_conversations_passes_over_a_name_that_cannot_be_read(
        self, tmp_path: Path, store: SqliteStore
    ) -> None:
        await put_five(store)
        tamper(tmp_path, "UPDATE conversations SET conversation = CAST(x'ff' AS TEXT) WHERE conversation = 'c_1'")
        assert await store.due(now_us=9, limit=9) == ()
        rows = await store.list_conversations(tenant=None, owner=None, limit=9)
        assert [row.key for row in rows] == [conversation(2)]


class TestLongJournals:
    async def test_a_long_journal_is_loaded_whole_and_its_end_by_pages(self, store: SqliteStore) -> None:
        records: list[JournalRecord] = [*opening()]
        await write(store, tuple(records))
        while len(records) < 1000:
            batch = tuple(requested(len(records) + 1 + offset) for offset in range(3))
            await write(store, batch)
            records += batch
        with anyio.fail_after(20):
            assert (await store.load(KEY)).tail == tuple(records)
        assert await store.records_after(KEY, seq=998, limit=9) == tuple(records[998:])
        assert await store.records_after(KEY, seq=0, limit=4) == tuple(records[:4])

    async def test_loads_at_once_do_not_disturb_each_other(self, store: SqliteStore) -> None:
        for number in range(4):
            key = conversation(number)
            await write(store, (created(), message(2, event=1)), key=key)
            for first in (3, 131, 259):
                await write(store, tuple(requested(seq) for seq in range(first, first + 128)), key=key)
        lengths: list[int] = []

        async def load(key: ConversationKey) -> None:
            lengths.append(len((await store.load(key)).tail))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for number in range(40):
                    tasks.start_soon(load, conversation(number % 4))
        assert lengths == [386] * 40


class TestFromOutside:
    async def test_a_file_is_read_while_a_server_writes_to_it(self, tmp_path: Path, store: SqliteStore) -> None:
        await write(store, opening(title="seen from outside"))
        with open_to_read(tmp_path) as reader:
            assert reader.load(KEY).tail == opening(title="seen from outside")
            await write(store, (requested(3),))
            assert reader.head(KEY) == Head(seq=3, event=1, batch_id="b_3")
            assert [row.title for row in reader.list_conversations(tenant=None, owner=None, limit=9)] == [
                "seen from outside"
            ]
        await write(store, (requested(4),))

    async def test_a_file_is_read_when_no_server_runs(self, tmp_path: Path) -> None:
        async with open_sqlite(tmp_path) as store:
            await write(store, opening(), due_us=5)
        with open_to_read(tmp_path) as reader:
            assert reader.records_after(KEY, seq=0, limit=9) == opening()
            assert reader.due(now_us=5, limit=9) == (KEY,)
            assert (reader.jobs(KEY), reader.timers(KEY)) == ((), ())

    async def test_a_file_that_was_left_by_a_crash_is_read(self, tmp_path: Path) -> None:
        left = tmp_path / "left"
        left.mkdir()
        async with open_sqlite(tmp_path / "data") as store:
            await write(store, opening())
            for name in (DATABASE_FILE, DATABASE_FILE + "-wal"):
                (left / name).write_bytes((tmp_path / "data" / name).read_bytes())
        with open_to_read(left) as reader:
            assert reader.load(KEY).tail == opening()

    async def test_reading_changes_no_byte_of_the_database(self, tmp_path: Path) -> None:
        async with open_sqlite(tmp_path) as store:
            await write(store, opening())
        before = (tmp_path / DATABASE_FILE).read_bytes()
        with open_to_read(tmp_path) as reader:
            reader.load(KEY)
        assert (tmp_path / DATABASE_FILE).read_bytes() == before

    def test_a_directory_without_a_database_is_refused_and_left_as_it_is(self, tmp_path: Path) -> None:
        with pytest.raises(StoreUnusable, match=r"torpor\.db does not exist"), open_to_read(tmp_path):
            pass
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("spoil", "expected"),
        [
            (lambda path: path.write_bytes(b"no database " * 999), "cannot be read: file is not a database"),
            (lambda path: sqlite3.connect(path).execute("CREATE TABLE x (y)"), "database of another program"),
            (lambda path: path.write_bytes(b""), "start the server once"),
        ],
        ids=["garbage", "foreign", "empty"],
    )
    def test_a_file_that_cannot_be_read_is_refused(
        self, tmp_path: Path, spoil: Callable[[Path], object], expected: str
    ) -> None:
        spoil(tmp_path / DATABASE_FILE)
        with pytest.raises(StoreUnusable, match=expected), open_to_read(tmp_path):
            pass
