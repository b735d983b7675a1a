"""Connections to the database file, and its errors in our words.

Above: the journal's core and the readers. Everything that is true of a connection and not of the file is set here:
durability, waiting times, the view through which a batch is inserted.
"""

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import structlog

from torpor.errors import JournalCorrupt, StoreError, StoreFull, StoreUnavailable
from torpor.records.ids import ConversationKey
from torpor.store.options import StoreOptions
from torpor.store.sqlite.migrations import PAGE_BYTES

DATABASE_FILE: Final = "torpor.db"

_log = structlog.get_logger()

_CHECKPOINT_PAGES: Final = 4000
"""About 4 MB of log: a checkpoint flushes three times, which few enough turns must share."""
_READ_BUSY_S: Final = 0.25
"""Readers wait for nobody in WAL mode, except while the log is being recovered."""
_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def connect(
    path: Path, *, options: StoreOptions, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    """A connection that writes; the file is created when it is not there.

    Raises: sqlite3.Error.
    """
    db = sqlite3.connect(
        path, timeout=options.busy_timeout_s, isolation_level=None, check_same_thread=False, factory=factory
    )
    try:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA secure_delete = ON")  # what is erased is overwritten, in pages that become free as well
        db.execute(f"PRAGMA synchronous = {options.synchronous}")
        db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        db.execute(f"PRAGMA journal_size_limit = {options.wal_truncate_bytes}")
    except sqlite3.Error:
        db.close()
        raise
    return db


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that cannot write. Raises: sqlite3.Error: also when there is no file."""
    uri = f"file:{quote(os.fsencode(path))}?mode=ro"
    return sqlite3.connect(uri, uri=True, timeout=_READ_BUSY_S, isolation_level=None, check_same_thread=False)


def translated(exc: sqlite3.Error, *, path: Path) -> StoreError:
    """What a writer is told."""
    code = primary_code(exc)
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"no space left for {path}, nothing was written: free some space")
    if code in _BUSY:
        return StoreUnavailable(f"{path} is held by another process, nothing was written: close what writes to it")
    return StoreUnavailable(f"{path} cannot be written: {exc}")


@contextmanager
def reading(path: Path, key: ConversationKey | None = None) -> Iterator[None]:
    """Translates errors of a read.

    Raises: JournalCorrupt: what is stored under ``key`` is damaged.  StoreUnavailable: anything else.
    """
    try:
        yield
    except sqlite3.Error as exc:
        if key is not None and is_damage(exc):
            raise damaged(key, exc) from exc
        raise StoreUnavailable(f"{path} cannot be read: {exc}") from exc


def sound_rows(
    db: sqlite3.Connection, sql: str, values: Sequence[str | int] | Mapping[str, str | int | None], *, path: Path
) -> Iterator[tuple[Any, ...]]:
    """Rows of many conversations: one whose text cannot be read is passed over, so that it harms no other."""
    db.text_factory = bytes
    try:
        rows = db.execute(sql, values).fetchall()
    finally:
        db.text_factory = str
    for row in rows:
        try:
            yield tuple(value.decode() if isinstance(value, bytes) else value for value in row)
        except UnicodeDecodeError:
            _log.error("directory.row_unreadable", path=str(path), row=repr(row[:3]))


def is_damage(exc: Exception) -> bool:
    """Whether what is stored cannot be read; a text that is not UTF-8 is Python's own error, without a code."""
    if not isinstance(exc, sqlite3.DatabaseError):
        return False
    code = primary_code(exc)
    return code == sqlite3.SQLITE_CORRUPT or (code is None and isinstance(exc, sqlite3.OperationalError))


def damaged(key: ConversationKey, exc: Exception) -> JournalCorrupt:
    return JournalCorrupt(key.path, reason=f"the database is damaged: {exc}")


def primary_code(exc: sqlite3.Error) -> int | None:
    """SQLite's result code without its extension; None when the error is Python's own."""
    code: int | None = getattr(exc, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
