"""The commit core: requests become one transaction, synchronously, in order.

Above: a driver, either the writer thread or a task. Below: one SQLite connection, replaced when the medium fails.

When one request of a group cannot be carried out, the group is rolled back and done again one by one, so that it fails
alone. When the medium fails, the whole group does: a full disk and a held lock mean that nothing was written; after an
I/O error the connection is replaced, and the heads are read before anyone is answered.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from torpor.errors import DuplicateMessage, Fenced, InvariantBroken, StoreError, TorporError, WrongSequence
from torpor.records.ids import ConversationKey
from torpor.store.contract import Head
from torpor.store.requests import Append, AskHead, Outcome, PutSnapshot, Quarantine, Request, Tidy
from torpor.store.sqlite.connection import primary_code, translated
from torpor.store.sqlite.incoming import insert, prepare, row_of

_log = structlog.get_logger()

_PUT_SNAPSHOT: Final = """
INSERT INTO snapshots (number, seq, version, data)
    SELECT number, :seq, :version, :data FROM conversations
    WHERE tenant = :tenant AND owner = :owner AND conversation = :conversation
        AND seq >= :seq AND :fence = (SELECT number FROM boot)"""
_BEFORE_SNAPSHOT: Final = """
CREATE TEMP TRIGGER before_snapshot BEFORE INSERT ON snapshots BEGIN
    DELETE FROM snapshots WHERE number = new.number;
END"""
"""The new snapshot takes the pages of the old one; an update would need pages for both, and the file never shrinks."""
_QUARANTINE: Final = "UPDATE conversations SET quarantine = ? WHERE tenant = ? AND owner = ? AND conversation = ?"
_HEAD: Final = "SELECT seq, event, batch_id FROM conversations WHERE tenant = ? AND owner = ? AND conversation = ?"
_RECEIPT: Final = """
SELECT receipt FROM receipts JOIN conversations USING (number)
    WHERE tenant = ? AND owner = ? AND conversation = ? AND message_id = ?"""

_FAULTS_OF_ONE: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)
"""What a request can cause by itself: a check that fails, or a value that cannot be encoded or bound."""
_NOTHING_WRITTEN: Final = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class SqliteCore:
    """Implements ``store.requests.CommitCore``. Used by one thread at a time.

    Args: connect: opens a connection that writes, at first and again after an I/O error.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], *, path: Path) -> None:
        self._connect = connect
        self._path = path
        self._db: sqlite3.Connection | None = None

    def open(self) -> sqlite3.Connection:
        """Raises: sqlite3.Error."""
        db = self._connect()
        try:
            prepare(db)
            db.execute(_BEFORE_SNAPSHOT)
        except sqlite3.Error:
            db.close()
            raise
        self._db = db
        return db

    def close(self) -> None:
        """Fold the log into the database, where nothing hinders, and let go of the file."""
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                _truncate_log(db)
            db.close()

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        try:
            return _commit(self._db or self._reopen(), requests)
        except sqlite3.Error as exc:
            return self._all_failed(requests, exc)

    def _all_failed(self, requests: Sequence[Request], exc: sqlite3.Error) -> list[Outcome]:
        """The medium failed. Where that leaves the outcome open, look before answering."""
        error = translated(exc, path=self._path)
        _log.error("store.commit_failed", error=str(exc), code=error.code, requests=len(requests))
        try:
            if self._db is not None and primary_code(exc) in _NOTHING_WRITTEN:
                _rollback(self._db)
                return [error] * len(requests)
            db = self._reopen()
            return [_answer_after_failure(db, request, error) for request in requests]
        except sqlite3.Error as worse:
            _log.warning("store.reopen_failed", error=str(worse))
            return [error] * len(requests)

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


def _commit(db: sqlite3.Connection, requests: Sequence[Request]) -> list[Outcome]:
    try:
        outcomes = _together(db, requests)
    except _FAULTS_OF_ONE:
        _rollback(db)
        outcomes = _one_by_one(db, requests)
    for place, request in enumerate(requests):
        # Only now: before the commit a head would speak of what is not durable yet.
        if isinstance(request, AskHead):
            outcomes[place] = _head(db, request.key)
        elif isinstance(request, Tidy):
            _tidy(db)
    return outcomes


def _together(db: sqlite3.Connection, requests: Sequence[Request]) -> list[Outcome]:
    """One transaction, in which an append that is refused raises."""
    if len(requests) == 1:
        # A statement of its own is a transaction of its own.
        return [_apply(db, requests[0])]
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
            outcomes.append(_apply(db, request))
    insert(db, rows)
    db.execute("COMMIT")
    return outcomes


