"""All that is stored of a conversation, as it lies in the database and unchecked: for whoever does the checking.

Above: ``operations``, by way of the command line. Below: a connection that cannot write, whether or not a server runs.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from torpor.errors import StoreUnavailable
from torpor.records.ids import ConversationKey
from torpor.store.codec import StoredBatch
from torpor.store.contract import Head, Snapshot, Tombstone
from torpor.store.sqlite.connection import DATABASE_FILE, connect_to_read, reading
from torpor.store.sqlite.migrations import missing_tables, schema_faults
from torpor.store.sqlite.reader import open_to_read
from torpor.store.tombstones import path_mark

_KEYS: Final = """
SELECT number, CAST(tenant AS BLOB), CAST(owner AS BLOB), CAST(conversation AS BLOB) FROM conversations
    ORDER BY tenant, owner, conversation"""
_ROW: Final = """
SELECT number, agent, coalesce(titles.title, ''), seq, event, batch_id, last_position, created_us, updated_us, due_us,
    is_archived, is_failed
    FROM conversations LEFT JOIN titles USING (number) WHERE tenant = ? AND owner = ? AND conversation = ?"""
_SNAPSHOT: Final = "SELECT seq, version, data FROM snapshots WHERE number = ?"
_POSITIONS: Final = """
WITH RECURSIVE chain (position, previous) AS (
    SELECT position, previous FROM journal WHERE position = :last AND number = :number
    UNION ALL
    SELECT j.position, j.previous
        FROM chain JOIN journal AS j ON j.position = chain.previous AND j.position < chain.position
        WHERE j.number = :number
)
SELECT position, previous FROM chain"""
_ROW_AT: Final = """
SELECT first_seq, last_seq, last_event, CAST(records AS BLOB), checksum FROM journal WHERE position = ?"""
_RECEIPTS: Final = """
SELECT message_id, CAST(receipt AS BLOB) FROM receipts
    WHERE number = ? AND message_id > ? ORDER BY message_id LIMIT ?"""
_PAGE: Final = 500
_TOMBSTONES: Final = """
SELECT at_us, cause, records, events, epoch, digest FROM tombstones WHERE mark = ? ORDER BY rowid"""
_KEY_OF_TOMBSTONES: Final = "SELECT secret FROM tombstone_secret"


_STRAY: Final = """
SELECT position, number FROM journal
    WHERE number <> 0 AND (previous >= position OR (
        position NOT IN (SELECT previous FROM journal) AND position NOT IN (SELECT last_position FROM conversations)))
    ORDER BY position"""
_UNSUMMED: Final = """
SELECT position, number FROM journal WHERE checksum IS NULL AND number <> 0 AND position > ? ORDER BY position"""
_SUMMED_AFTER: Final = "SELECT after FROM checksums"
_FIRST_SUMMED: Final = "SELECT position FROM journal WHERE checksum IS NOT NULL ORDER BY position LIMIT 1"
_ORPHANS: Final = """
SELECT number, count(*) FROM {table} WHERE number <> 0 AND number NOT IN (SELECT number FROM conversations)
    GROUP BY number ORDER BY number"""
_BAD_JOBS: Final = """
SELECT number, CAST(id AS BLOB) FROM jobs
    WHERE NOT json_valid(payload) OR kind = '' OR state NOT IN ('waiting', 'running', 'dead') OR attempts < 0
    ORDER BY number, id"""
_STARTS_LEAST: Final = "SELECT max(EXISTS (SELECT 1 FROM conversations), (SELECT coalesce(max(boot), 0) FROM jobs))"
"""Whoever wrote was started, and so was whoever took a job."""
_STARTS_MAX: Final = 2**40
"""A start every millisecond for thirty years."""
_EVENT: Final = "SELECT event FROM conversations WHERE number = ?"
_OF_CONVERSATIONS: Final = ("journal", "snapshots", "receipts", "jobs", "timers", "handles", "titles")


class StoredRow(msgspec.Struct, frozen=True):
    """One row of the journal."""

    batch: StoredBatch
    checksum: int | None
    """See ``codec.checksum_of``; None for none."""
    is_older: bool
    """Whether it was written before rows had one."""


class StoredReceipt(msgspec.Struct, frozen=True):
    """One row of the index of receipts."""

    message_id: str
    receipt: bytes


class StoredConversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation at one moment."""

    key: ConversationKey
    agent: str
    title: str
    head: Head
    created_us: int
    updated_us: int
    due_us: int | None
    is_archived: int
    """As it is stored; so is the next."""
    is_failed: int
    snapshot: Snapshot | None
    begins_after: int
    """Position of the row that the oldest one names before it; 0 for none, as it should be."""
    rows: Iterator[StoredRow]
    """Oldest first, read one by one while they are asked for."""
    receipts: Iterator[StoredReceipt]
    """By message id, likewise; those of messages that came meanwhile are among them."""
    event_now: Callable[[], int]
    """The last event by now."""


