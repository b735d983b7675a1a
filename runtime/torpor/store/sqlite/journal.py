"""The commit core: requests become one transaction, synchronously, in order.

Above: a driver, either the writer thread or a task. Below: one SQLite connection, replaced when the medium fails.

A request is one statement, and a statement that fails is undone whole. So when one request of a group cannot be carried
out, the group is rolled back and done again one by one in one transaction, and that one fails alone; when it touched a
damaged page, which ends a transaction, each gets a transaction of its own.
When the medium fails, the whole group does: a full disk and a held lock mean that nothing was written; after an I/O
error the connection is replaced, and the heads are read before anyone is answered. A ``Tidy`` writes nothing that could
fail with the others, so it is done all the same, and what hinders it is its answer.

A file that was moved away or deleted can be written for as long as it is open, and is lost with this process. So before
each commit it is looked for where it belongs.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from torpor.errors import StoreError, StoreGone
from torpor.store.requests import Append, AskHead, Begin, Outcome, Request, Tidy
from torpor.store.sqlite.carrying_out import FAULTS, asked_head, carry_out, concerns_one, head_of, prepare, why_refused
from torpor.store.sqlite.connection import is_damage, primary_code, translated
from torpor.store.sqlite.incoming import insert, row_of

_log = structlog.get_logger()

_NOTHING_WRITTEN: Final = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class SqliteCore:
    """Implements ``store.requests.CommitCore``. Used by one thread at a time.

    Args: connect: opens a connection that writes, at first and again after an I/O error.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], *, path: Path) -> None:
        self._connect = connect
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Device and number of the one that was opened first."""
        self._is_gone = False
        self._hindrance = ""
        """What keeps the log from being emptied, once that was tried."""

    def open(self) -> sqlite3.Connection:
        """Raises: sqlite3.Error."""
        db = self._connect()
        try:
            prepare(db)
        except sqlite3.Error:
            db.close()
            raise
        self._db = db
        if self._file is None:
            self._file = _found(self._path)
        return db

    def close(self) -> None:
        """Fold the log into the database, where nothing hinders, and let go of the file."""
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                _truncate_log(db)
            db.close()

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        if (gone := self._gone()) is not None:
            return [False if isinstance(request, Tidy) else gone for request in requests]
        try:
            return self._commit(self._db or self._reopen(), requests)
        except sqlite3.Error as exc:
            return self._all_failed(requests, exc)

    def _gone(self) -> StoreGone | None:
        """Why nothing is to be written, if what is there by the path is not what is open."""
        found = _found(self._path)
        was_gone, self._is_gone = self._is_gone, found != self._file
        if not self._is_gone:
            return None
        what = "is not there any more" if found is None else "is another one by now"
        error = StoreGone(
            f"{self._path} {what}: put back the data folder that this server was started with, or stop it"
        )
        if not was_gone:
            _log.error("store.gone", error=str(error))
        return error

    def _commit(self, db: sqlite3.Connection, requests: Sequence[Request]) -> list[Outcome]:
        outcomes = _written(db, requests)
        for place, request in enumerate(requests):
            # Only now: before the commit a head would speak of what is not durable yet.
            if isinstance(request, AskHead):
                outcomes[place] = asked_head(db, request.key)
            elif isinstance(request, Tidy):
                outcomes[place] = self._tidied(db)
        return outcomes

    def _all_failed(self, requests: Sequence[Request], exc: sqlite3.Error) -> list[Outcome]:
        """The medium failed. Where that leaves the outcome open, look before answering."""
        error = translated(exc, path=self._path)
        _log.error("store.commit_failed", error=str(exc), code=error.code, requests=len(requests))
        try:
            if self._db is not None and primary_code(exc) in _NOTHING_WRITTEN:
                _rollback(self._db)
                return [self._tidied(self._db) if isinstance(request, Tidy) else error for request in requests]
            db = self._reopen()
            return [self._answer_after_failure(db, request, error) for request in requests]
        except sqlite3.Error as worse:
            _log.warning("store.reopen_failed", error=str(worse))
            return [False if isinstance(request, Tidy) else error for request in requests]

    def _reopen(self) -> sqlite3.Connection:
        """A new connection, on which everything visible is durable.

        After a flush that failed, the log may read well and not be on the disk: it is folded into the database, and
        flushed there, before anyone is told what the head is.
        """
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()
        db = self.open()
        _truncate_log(db)
        return db

    def _answer_after_failure(self, db: sqlite3.Connection, request: Request, error: StoreError) -> Outcome:
        match request:
            case Append():
                return None if _is_there(db, request) else error
            case Begin(appends=appends):
                return None if _is_there(db, appends[-1]) else error
            case AskHead(key=key):
                return asked_head(db, key)
            case Tidy():
                return self._tidied(db)
            case _:
                return error

    def _tidied(self, db: sqlite3.Connection) -> bool:
        """Whether the log is empty now. What hinders is told once, and again only when it is something else."""
        try:
            is_empty = _truncate_log(db)
        except sqlite3.Error as exc:
            hindrance, self._hindrance = self._hindrance, str(exc)
            if hindrance != self._hindrance:
                _log.warning("store.wal_not_truncated", error=self._hindrance)
            return False
        if is_empty and self._hindrance:
            _log.info("store.wal_truncated_again")
            self._hindrance = ""
        return is_empty


def _written(db: sqlite3.Connection, requests: Sequence[Request]) -> list[Outcome]:
    for way in (_together, _one_by_one):
        try:
            return way(db, requests)
        except FAULTS as exc:
            if not concerns_one(exc):
                raise
            _rollback(db)
    return _each_alone(db, requests)


def _together(db: sqlite3.Connection, requests: Sequence[Request]) -> list[Outcome]:
    """One transaction, in which an append that is refused raises."""
    if len(requests) == 1:
        # A statement of its own is a transaction of its own.
        return [carry_out(db, requests[0])]
    outcomes: list[Outcome] = []
    rows: list[tuple[Any, ...]] = []
    db.execute("BEGIN IMMEDIATE")
    for request in requests:
        if isinstance(request, Append):
            rows.append(row_of(request))
            outcomes.append(None)
        else:
            insert(db, rows)
            rows = []
            outcomes.append(carry_out(db, request))
    insert(db, rows)
    db.execute("COMMIT")
    return outcomes


def _one_by_one(db: sqlite3.Connection, requests: Sequence[Request]) -> list[Outcome]:
    """One transaction, in which what is refused changes nothing and becomes its own outcome; damage raises."""
    db.execute("BEGIN IMMEDIATE")
    outcomes = [_tried(db, request, accept_damage=False) for request in requests]
    db.execute("COMMIT")
    return outcomes


def _each_alone(db: sqlite3.Connection, requests: Sequence[Request]) -> list[Outcome]:
    """A transaction for each, so that damage ends no other's."""
    return [_tried(db, request, accept_damage=True) for request in requests]


def _tried(db: sqlite3.Connection, request: Request, *, accept_damage: bool) -> Outcome:
    try:
        return carry_out(db, request)
    except FAULTS as exc:
        if not concerns_one(exc) or (is_damage(exc) and not accept_damage):
            raise
        return why_refused(db, request, exc)


def _is_there(db: sqlite3.Connection, append: Append) -> bool:
    head = head_of(db, append.key)
    return (head.seq, head.batch_id) == (append.numbers.last_seq, append.batch_id)


def _rollback(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")


def _found(path: Path) -> tuple[int, int] | None:
    """Device and number of a file; None where there is none."""
    try:
        its = path.stat()
    except OSError:
        return None
    return its.st_dev, its.st_ino


def _truncate_log(db: sqlite3.Connection) -> bool:
    """Fold the write-ahead log into the database and empty it; as far as it goes, and False, when a reader needs it."""
    (timeout_ms,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute("PRAGMA busy_timeout = 0")
    try:
        (was_busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not was_busy
    finally:
        db.execute(f"PRAGMA busy_timeout = {timeout_ms}")
