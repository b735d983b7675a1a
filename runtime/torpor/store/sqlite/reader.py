"""Reads of the database, synchronous and by value: of a running store, or of a file while a server runs or not.

Above: the engine, and commands that look into a data directory. Below: one connection that cannot write. A read sees
the last commit, waits for no writer and holds none up.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from torpor.errors import StoreUnusable
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord
from torpor.store.codec import (
    MAX_BATCH_RECORDS,
    StoredBatch,
    decode_receipt,
    events_after,
    loaded,
    records_after,
    until,
)
from torpor.store.contract import DirectoryRow, Head, Job, Loaded, Snapshot, Timer
from torpor.store.sqlite.connection import DATABASE_FILE, connect_to_read, reading, sound_rows
from torpor.store.sqlite.jobs import SqliteJobs
from torpor.store.sqlite.migrations import MIGRATIONS, schema_version

_HEAD: Final = """
SELECT number, last_position, seq, event, batch_id FROM conversations
    WHERE tenant = ? AND owner = ? AND conversation = ?"""
_SNAPSHOT: Final = "SELECT seq, version, data FROM snapshots WHERE number = ?"
_RECEIPT: Final = """
SELECT receipt FROM receipts JOIN conversations USING (number)
    WHERE tenant = ? AND owner = ? AND conversation = ? AND message_id = ?"""
_JOBS: Final = """
SELECT id, kind, jobs.due_us, payload FROM jobs JOIN conversations USING (number)
    WHERE tenant = ? AND owner = ? AND conversation = ? ORDER BY id"""
_TIMERS: Final = """
SELECT id, timers.due_us FROM timers JOIN conversations USING (number)
    WHERE tenant = ? AND owner = ? AND conversation = ? ORDER BY id"""
_DUE: Final = """
SELECT tenant, owner, conversation FROM conversations
    WHERE due_us <= ? AND quarantine = '' ORDER BY due_us, tenant, owner, conversation LIMIT ?"""
_ROWS: Final = """
SELECT tenant, owner, conversation, agent, coalesce(titles.title, ''), seq, event, batch_id, created_us, updated_us,
    due_us, quarantine, quarantine_kind, quarantined_us, quarantine_seq, is_archived, is_failed, epoch
    FROM conversations LEFT JOIN titles USING (number) WHERE {condition}"""
"""What ``_directory_row`` reads."""
_DESCRIBE: Final = _ROWS.format(condition="tenant = ? AND owner = ? AND conversation = ?")
_LIST: Final = _ROWS + " ORDER BY tenant, owner, conversation LIMIT ?"
_NO_CHILD: Final = "instr(conversation, '/') = 0"
_CHILDREN: Final = _LIST.format(
    condition="tenant = ? AND owner = ? AND conversation > ? || '/' AND conversation < ? || '0'"
)
_OLD_CHILDREN: Final = """
SELECT tenant, owner, conversation FROM conversations
    WHERE instr(conversation, '/') > 0 AND updated_us < ? ORDER BY updated_us, tenant, owner, conversation LIMIT ?"""
_EPOCH: Final = "SELECT next FROM epochs"
_HANDLES: Final = """
WITH own (number) AS (
    SELECT number FROM conversations
        WHERE tenant = :tenant AND owner = :owner AND conversation = :conversation
    UNION ALL
    SELECT number FROM conversations
        WHERE tenant = :tenant AND owner = :owner
            AND conversation > :conversation || '/' AND conversation < :conversation || '0'
)
SELECT DISTINCT handle FROM handles AS mine WHERE number IN own AND NOT EXISTS (
    SELECT 1 FROM handles AS others JOIN conversations AS o USING (number)
        WHERE others.handle = mine.handle AND others.number NOT IN own AND o.tenant = :tenant AND o.owner = :owner
) ORDER BY handle"""
_UNNAMED: Final = """
SELECT value FROM json_each(:handles) WHERE NOT EXISTS (
    SELECT 1 FROM handles AS named JOIN conversations USING (number)
        WHERE named.handle = value AND tenant = :tenant AND owner = :owner
) ORDER BY value"""
_NAMES_BUNDLE: Final = """
SELECT 1 FROM handles JOIN conversations USING (number)
    WHERE tenant = ? AND owner = ? AND conversation = ? AND handle = ? AND is_bundle = 1"""
_NAMES_BLOB: Final = """
SELECT 1 FROM handles JOIN conversations USING (number)
    WHERE tenant = ? AND owner = ? AND conversation = ? AND handle = ?"""
_COUNT: Final = """
SELECT count(*) FROM (
    SELECT 1 FROM conversations WHERE tenant = ? AND owner = ? AND instr(conversation, '/') = 0 LIMIT ?
)"""

# A chain is walked backwards, newest first; it cannot run in a circle, since positions only fall.
_TAIL: Final = """
WITH RECURSIVE chain (position, previous, first_seq, last_seq, last_event, records) AS (
    SELECT position, previous, first_seq, last_seq, last_event, CAST(records AS BLOB) FROM journal
        WHERE position = :last AND number = :number AND last_seq > :after
    UNION ALL
    SELECT j.position, j.previous, j.first_seq, j.last_seq, j.last_event, CAST(j.records AS BLOB)
        FROM chain JOIN journal AS j ON j.position = chain.previous AND j.position < chain.position
        WHERE j.number = :number AND j.last_seq > :after
)
SELECT first_seq, last_seq, last_event, records FROM chain"""
_POSITIONS: Final = """
WITH RECURSIVE chain (position, previous, last_seq, last_event) AS (
    SELECT position, previous, last_seq, last_event FROM journal
        WHERE position = :last AND number = :number AND last_seq > :seq AND last_event > :event
    UNION ALL
    SELECT j.position, j.previous, j.last_seq, j.last_event
        FROM chain JOIN journal AS j ON j.position = chain.previous AND j.position < chain.position
        WHERE j.number = :number AND j.last_seq > :seq AND j.last_event > :event
)
SELECT position FROM chain WHERE last_seq <= :seq_end OR last_event <= :event_end"""
_BATCH: Final = "SELECT first_seq, last_seq, last_event, CAST(records AS BLOB) FROM journal WHERE position = ?"


class _Place(msgspec.Struct, frozen=True):
    """Where a conversation's rows are."""

    number: int
    last_position: int
    head: Head


