"""The embedded store, put together: a locked directory, a boot number, one writer, and readers that wait for nobody.

Above: the composition root, which opens it, and everyone who takes a ``Store``. The process's boot number is the fence
of every lease, so that thawing writes nothing; the database compares it with each write.
"""

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio.lowlevel
import anyio.to_thread
import msgspec
import structlog

from torpor.errors import Fenced, StoreError, StoreUnusable
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord
from torpor.store.contract import (
    Cause,
    DirectoryRow,
    Erased,
    Job,
    Lease,
    Loaded,
    Snapshot,
    Timer,
)
from torpor.store.job_contract import JobStore
from torpor.store.job_port import JobPort
from torpor.store.options import StoreOptions
from torpor.store.requests import CommitCore, Erase, Tidy
from torpor.store.sqlite.connection import DATABASE_FILE, connect, connect_to_read
from torpor.store.sqlite.data_lock import DataLock
from torpor.store.sqlite.journal import SqliteCore
from torpor.store.sqlite.migrations import count_start, migrate
from torpor.store.sqlite.reader import SqliteReader
from torpor.store.sqlite.writer_thread import WriterThread
from torpor.store.writer import PendingTicket, TaskWriter, Writer, ask_erased
from torpor.store.writes import Writes

_log = structlog.get_logger()

_LARGE_LOG_BYTES: Final = 131_072
_LARGE_LOG_SHARE: Final = 16
"""A write-ahead log is large when it holds more than this, and more than this part of the database."""
_EMPTYINGS_MAX: Final = 40
_EMPTYING_PAUSE_S: Final = 0.05
"""After an erasure the log has to be emptied, which a reader holds up for as long as it reads."""
_INLINE_RECORDS: Final = 256
"""A longer backlog is read in a thread: decoding it takes milliseconds, which the event loop has not got."""


class StoreStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Now."""

    waiting: int
    """Writes handed over and not answered yet."""
    database_bytes: int
    log_bytes: int
    """Of the write-ahead log."""


_NEAR_RECORDS: Final = 2_048
"""What stands further behind the head is read in a thread: the walk along the rows to it takes milliseconds."""
_INLINE_BYTES: Final = 262_144
"""Records that take up more are read in a thread as well, wherever they stand."""
_INLINE_HANDLES: Final = 256
"""More than these are looked for in a thread."""
_Read = TypeVar("_Read")


class SqliteStore(Writes):
    """Implements ``store.contract.Store``. Made by ``open_sqlite``."""

    def __init__(
        self,
        writer: Writer,
        reader: SqliteReader,
        *,
        boot: int,
        path: Path,
        options: StoreOptions,
        thread_reader: SqliteReader | None,
    ) -> None:
        super().__init__(writer)
        self._reader = reader
        self._boot = boot
        self._path = path
        self._log_path = path.with_name(path.name + "-wal")
        self._options = options
        self._thread_reader = thread_reader
        self._thread_limit = anyio.CapacityLimiter(1)  # that reader serves one thread at a time
        self._tidying: PendingTicket | None = None
        self._is_log_tainted = _size_of(self._log_path) > 0
        """Whether the log holds what was erased, since somebody from outside reads, or may do so, since a process was
        killed before it was emptied."""
        self._job_port = JobPort(writer, reader.every_job, fence=boot)

    @property
    def job_store(self) -> JobStore:
        """The same jobs across conversations."""
        return self._job_port

    def statistics(self) -> StoreStatistics:
        return StoreStatistics(
            waiting=self._writer.waiting,
            database_bytes=_size_of(self._path),
            log_bytes=_size_of(self._log_path),
        )

    async def acquire(self, key: ConversationKey, *, holder: str, ttl_s: float, now_us: int) -> Lease:
        return Lease(key=key, holder=holder, fence=self._boot, expires_us=0)

    async def renew(self, lease: Lease, *, ttl_s: float, now_us: int) -> Lease:
        if lease.fence != self._boot:
            raise Fenced(lease.key.path, fence=lease.fence, newer=self._boot)
        return lease

    async def release(self, lease: Lease) -> None:
        self._tidy_when_large()

    async def load(self, key: ConversationKey, *, use_snapshot: bool = True) -> Loaded:
        await anyio.lowlevel.checkpoint()
        if self._thread_reader is None or self._reader.backlog(key) <= _INLINE_RECORDS:
            return self._reader.load(key, use_snapshot=use_snapshot)
        return await self._in_thread(partial(self._thread_reader.load, key, use_snapshot=use_snapshot))

    async def put_snapshot(self, key: ConversationKey, *, fence: int, snapshot: Snapshot) -> None:
        await super().put_snapshot(key, fence=fence, snapshot=snapshot)
        self._tidy_when_large()

    async def receipt(self, key: ConversationKey, message_id: MessageId) -> Receipt | None:
        await anyio.lowlevel.checkpoint()
        return self._reader.receipt(key, message_id)

    async def events_after(
        self, key: ConversationKey, *, event: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        await anyio.lowlevel.checkpoint()

        def read(reader: SqliteReader, size_bytes: int | None) -> tuple[JournalRecord, ...]:
            return reader.events_after(key, event=event, limit=limit, size_bytes=size_bytes)

        return await self._read_on(
            read, behind=lambda: self._reader.head(key).event - event, limit=limit, size_bytes=size_bytes
        )

    async def records_after(
        self, key: ConversationKey, *, seq: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        await anyio.lowlevel.checkpoint()

        def read(reader: SqliteReader, size_bytes: int | None) -> tuple[JournalRecord, ...]:
            return reader.records_after(key, seq=seq, limit=limit, size_bytes=size_bytes)

        return await self._read_on(
            read, behind=lambda: self._reader.head(key).seq - seq, limit=limit, size_bytes=size_bytes
        )

    async def due(self, *, now_us: int, limit: int) -> tuple[ConversationKey, ...]:
        await anyio.lowlevel.checkpoint()
        return self._reader.due(now_us=now_us, limit=limit)

    async def jobs(self, key: ConversationKey) -> tuple[Job, ...]:
        await anyio.lowlevel.checkpoint()
        return self._reader.jobs(key)

    async def timers(self, key: ConversationKey) -> tuple[Timer, ...]:
        await anyio.lowlevel.checkpoint()
        return self._reader.timers(key)

    async def describe(self, key: ConversationKey) -> DirectoryRow | None:
        await anyio.lowlevel.checkpoint()
        return self._reader.describe(key)

    async def list_conversations(
        self,
        *,
        tenant: str | None,
        owner: str | None,
        limit: int,
        after: ConversationKey | None = None,
        with_archived: bool = True,
    ) -> tuple[DirectoryRow, ...]:
        await anyio.lowlevel.checkpoint()
        return self._reader.list_conversations(
            tenant=tenant, owner=owner, limit=limit, after=after, with_archived=with_archived
        )

    async def children(self, key: ConversationKey, *, limit: int) -> tuple[DirectoryRow, ...]:
        await anyio.lowlevel.checkpoint()
        return self._reader.children(key, limit=limit)

    async def old_children(self, *, before_us: int, limit: int) -> tuple[ConversationKey, ...]:
        await anyio.lowlevel.checkpoint()
        return self._reader.old_children(before_us=before_us, limit=limit)

    async def epoch(self) -> int:
        await anyio.lowlevel.checkpoint()
        return self._reader.epoch()

    async def handles_of(self, key: ConversationKey) -> tuple[str, ...]:
        await anyio.lowlevel.checkpoint()
        return self._reader.handles_of(key)

    async def unnamed(self, key: ConversationKey, handles: Sequence[str]) -> tuple[str, ...]:
        await anyio.lowlevel.checkpoint()
        if self._thread_reader is None or len(handles) <= _INLINE_HANDLES:
            return self._reader.unnamed(key, handles)
        return await self._in_thread(partial(self._thread_reader.unnamed, key, handles))

    async def names_blob(self, key: ConversationKey, handle: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return self._reader.names_blob(key, handle)

    async def names_bundle(self, key: ConversationKey, handle: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return self._reader.names_bundle(key, handle)

    async def erase(self, lease: Lease, *, cause: Cause = Cause.DELETED, at_us: int = 0) -> Erased:
        request = Erase(key=lease.key, fence=lease.fence, cause=cause.value, at_us=at_us)
        erased = await ask_erased(self._writer, request)
        self._is_log_tainted = True
        return erased if await self.scrubbed() else msgspec.structs.replace(erased, lingers=True)

    async def scrubbed(self) -> bool:
        for attempt in range(_EMPTYINGS_MAX):
            if not self._is_log_tainted:
                return True
            if attempt:
                await anyio.sleep(_EMPTYING_PAUSE_S)
            # What others wrote since is no concern of ours: the log was empty in between.
            try:
                self._is_log_tainted = not await self._writer.submit(Tidy()).outcome()
            except StoreError as exc:  # nobody tidies any more; what was erased before is erased all the same
                _log.warning("store.log_not_emptied", path=str(self._log_path), why=str(exc))
                return False
        _log.warning("store.log_not_emptied", path=str(self._log_path))  # it is tried again whenever somebody leaves
        return not self._is_log_tainted

    async def count_conversations(self, *, tenant: str, owner: str, limit: int) -> int:
        await anyio.lowlevel.checkpoint()
        return self._reader.count_conversations(tenant=tenant, owner=owner, limit=limit)

    async def _read_on(
        self,
        read: Callable[[SqliteReader, int | None], tuple[JournalRecord, ...]],
        *,
        behind: Callable[[], int],
        limit: int,
        size_bytes: int | None,
    ) -> tuple[JournalRecord, ...]:
        """Here where it is near the head and small, else in a thread. Args: behind: how far it is from the head."""
        if self._thread_reader is None:
            return read(self._reader, size_bytes)
        if (there := behind()) <= _NEAR_RECORDS:
            bound_bytes = _inline(size_bytes)
            found = read(self._reader, bound_bytes)
            if bound_bytes == size_bytes or len(found) >= min(limit, there):
                return found
        return await self._in_thread(partial(read, self._thread_reader, size_bytes))

    async def _in_thread(self, read: Callable[[], _Read]) -> _Read:
        """One after the other, by the reader that is kept for it."""
        return await anyio.to_thread.run_sync(read, limiter=self._thread_limit)

    def _tidy_when_large(self) -> None:
        """Conversations leave all the time; the log is emptied when it has grown, and nobody waits for that.

        It has when it outweighs a share of the database: so a small home stays small, and a large one pays no more for
        each byte written.
        """
        if self._tidying is not None and not self._tidying.is_resolved:
            return
        log_bytes, database_bytes = _size_of(self._log_path), _size_of(self._path)
        large_bytes = max(_LARGE_LOG_BYTES, database_bytes // _LARGE_LOG_SHARE)
        self._is_log_tainted = self._is_log_tainted and log_bytes > 0
        if self._is_log_tainted or log_bytes > min(large_bytes, self._options.wal_truncate_bytes):
            self._tidying = self._writer.submit(Tidy())

    def __repr__(self) -> str:
        return f"<SqliteStore boot={self._boot} {self._writer!r}>"


def _inline(size_bytes: int | None) -> int:
    """What may be decoded on the event loop of what is asked for."""
    return _INLINE_BYTES if size_bytes is None else min(size_bytes, _INLINE_BYTES)


def _size_of(path: Path) -> int:
    """0 for a file that is not there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def open_sqlite(
    directory: Path,
    *,
    options: StoreOptions | None = None,
    wrap_core: Callable[[CommitCore], CommitCore] = lambda core: core,
) -> AbstractAsyncContextManager[SqliteStore]:
    """The store of ``directory``, written by a thread of its own.

    Args: wrap_core: puts a test's faults around the commit core.
    Raises: StoreUnusable: the directory is in use, cannot be written, or its database is damaged, foreign or newer.
    """
    return _open_threaded(directory, options=options or StoreOptions(), wrap_core=wrap_core)