def _one_by_one(db: sqlite3.Connection, requests: Sequence[Request]) -> list[Outcome]:
    """One transaction, in which what is refused changes nothing and becomes its own outcome."""
    outcomes: list[Outcome] = []
    db.execute("BEGIN IMMEDIATE")
    for request in requests:
        db.execute("SAVEPOINT one")
        try:
            outcomes.append(_apply(db, request))
        except _FAULTS_OF_ONE as exc:
            db.execute("ROLLBACK TO one")
            outcomes.append(_why_refused(db, request, exc))
        db.execute("RELEASE one")
    db.execute("COMMIT")
    return outcomes


def _apply(db: sqlite3.Connection, request: Request) -> Outcome:
    match request:
        case Append():
            insert(db, [row_of(request)])
        case PutSnapshot():
            return _put_snapshot(db, request)
        case Quarantine(key=key, reason=reason):
            db.execute(_QUARANTINE, (reason, key.tenant, key.owner, key.conversation))
        case AskHead() | Tidy():
            pass
        case _:
            return InvariantBroken(f"SQLite keeps no leases, yet was asked for {type(request).__name__}")
    return None


def _put_snapshot(db: sqlite3.Connection, request: PutSnapshot) -> TorporError | None:
    key, snapshot = request.key, request.snapshot
    values = {
        "tenant": key.tenant,
        "owner": key.owner,
        "conversation": key.conversation,
        "fence": request.fence,
        "seq": snapshot.seq,
        "version": snapshot.version,
        "data": snapshot.data,
    }
    if db.execute(_PUT_SNAPSHOT, values).rowcount == 1:
        return None
    if fenced := _why_fenced(db, key, request.fence):
        return fenced
    return WrongSequence(key.path, expected_seq=snapshot.seq, head_seq=_head(db, key).seq)


def _why_refused(db: sqlite3.Connection, request: Request, exc: Exception) -> TorporError:
    if not isinstance(request, Append):
        return InvariantBroken(f"{type(request).__name__} cannot be stored: {exc}")
    key, numbers = request.key, request.numbers
    if fenced := _why_fenced(db, key, request.fence):
        return fenced
    head = _head(db, key)
    if head.seq != numbers.expected_seq:
        return WrongSequence(key.path, expected_seq=numbers.expected_seq, head_seq=head.seq)
    for message_id in request.dedupe:
        found = db.execute(_RECEIPT, (key.tenant, key.owner, key.conversation, message_id)).fetchone()
        if found:
            return DuplicateMessage(key.path, message_id=message_id, receipt=found[0].encode())
    if numbers.expected_event not in {None, head.event}:
        return InvariantBroken(f"batch for {key.path!r} follows event {numbers.expected_event}, not {head.event}")
    return InvariantBroken(f"batch for {key.path!r} cannot be stored: {exc}")


def _why_fenced(db: sqlite3.Connection, key: ConversationKey, fence: int) -> Fenced | None:
    (newest,) = db.execute("SELECT number FROM boot").fetchone()
    return None if fence == newest else Fenced(key.path, fence=fence, newer=newest)


def _head(db: sqlite3.Connection, key: ConversationKey) -> Head:
    found = db.execute(_HEAD, (key.tenant, key.owner, key.conversation)).fetchone()
    return Head(seq=found[0], event=found[1], batch_id=found[2]) if found else Head()


def _answer_after_failure(db: sqlite3.Connection, request: Request, error: StoreError) -> Outcome:
    match request:
        case Append(key=key, batch_id=batch_id, numbers=numbers):
            head = _head(db, key)
            return None if (head.seq, head.batch_id) == (numbers.last_seq, batch_id) else error
        case AskHead(key=key):
            return _head(db, key)
        case _:
            return error


def _rollback(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")


def _tidy(db: sqlite3.Connection) -> None:
    try:
        _truncate_log(db)
    except sqlite3.Error as exc:
        _log.warning("store.wal_not_truncated", error=str(exc))


def _truncate_log(db: sqlite3.Connection) -> None:
    """Fold the write-ahead log into the database and empty it; as far as it goes when a reader still needs it."""
    (timeout_ms,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute("PRAGMA busy_timeout = 0")
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.execute(f"PRAGMA busy_timeout = {timeout_ms}")
