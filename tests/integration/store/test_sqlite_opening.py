"""Opening a data directory: who may, what is refused and why, and how an older file is brought up to date."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.support.sample_records import KEY, opening, requested
from tests.support.writing import lease_of, put, write
from torpor.errors import Fenced, StoreUnusable
from torpor.store.sqlite.connection import DATABASE_FILE
from torpor.store.sqlite.engine import open_sqlite, open_sqlite_inline
from torpor.store.sqlite.migrations import APPLICATION_ID, MIGRATIONS, migrate


async def test_what_was_appended_is_there_after_a_restart(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as store:
        await write(store, opening())
    async with open_sqlite_inline(tmp_path) as store:
        await write(store, (requested(3),))
    async with open_sqlite(tmp_path) as store:
        assert (await store.load(KEY)).tail == (*opening(), requested(3))


async def test_each_start_has_a_greater_fence_and_an_earlier_one_writes_nothing(tmp_path: Path) -> None:
    fences = []
    for _ in range(3):
        async with open_sqlite(tmp_path) as store:
            fences.append((await lease_of(store)).fence)
    assert fences == [1, 2, 3]
    async with open_sqlite(tmp_path) as store:
        with pytest.raises(Fenced) as refused:
            await put(store, msgspec.structs.replace(await lease_of(store), fence=3), opening())
        assert (refused.value.fence, refused.value.newer) == (3, 4)
        assert await store.describe(KEY) is None


async def test_a_process_whose_lock_failed_is_fenced_by_the_next_start(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as store:
        lease = await lease_of(store)
        await put(store, lease, opening())
        # What a second server would do first, on a file system that ignores locks.
        with sqlite3.connect(tmp_path / DATABASE_FILE) as intruder:
            intruder.execute("UPDATE boot SET number = number + 1")
        intruder.close()
        with pytest.raises(Fenced):
            await put(store, lease, (requested(3),))
        assert (await store.head(KEY)).seq == 2


async def test_acquiring_renewing_and_releasing_write_nothing(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as store:
        await write(store, opening())
        before = files(tmp_path)
        for _ in range(5):
            lease = await store.renew(await lease_of(store), ttl_s=1, now_us=0)
            await store.release(lease)
        await store.head(KEY)
        assert files(tmp_path) == before


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".db-shm"}


async def test_the_directory_and_its_files_are_for_their_user_only(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    async with open_sqlite(data) as store:
        await write(store, opening())
        assert data.stat().st_mode & 0o777 == 0o700
        modes = {path.name: path.stat().st_mode & 0o777 for path in data.iterdir()}
    assert modes == dict.fromkeys(("lock", "torpor.db", "torpor.db-wal", "torpor.db-shm"), 0o600)


HOLDER = """
import pathlib, sys
from torpor.store.sqlite.data_lock import DataLock
with DataLock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the directory."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


async def test_a_directory_in_use_is_refused_by_name_and_with_the_remedy(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(StoreUnusable, match=rf"{tmp_path} is in use by the process {holder.pid}.*--data"):
        await open_sqlite(tmp_path).__aenter__()
    holder.kill()
    holder.wait(timeout=20)
    async with open_sqlite(tmp_path) as store:
        assert (await lease_of(store)).fence == 1


async def test_the_same_process_cannot_open_a_directory_twice(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path):
        with pytest.raises(StoreUnusable, match="in use"):
            await open_sqlite_inline(tmp_path).__aenter__()


async def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_FILE
    path.write_bytes(b"not a database at all, " * 500)
    with pytest.raises(StoreUnusable, match="cannot be opened: file is not a database"):
        await open_sqlite(tmp_path).__aenter__()
    assert path.read_bytes() == b"not a database at all, " * 500


async def test_a_database_of_another_program_is_refused_and_kept(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / DATABASE_FILE) as foreign:
        foreign.execute("CREATE TABLE theirs (x)")
    foreign.close()
    with pytest.raises(StoreUnusable, match="database of another program"):
        await open_sqlite(tmp_path).__aenter__()
    with sqlite3.connect(tmp_path / DATABASE_FILE) as foreign:
        assert foreign.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    foreign.close()


async def test_a_newer_database_is_refused_and_names_both_versions(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path):
        pass
    with sqlite3.connect(tmp_path / DATABASE_FILE) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    expected = rf"schema version {len(MIGRATIONS) + 1}, this engine knows up to {len(MIGRATIONS)}: upgrade torpor"
    with pytest.raises(StoreUnusable, match=expected):
        await open_sqlite(tmp_path).__aenter__()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("DELETE FROM boot", "its table 'boot' holds 0 rows, expected one count"),
        ("INSERT INTO boot VALUES (7)", "its table 'boot' holds 2 rows, expected one count"),
        ("UPDATE boot SET number = -3", "its table 'boot' holds -3, expected one count"),
        ("UPDATE boot SET number = 9223372036854775807", "its table 'boot' holds 9223372036854775807, expected"),
        ("DROP TABLE boot; CREATE TABLE boot (number); INSERT INTO boot VALUES ('x')", "its table 'boot' holds 'x'"),
        ("DROP TABLE boot; CREATE TABLE boot (other)", "no such column: number"),
        ("DROP TABLE boot", "it lacks the tables boot"),
        ("DROP TABLE journal; DROP TABLE receipts", "it lacks the tables journal, receipts"),
    ],
)
async def test_a_database_without_what_a_start_needs_is_refused_and_kept(
    tmp_path: Path, damage: str, complaint: str
) -> None:
    async with open_sqlite(tmp_path) as store:
        await write(store, opening())
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as db:
        db.executescript(damage)
        left = list(db.iterdump())
    with pytest.raises(StoreUnusable, match=complaint):
        await open_sqlite(tmp_path).__aenter__()
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as db:
        assert list(db.iterdump()) == left