class SqliteReader:
    """The reading half of ``store.contract.Store``, without waiting. Used by one thread at a time."""

    def __init__(self, db: sqlite3.Connection, *, path: Path) -> None:
        self._db = db
        self._path = path
        self.every_job: Final = SqliteJobs(db, path=path)

    def close(self) -> None:
        self._db.close()

    def head(self, key: ConversationKey) -> Head:
        with reading(self._path, key):
            place = self._place(key)
        return place.head if place else Head()

    def backlog(self, key: ConversationKey) -> int:
        """How many records a ``load`` has to read; a cheap look at two rows."""
        with reading(self._path, key):
            place = self._place(key)
            if place is None:
                return 0
            found = self._db.execute("SELECT seq FROM snapshots WHERE number = ?", (place.number,)).fetchone()
        return place.head.seq - (found[0] if found else 0)

    def load(self, key: ConversationKey, *, use_snapshot: bool = True) -> Loaded:
        with reading(self._path, key), self._snapshot_of_database():
            place = self._place(key)
            if place is None:
                return Loaded(head=Head(), snapshot=None, tail=(), tail_bytes=0)
            found = self._db.execute(_SNAPSHOT, (place.number,)).fetchone() if use_snapshot else None
            snapshot = Snapshot(seq=found[0], version=found[1], data=found[2]) if found else None
            after = snapshot.seq if snapshot else 0
            rows = self._db.execute(
                _TAIL, {"last": place.last_position, "number": place.number, "after": after}
            ).fetchall()
        batches = [StoredBatch(*row) for row in reversed(rows)]
        return loaded(key, batches, snapshot=snapshot, head=place.head)

    def records_after(
        self, key: ConversationKey, *, seq: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        with reading(self._path, key), self._snapshot_of_database():
            place = self._place(key)
            if place is None:
                return ()
            batches = until(self._batches(place, seq=seq, limit=limit), seq=seq + limit, size_bytes=size_bytes)
        return records_after(key, batches, seq=seq, head=place.head, limit=limit, size_bytes=size_bytes)

    def events_after(
        self, key: ConversationKey, *, event: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        with reading(self._path, key), self._snapshot_of_database():
            place = self._place(key)
            if place is None:
                return ()
            batches = until(self._batches(place, event=event, limit=limit), event=event + limit, size_bytes=size_bytes)
        return events_after(key, batches, event=event, head=place.head, limit=limit, size_bytes=size_bytes)

    def receipt(self, key: ConversationKey, message_id: MessageId) -> Receipt | None:
        with reading(self._path, key):
            found = self._db.execute(_RECEIPT, (*_names(key), message_id)).fetchone()
        return decode_receipt(key, found[0].encode()) if found else None

    def jobs(self, key: ConversationKey) -> tuple[Job, ...]:
        with reading(self._path, key):
            rows = self._db.execute(_JOBS, _names(key)).fetchall()
        return tuple(Job(id=row[0], kind=row[1], due_us=row[2], payload=msgspec.Raw(row[3].encode())) for row in rows)

    def timers(self, key: ConversationKey) -> tuple[Timer, ...]:
        with reading(self._path, key):
            rows = self._db.execute(_TIMERS, _names(key)).fetchall()
        return tuple(Timer(id=row[0], due_us=row[1]) for row in rows)

    def due(self, *, now_us: int, limit: int) -> tuple[ConversationKey, ...]:
        with reading(self._path):
            return tuple(ConversationKey(*row) for row in sound_rows(self._db, _DUE, (now_us, limit), path=self._path))

    def describe(self, key: ConversationKey) -> DirectoryRow | None:
        with reading(self._path, key):
            found = self._db.execute(_DESCRIBE, _names(key)).fetchone()
        return _directory_row(found) if found else None

    def list_conversations(
        self,
        *,
        tenant: str | None,
        owner: str | None,
        limit: int,
        after: ConversationKey | None = None,
        with_archived: bool = True,
    ) -> tuple[DirectoryRow, ...]:
        conditions = [_NO_CHILD]
        values: list[str | int] = []
        if tenant is not None:
            conditions.append("tenant = ?")
            values.append(tenant)
        if owner is not None:
            conditions.append("owner = ?")
            values.append(owner)
        if after is not None:
            conditions.append("(tenant, owner, conversation) > (?, ?, ?)")
            values.extend(_names(after))
        if not with_archived:
            conditions.append("is_archived = 0")
        sql = _LIST.format(condition=" AND ".join(conditions))
        with reading(self._path):
            return tuple(_directory_row(row) for row in sound_rows(self._db, sql, (*values, limit), path=self._path))

    def children(self, key: ConversationKey, *, limit: int) -> tuple[DirectoryRow, ...]:
        with reading(self._path, key):
            rows = sound_rows(self._db, _CHILDREN, (*_names(key), key.conversation, limit), path=self._path)
            return tuple(map(_directory_row, rows))

    def old_children(self, *, before_us: int, limit: int) -> tuple[ConversationKey, ...]:
        with reading(self._path):
            rows = sound_rows(self._db, _OLD_CHILDREN, (before_us, limit), path=self._path)
            return tuple(ConversationKey(*row) for row in rows)

    def epoch(self) -> int:
        with reading(self._path):
            (epoch,) = self._db.execute(_EPOCH).fetchone()
        return int(epoch)

    def handles_of(self, key: ConversationKey) -> tuple[str, ...]:
        with reading(self._path, key):
            return tuple(handle for (handle,) in self._db.execute(_HANDLES, msgspec.structs.asdict(key)))

    def unnamed(self, key: ConversationKey, handles: Sequence[str]) -> tuple[str, ...]:
        values = {"tenant": key.tenant, "owner": key.owner, "handles": msgspec.json.encode(handles).decode()}
        with reading(self._path):
            return tuple(handle for (handle,) in self._db.execute(_UNNAMED, values))

    def names_blob(self, key: ConversationKey, handle: str) -> bool:
        with reading(self._path, key):
            return self._db.execute(_NAMES_BLOB, (*_names(key), handle)).fetchone() is not None

    def names_bundle(self, key: ConversationKey, handle: str) -> bool:
        with reading(self._path, key):
            return self._db.execute(_NAMES_BUNDLE, (*_names(key), handle)).fetchone() is not None

    def count_conversations(self, *, tenant: str, owner: str, limit: int) -> int:
        with reading(self._path):
            (count,) = self._db.execute(_COUNT, (tenant, owner, limit)).fetchone()
        return int(count)

    def _place(self, key: ConversationKey) -> _Place | None:
        found = self._db.execute(_HEAD, _names(key)).fetchone()
        if found is None:
            return None
        number, last_position, seq, event, batch_id = found
        return _Place(number, last_position, Head(seq=seq, event=event, batch_id=batch_id))

    def _batches(self, place: _Place, *, limit: int, seq: int = -1, event: int = -1) -> Iterator[StoredBatch]:
        """Those that end above ``seq`` or ``event``, oldest first, read one by one: a page costs a page,
        and the walk to it. They go on to ``limit`` behind there, or some batches further."""
        values = {"last": place.last_position, "number": place.number, "seq": seq, "event": event}
        reach = limit + MAX_BATCH_RECORDS  # a batch that holds the last one asked for ends before this
        values |= {"seq_end": seq + reach if seq >= 0 else -1, "event_end": event + reach if event >= 0 else -1}
        for (position,) in reversed(self._db.execute(_POSITIONS, values).fetchall()):
            yield StoredBatch(*self._db.execute(_BATCH, (position,)).fetchone())

    @contextmanager
    def _snapshot_of_database(self) -> Iterator[None]:
        """All statements inside see the same commit."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


@contextmanager
def open_to_read(directory: Path) -> Iterator[SqliteReader]:
    """The conversations of a data directory, whether or not a server is running on it.

    Raises: StoreUnusable: there is no database, or none that this engine can read.
    """
    path = directory / DATABASE_FILE
    if not path.is_file():
        raise StoreUnusable(f"{path} does not exist, expected a data directory, like .torpor in an agent home")
    try:
        db = connect_to_read(path)
    except sqlite3.Error as exc:
        raise StoreUnusable(f"{path} cannot be opened: {exc}") from exc
    try:
        _check_readable(db, path)
        yield SqliteReader(db, path=path)
    finally:
        db.close()


def _check_readable(db: sqlite3.Connection, path: Path) -> None:
    try:
        version = schema_version(db, path=str(path))
    except sqlite3.Error as exc:
        raise StoreUnusable(f"{path} cannot be read: {exc}") from exc
    if version < len(MIGRATIONS):
        raise StoreUnusable(f"{path} has schema version {version}, start the server once to bring it up to date")


def _names(key: ConversationKey) -> tuple[str, str, str]:
    return (key.tenant, key.owner, key.conversation)


def _directory_row(row: tuple[Any, ...]) -> DirectoryRow:
    tenant, owner, conversation, agent, title, seq, event, batch_id, created_us, updated_us, *marks = row
    due_us, quarantine, quarantine_kind, quarantined_us, quarantine_seq, is_archived, is_failed, epoch = marks
    return DirectoryRow(
        key=ConversationKey(tenant, owner, conversation),
        agent=agent,
        title=title,
        head=Head(seq=seq, event=event, batch_id=batch_id),
        created_us=created_us,
        updated_us=updated_us,
        due_us=due_us,
        quarantine=quarantine,
        quarantine_kind=quarantine_kind,
        quarantined_us=quarantined_us,
        quarantine_seq=quarantine_seq,
        epoch=epoch,
        is_archived=bool(is_archived),
        is_failed=bool(is_failed),
    )
