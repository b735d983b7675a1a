"""Nothing acknowledged is lost: to cancelled callers, to SIGKILL, to readers that hold up a checkpoint."""

import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from tests.support.append_for_ever import CONVERSATIONS
from tests.support.sample_records import KEY, conversation, message, opening, receipt, requested
from tests.support.writing import write
from torpor.errors import StoreUnavailable
from torpor.records.ids import ConversationKey, MessageId
from torpor.store.contract import Head, Snapshot
from torpor.store.options import StoreOptions
from torpor.store.requests import CommitCore, Outcome, Request
from torpor.store.sqlite.connection import DATABASE_FILE
from torpor.store.sqlite.engine import SqliteStore, open_sqlite, open_sqlite_inline
from torpor.store.sqlite.reader import open_to_read

Opened = Callable[[Path], AbstractAsyncContextManager[SqliteStore]]
DEADLINE_S = 60


class TestCancelledCallers:
    @pytest.mark.parametrize("opened", [open_sqlite, open_sqlite_inline])
    @pytest.mark.parametrize("seed", range(3))
    async def test_callers_cancelled_at_random_points_lose_reorder_and_halve_nothing(
        self, tmp_path: Path, opened: Opened, seed: int
    ) -> None:
        chance = random.Random(seed)
        cancelled = 0
        async with opened(tmp_path) as store:

            async def append_all(key: ConversationKey) -> None:
                nonlocal cancelled
                await write(store, opening(), key=key)
                for seq in range(3, 43):
                    with anyio.move_on_after(chance.choice([0, 0.0002, 0.001, DEADLINE_S])) as scope:
                        await write(store, (message(seq, event=seq - 1),), key=key)
                    cancelled += scope.cancelled_caught
                    if scope.cancelled_caught and (await store.head(key)).seq < seq:
                        # Cancelled before it was handed over, which acquire allows.
                        await write(store, (message(seq, event=seq - 1),), key=key)

            with anyio.fail_after(DEADLINE_S):
                async with anyio.create_task_group() as tasks:
                    for number in range(5):
                        tasks.start_soon(append_all, conversation(number))
        assert cancelled > 20
        with open_to_read(tmp_path) as reader:
            for number in range(5):
                tail = reader.load(conversation(number)).tail
                assert tail == (*opening(), *(message(seq, event=seq - 1) for seq in range(3, 43)))

    async def test_closing_commits_what_was_handed_over(self, tmp_path: Path) -> None:
        async with open_sqlite(tmp_path) as store:
            lease = await store.acquire(KEY, holder="s", ttl_s=1, now_us=0)
            ticket = store.append(
                KEY, fence=lease.fence, expected_seq=0, batch_id="b", records=opening(), dedupe={}, due_us=None
            )
        await ticket.wait()
        with open_to_read(tmp_path) as reader:
            assert reader.load(KEY).tail == opening()
        with pytest.raises(StoreUnavailable, match="the store is closed"):
            await store.head(KEY)

    async def test_a_cancelled_world_still_commits_what_was_handed_over(self, tmp_path: Path) -> None:
        with anyio.CancelScope() as world:
            async with open_sqlite(tmp_path) as store:
                lease = await store.acquire(KEY, holder="s", ttl_s=1, now_us=0)
                store.append(
                    KEY, fence=lease.fence, expected_seq=0, batch_id="b", records=opening(), dedupe={}, due_us=None
                )
                world.cancel()
                await anyio.lowlevel.checkpoint()
        with open_to_read(tmp_path) as reader:
            assert reader.head(KEY) == Head(seq=2, event=1, batch_id="b")


class TestWriterThatBreaks:
    async def test_nobody_waits_for_ever_when_the_core_raises_what_it_must_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        raised = threading.Event()
        monkeypatch.setattr("threading.excepthook", lambda _: raised.set())

        class Broken:
            def commit(self, requests: Sequence[Request]) -> list[Outcome]:
                raise ZeroDivisionError

        def broken(core: CommitCore) -> CommitCore:
            return Broken()

        with anyio.fail_after(DEADLINE_S):
            async with open_sqlite(tmp_path, wrap_core=broken) as store:
                for _ in range(3):
                    with pytest.raises(StoreUnavailable, match="its writer has stopped"):
                        await store.head(KEY)
            assert await anyio.to_thread.run_sync(raised.wait, DEADLINE_S / 2)