class AuditReader:
    """Reads while it is open. Used by one thread at a time."""

    def __init__(self, db: sqlite3.Connection, *, path: Path) -> None:
        self._db = db
        self._path = path
        self._summed: int | None = None

    def keys(self) -> Iterator[ConversationKey | str]:
        """Of every conversation, in order; of one whose name cannot be read, what is known of it in words."""
        with reading(self._path):
            rows = self._db.execute(_KEYS).fetchall()
        for number, *names in rows:
            try:
                yield ConversationKey(*(name.decode() for name in names))
            except UnicodeDecodeError:
                yield f"conversation number {number}, named {names!r}"

    def stored(self, key: ConversationKey) -> StoredConversation | None:
        """Raises: JournalCorrupt: the database cannot be read here; also while the iterators are used."""
        with reading(self._path, key):
            self._db.execute("BEGIN")
            try:
                row = self._db.execute(_ROW, (key.tenant, key.owner, key.conversation)).fetchone()
                if row is None:
                    return None
                number, agent, title, seq, event, batch_id, last_position, created_us, updated_us, due_us, *marks = row
                found = self._db.execute(_SNAPSHOT, (number,)).fetchone()
                chain = self._db.execute(_POSITIONS, {"last": last_position, "number": number}).fetchall()
            finally:
                self._db.execute("ROLLBACK")
        return StoredConversation(
            key=key,
            agent=agent,
            title=title,
            head=Head(seq=seq, event=event, batch_id=batch_id),
            created_us=created_us,
            updated_us=updated_us,
            due_us=due_us,
            is_archived=marks[0],
            is_failed=marks[1],
            snapshot=Snapshot(seq=found[0], version=found[1], data=found[2]) if found else None,
            begins_after=chain[-1][1] if chain else last_position,
            rows=self._rows(key, [position for position, _ in chain]),
            receipts=self._receipts(key, number),
            event_now=partial(self._event_now, key, number),
        )

    def tombstones(self, key: ConversationKey) -> tuple[Tombstone, ...]:
        """Of every conversation of this name that was erased, in order."""
        mark = path_mark(key, secret=self.tombstone_secret())
        with reading(self._path):
            return tuple(
                Tombstone(at_us=at_us, cause=cause, records=records, events=events, epoch=epoch, digest=digest)
                for at_us, cause, records, events, epoch, digest in self._db.execute(_TOMBSTONES, (mark,)).fetchall()
            )

    def tombstone_secret(self) -> bytes:
        """What their digests are made with. Raises: StoreUnavailable: also where it is lost."""
        with reading(self._path):
            found = self._db.execute(_KEY_OF_TOMBSTONES).fetchall()
        if len(found) != 1:
            raise StoreUnavailable(f"{self._path} is damaged, its table 'tombstone_secret' has {len(found)} rows")
        secret: bytes = found[0][0]
        return secret

    def faults(self) -> Iterator[str]:
        """What is wrong with the database beyond single conversations, in words: pages that are damaged, tables that
        are missing, rows that belong to no conversation or to none of its chains."""
        with reading(self._path):
            (sound,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            missing, faults = missing_tables(self._db), schema_faults(self._db)
        if sound != "ok":
            yield f"the database is damaged: {sound}"
        if missing:
            yield f"the database lacks the tables {', '.join(missing)}"
        yield from faults
        if not missing:
            yield from self._stray_rows()

    def _stray_rows(self) -> Iterator[str]:
        with reading(self._path):
            counts = self._db.execute("SELECT number FROM boot").fetchall()
            (least,) = self._db.execute(_STARTS_LEAST).fetchone()
            orphans = [
                (table, *row) for table in _OF_CONVERSATIONS for row in self._db.execute(_ORPHANS.format(table=table))
            ]
            marks, summed_after = self._db.execute(_SUMMED_AFTER).fetchall(), self._summed_after()
            stray, unsummed = (
                self._db.execute(_STRAY).fetchall(),
                self._db.execute(_UNSUMMED, (summed_after,)).fetchall(),
            )
            jobs = self._db.execute(_BAD_JOBS).fetchall()
        if len(counts) != 1:
            yield f"table boot has {len(counts)} rows, expected one"
        for (starts,) in counts:
            if not least <= starts <= _STARTS_MAX:
                yield f"table boot tells of {starts} starts, expected {least} to {_STARTS_MAX}"
        if len(marks) != 1:
            yield f"table checksums has {len(marks)} rows, expected one"
        for table, number, count in orphans:
            yield f"table {table} has {count} rows of conversation number {number}, which is not in the directory"
        for position, number in stray:
            yield f"row {position} of conversation number {number} follows its journal's head, or belongs to no journal"
        for position, number in unsummed:
            yield f"row {position} of conversation number {number} has no checksum, rows after {summed_after} have one"
        for number, job in jobs:
            yield f"job {job.decode(errors='replace')!r} of conversation number {number} is not as an engine writes it"

    def _summed_after(self) -> int:
        """The last row that may be without a checksum. No mark allows what stands behind a row that has one."""
        if self._summed is None:
            marks = [after for (after,) in self._db.execute(_SUMMED_AFTER)]
            summed = [position - 1 for (position,) in self._db.execute(_FIRST_SUMMED)]
            self._summed = min(marks + summed) if marks else 0
        return self._summed

    def _event_now(self, key: ConversationKey, number: int) -> int:
        with reading(self._path, key):
            found = self._db.execute(_EVENT, (number,)).fetchone()
        return found[0] if found else 0

    def _rows(self, key: ConversationKey, positions: list[int]) -> Iterator[StoredRow]:
        """Args: positions: newest first; used up."""
        while positions:
            position = positions.pop()
            with reading(self._path, key):
                *batch, checksum = self._db.execute(_ROW_AT, (position,)).fetchone()
                is_older = checksum is None and position <= self._summed_after()
            yield StoredRow(StoredBatch(*batch), checksum, is_older)

    def _receipts(self, key: ConversationKey, number: int) -> Iterator[StoredReceipt]:
        after = ""
        while True:
            with reading(self._path, key):
                rows = self._db.execute(_RECEIPTS, (number, after, _PAGE)).fetchall()
            for row in rows:
                yield StoredReceipt(*row)
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def __repr__(self) -> str:
        return f"<AuditReader {self._path}>"


@contextmanager
def open_to_audit(directory: Path) -> Iterator[AuditReader]:
    """The conversations of a data directory, whether or not a server is running on it.

    Raises: StoreUnusable: there is no database, or none that this engine can read.
    """
    path = directory / DATABASE_FILE
    with open_to_read(directory):  # it knows which databases are ours
        db = connect_to_read(path)
    try:
        yield AuditReader(db, path=path)
    finally:
        db.close()