def open_sqlite_inline(
    directory: Path,
    *,
    options: StoreOptions | None = None,
    latency: Callable[[], float] | None = None,
    wrap_core: Callable[[CommitCore], CommitCore] = lambda core: core,
) -> AbstractAsyncContextManager[SqliteStore]:
    """The same store without any thread: commits block the event loop, and runs are repeatable.

    Args: latency: seconds from taking a group of writes to committing it.  wrap_core: as in ``open_sqlite``.
    Raises: StoreUnusable: as ``open_sqlite``.
    """
    return _open_inline(directory, options=options or StoreOptions(), latency=latency, wrap_core=wrap_core)


@asynccontextmanager
async def _open_threaded(
    directory: Path, *, options: StoreOptions, wrap_core: Callable[[CommitCore], CommitCore]
) -> AsyncIterator[SqliteStore]:
    path = directory / DATABASE_FILE
    with DataLock(directory), _started(path, options) as (core, boot), _reader(path) as reader, _reader(path) as second:
        writer = WriterThread(wrap_core(core), group_limit=options.group_limit, at_end=core.close)
        writer.start()
        try:
            yield SqliteStore(writer, reader, boot=boot, path=path, options=options, thread_reader=second)
        finally:
            await writer.close()


@asynccontextmanager
async def _open_inline(
    directory: Path,
    *,
    options: StoreOptions,
    latency: Callable[[], float] | None,
    wrap_core: Callable[[CommitCore], CommitCore],
) -> AsyncIterator[SqliteStore]:
    path = directory / DATABASE_FILE
    with DataLock(directory), _started(path, options) as (core, boot), _reader(path) as reader:
        async with TaskWriter(wrap_core(core), group_limit=options.group_limit, latency=latency) as writer:
            yield SqliteStore(writer, reader, boot=boot, path=path, options=options, thread_reader=None)


@contextmanager
def _started(path: Path, options: StoreOptions) -> Iterator[tuple[SqliteCore, int]]:
    """The core of a database that is there, up to date and of this boot."""
    core = SqliteCore(partial(connect, path, options=options), path=path)
    try:
        boot = _boot(path, options)
        core.open()
    except sqlite3.Error as exc:
        raise StoreUnusable(f"{path} cannot be opened: {exc}") from exc
    _log.info("store.opened", path=str(path), boot=boot)
    try:
        yield core, boot
    finally:
        core.close()


def _boot(path: Path, options: StoreOptions) -> int:
    """Create or migrate, and count this start; durable before anything is written under its number."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    db = connect(path, options=options)
    try:
        migrate(db, path=str(path))
        return count_start(db, path=str(path))
    finally:
        db.close()


@contextmanager
def _reader(path: Path) -> Iterator[SqliteReader]:
    reader = SqliteReader(connect_to_read(path), path=path)
    try:
        yield reader
    finally:
        reader.close()