class TestWriteAheadLog:
    OPTIONS = StoreOptions(wal_truncate_bytes=100_000)
    BIG = Snapshot(seq=2, version=1, data=b"x" * 300_000)

    @staticmethod
    def log_bytes(directory: Path) -> int:
        path = directory / (DATABASE_FILE + "-wal")
        return path.stat().st_size if path.exists() else 0

    async def test_a_long_log_is_emptied_after_a_snapshot_and_a_short_one_is_left(self, tmp_path: Path) -> None:
        async with open_sqlite(tmp_path, options=self.OPTIONS) as store:
            await write(store, opening())
            lease = await store.acquire(KEY, holder="s", ttl_s=1, now_us=0)
            await store.put_snapshot(KEY, fence=lease.fence, snapshot=Snapshot(seq=2, version=1, data=b"small"))
            await store.head(KEY)
            assert 0 < self.log_bytes(tmp_path) < 100_000
            await store.put_snapshot(KEY, fence=lease.fence, snapshot=self.BIG)
            await store.head(KEY)
            assert self.log_bytes(tmp_path) == 0
            assert (await store.load(KEY)).snapshot == self.BIG

    async def test_a_long_log_is_emptied_when_a_conversation_leaves_without_a_snapshot(self, tmp_path: Path) -> None:
        async with open_sqlite(tmp_path, options=self.OPTIONS) as store:
            await write(store, opening())
            for seq in range(3, 60):
                await write(store, (message(seq, event=seq - 1, text="x" * 2000),))
            assert self.log_bytes(tmp_path) > 100_000
            await store.release(await store.acquire(KEY, holder="s", ttl_s=1, now_us=0))
            await store.head(KEY)
            assert self.log_bytes(tmp_path) == 0

    async def test_closing_leaves_one_file_with_everything_in_it(self, tmp_path: Path) -> None:
        async with open_sqlite(tmp_path) as store:
            await write(store, opening())
        assert sorted(names(tmp_path)) == ["lock", DATABASE_FILE]

    async def test_a_long_reader_delays_the_emptying_and_no_writer(self, tmp_path: Path) -> None:
        async with open_sqlite(tmp_path, options=self.OPTIONS) as store:
            await write(store, opening())
            lease = await store.acquire(KEY, holder="s", ttl_s=1, now_us=0)
            long_reader = sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)
            long_reader.execute("BEGIN")
            assert long_reader.execute("SELECT seq FROM conversations").fetchall() == [(2,)]
            with anyio.fail_after(DEADLINE_S):
                for seq in range(3, 30):
                    await write(store, (message(seq, event=seq - 1, text="x" * 2000),))
                    await store.put_snapshot(KEY, fence=lease.fence, snapshot=self.BIG)
            assert long_reader.execute("SELECT seq FROM conversations").fetchall() == [(2,)]
            long_reader.close()
            await store.put_snapshot(KEY, fence=lease.fence, snapshot=self.BIG)
            await store.head(KEY)
            assert self.log_bytes(tmp_path) == 0
            assert len((await store.load(KEY, use_snapshot=False)).tail) == 29

    async def test_the_log_stays_bounded_while_thirty_conversations_write_and_another_process_reads(
        self, tmp_path: Path
    ) -> None:
        async with open_sqlite(tmp_path) as store:

            async def converse(number: int) -> None:
                key = conversation(number)
                await write(store, opening(), key=key)
                for seq in range(3, 60):
                    await write(store, (message(seq, event=seq - 1, text="x" * 3000),), key=key)
                    with open_to_read(tmp_path) as reader:
                        assert reader.head(key).seq == seq

            with anyio.fail_after(DEADLINE_S):
                async with anyio.create_task_group() as tasks:
                    for number in range(30):
                        tasks.start_soon(converse, number)
            # A checkpoint is due at 4,000 pages of 1 KB; a group of 30 may come on top.
            assert self.log_bytes(tmp_path) < 5_000_000

    async def test_a_reader_sees_the_last_commit_while_a_foreign_writer_holds_the_lock(self, tmp_path: Path) -> None:
        async with open_sqlite(tmp_path, options=StoreOptions(busy_timeout_s=DEADLINE_S)) as store:
            await write(store, opening())
            foreign = sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)
            foreign.execute("BEGIN IMMEDIATE")
            lease = await store.acquire(KEY, holder="s", ttl_s=1, now_us=0)
            ticket = store.append(
                KEY, fence=lease.fence, expected_seq=2, batch_id="b", records=(requested(3),), dedupe={}, due_us=None
            )
            with anyio.fail_after(DEADLINE_S / 2):
                assert (await store.load(KEY)).tail == opening()
                assert await store.receipt(KEY, MessageId("m_2")) is None
                foreign.execute("ROLLBACK")
                foreign.close()
                await ticket.wait()
            assert (await store.load(KEY)).head.seq == 3


class TestKilled:
    def test_everything_acknowledged_is_there_after_sigkill_and_the_next_process_goes_on(self, tmp_path: Path) -> None:
        acknowledged = dict.fromkeys(range(CONVERSATIONS), 0)
        for acknowledgements in (40, 150, 7, 90, 211):
            for number, seq in killed_after(acknowledgements, tmp_path):
                assert seq > acknowledged[number]
                acknowledged[number] = seq
            self.check(tmp_path, acknowledged)
        assert sum(acknowledged.values()) > 1000

    @staticmethod
    def check(directory: Path, acknowledged: dict[int, int]) -> None:
        with open_to_read(directory) as reader:
            for number, seq in acknowledged.items():
                key = conversation(number)
                loaded = reader.load(key, use_snapshot=False)
                assert loaded.head.seq >= seq
                assert loaded.head.batch_id == (f"b_{loaded.head.seq}" if loaded.head.seq else "")
                assert [record.seq for record in loaded.tail] == list(range(1, loaded.head.seq + 1))
                assert reader.load(key).head == loaded.head
                for record in loaded.tail:
                    id_ = MessageId(f"m_{record.seq}")
                    assert reader.receipt(key, id_) == receipt(id_)
                row = reader.describe(key)
                assert (row.due_us if row else 0) == loaded.head.seq
        db = sqlite3.connect(directory / DATABASE_FILE)
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        db.close()


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def killed_after(acknowledgements: int, directory: Path) -> list[tuple[int, int]]:
    """Let a process append, kill it in full flight, and return what it was told is durable."""
    command = [sys.executable, "-m", "tests.support.append_for_ever", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(acknowledgements)]
        process.kill()
        lines += process.stdout.readlines()
    whole = [line.split() for line in lines if line.endswith("\n")]
    return [(int(number), int(seq)) for number, seq in whole]