async def test_a_directory_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnusable, match="file/data cannot be written"):
        await open_sqlite(tmp_path / "file" / "data").__aenter__()


async def test_a_failed_opening_lets_go_of_the_directory(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_FILE
    path.write_bytes(b"not a database at all, " * 500)
    with pytest.raises(StoreUnusable):
        await open_sqlite(tmp_path).__aenter__()
    path.unlink()
    async with open_sqlite(tmp_path) as store:
        assert (await lease_of(store)).fence == 1


class TestMigrations:
    NEWEST = len(MIGRATIONS)
    FAKE_NEXT = (*MIGRATIONS, ("ALTER TABLE conversations ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'",))
    BROKEN_NEXT = (*MIGRATIONS, ("CREATE TABLE half (x)", "INSERT INTO nowhere VALUES (1)"))

    @pytest.fixture
    async def database(self, tmp_path: Path) -> Path:
        """A database of the newest version with one conversation in it."""
        async with open_sqlite(tmp_path) as store:
            await write(store, opening())
        return tmp_path / DATABASE_FILE

    async def test_the_next_version_keeps_what_is_there(self, database: Path) -> None:
        db = sqlite3.connect(database, isolation_level=None)
        migrate(db, path="x", migrations=self.FAKE_NEXT)
        assert db.execute("PRAGMA user_version").fetchone() == (self.NEWEST + 1,)
        assert db.execute("SELECT conversation, seq, mood FROM conversations").fetchall() == [("c_1", 2, "calm")]
        migrate(db, path="x", migrations=self.FAKE_NEXT)
        with pytest.raises(
            StoreUnusable, match=f"schema version {self.NEWEST + 1}, this engine knows up to {self.NEWEST}"
        ):
            migrate(db, path="x")
        db.close()

    async def test_a_step_that_fails_leaves_the_version_before_it_whole(self, database: Path) -> None:
        db = sqlite3.connect(database, isolation_level=None)
        with pytest.raises(sqlite3.OperationalError, match="nowhere"):
            migrate(db, path="x", migrations=self.BROKEN_NEXT)
        assert db.execute("PRAGMA user_version").fetchone() == (self.NEWEST,)
        assert db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'half'").fetchone() == (0,)
        db.close()
        async with open_sqlite(database.parent) as store:
            assert (await store.load(KEY)).tail == opening()

    @pytest.mark.parametrize(
        ("version", "checksums", "after"),
        [(2, [], 3), (3, [None, 7, 8], 1), (3, [7, 8, 9], 0), (3, [None, None, None], 3)],
    )
    async def test_where_checksums_begin_is_written_down_in_an_older_file(
        self, tmp_path: Path, version: int, checksums: list[int | None], after: int
    ) -> None:
        with closing(sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)) as db:
            migrate(db, path="x", migrations=MIGRATIONS[:version])
            columns = "position, number, previous, first_seq, last_seq, last_event, records"
            rows = [(position, position - 1, position, position) for position in (1, 2, 3)]
            db.executemany(f"INSERT INTO journal ({columns}) VALUES (?, 1, ?, ?, ?, 0, '[]')", rows)
            for position, checksum in enumerate(checksums, start=1):
                db.execute("UPDATE journal SET checksum = ? WHERE position = ?", (checksum, position))
        async with open_sqlite(tmp_path):
            pass
        with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as db:
            assert db.execute("SELECT after FROM checksums").fetchall() == [(after,)]

    async def test_in_a_new_file_checksums_begin_with_the_first_row(self, database: Path) -> None:
        with closing(sqlite3.connect(database)) as db:
            assert db.execute("SELECT after FROM checksums").fetchall() == [(0,)]
            assert db.execute("SELECT count(*) FROM journal WHERE checksum IS NULL").fetchone() == (0,)

    async def test_the_file_says_whose_it_is(self, database: Path) -> None:
        db = sqlite3.connect(database)
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        db.close()
