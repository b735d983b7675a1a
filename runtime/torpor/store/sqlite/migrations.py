"""The database's layout, and the steps that bring an older file up to it.

The layout is public: other programs may read ``journal`` and ``conversations``. One row of ``journal`` is one append,
``records`` a JSON array. Rows stand in the order they were written, whatever conversation they belong to, so that a
group of appends fills few pages; ``previous`` is the position of the same conversation's row before, 0 for none, and
``conversations.last_position`` is where its chain begins. Reading goes backwards from there, which costs no index.
Rows behind position ``checksums.after`` have a checksum; those up to there were written before there was one.

What was erased must not be readable in the file. SQLite overwrites what it deletes, but leaves old bytes where it moves
a row from page to page. So rows with content are not moved: rows of ``journal`` are added at its end and never deleted,
an erased one is emptied and has number 0; and before a title or a snapshot stands ``padding`` of a page's length, so
that it begins in a page of its own. Names (of tenants, owners, conversations, messages) are in indexes, which move.
"""

import functools
import itertools
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Final, TypeAlias

from torpor.errors import StoreUnusable

APPLICATION_ID: Final = 0x746F7270
"""``torp``, in the file's header: tells our databases from anybody else's."""
PAGE_BYTES: Final = 1024
"""A lone append touches half a dozen pages, whole, each of them twice; larger pages write more and read no faster."""

_TABLE: Final = "table"
_COUNT_MAX: Final = 2**63 - 1
_RESTORE: Final = "restore the data directory from a copy; `torpor inspect --data` reads what is left"

Migration: TypeAlias = tuple[str, ...]
"""Statements that lead from one version to the next."""

MIGRATIONS: Final[tuple[Migration, ...]] = (
    (
        "CREATE TABLE boot (number INTEGER NOT NULL) STRICT",
        "INSERT INTO boot VALUES (0)",
        """CREATE TABLE conversations (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            tenant TEXT NOT NULL,
            owner TEXT NOT NULL,
            conversation TEXT NOT NULL,
            agent TEXT NOT NULL,
            title TEXT NOT NULL,
            seq INTEGER NOT NULL,
            event INTEGER NOT NULL,
            batch_id TEXT NOT NULL,
            last_position INTEGER NOT NULL,
            created_us INTEGER NOT NULL,
            updated_us INTEGER NOT NULL,
            due_us INTEGER,
            quarantine TEXT NOT NULL,
            UNIQUE (tenant, owner, conversation)
        ) STRICT""",
        """CREATE INDEX conversations_due ON conversations (due_us)
            WHERE due_us IS NOT NULL AND quarantine = ''""",
        """CREATE TABLE journal (
            position INTEGER PRIMARY KEY,
            number INTEGER NOT NULL,
            previous INTEGER NOT NULL,
            first_seq INTEGER NOT NULL,
            last_seq INTEGER NOT NULL,
            last_event INTEGER NOT NULL,
            records TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE snapshots (
            number INTEGER PRIMARY KEY,
            seq INTEGER NOT NULL,
            version INTEGER NOT NULL,
            data BLOB NOT NULL
        ) STRICT""",
        """CREATE TABLE receipts (
            number INTEGER NOT NULL,
            message_id TEXT NOT NULL,
            receipt TEXT NOT NULL,
            PRIMARY KEY (number, message_id)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE jobs (
            number INTEGER NOT NULL,
            id TEXT NOT NULL,
            kind TEXT NOT NULL,
            due_us INTEGER NOT NULL,
            payload TEXT NOT NULL,
            PRIMARY KEY (number, id)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE timers (
            number INTEGER NOT NULL,
            id TEXT NOT NULL,
            due_us INTEGER NOT NULL,
            PRIMARY KEY (number, id)
        ) STRICT, WITHOUT ROWID""",
    ),
    (
        "ALTER TABLE jobs ADD COLUMN added_us INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE jobs ADD COLUMN state TEXT NOT NULL DEFAULT 'waiting'",
        "ALTER TABLE jobs ADD COLUMN boot INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE jobs ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE jobs ADD COLUMN token INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE jobs ADD COLUMN error TEXT NOT NULL DEFAULT ''",
        "UPDATE jobs SET added_us = due_us",
        "CREATE INDEX jobs_due ON jobs (due_us) WHERE state <> 'dead'",
    ),
    ("ALTER TABLE journal ADD COLUMN checksum INTEGER",),
    (
        "CREATE TABLE checksums (after INTEGER NOT NULL) STRICT",
        """INSERT INTO checksums SELECT coalesce(
            (SELECT position - 1 FROM journal WHERE checksum IS NOT NULL ORDER BY position LIMIT 1),
            (SELECT max(position) FROM journal),
            0)""",
    ),
    (
        "ALTER TABLE conversations ADD COLUMN quarantine_kind TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE conversations ADD COLUMN quarantined_us INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE conversations ADD COLUMN quarantine_seq INTEGER NOT NULL DEFAULT 0",
    ),
    (
        "ALTER TABLE conversations ADD COLUMN is_archived INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE conversations ADD COLUMN is_failed INTEGER NOT NULL DEFAULT 0",
        """CREATE INDEX conversations_listed ON conversations (tenant, owner, conversation)
            WHERE is_archived = 0""",
    ),
    (
        "ALTER TABLE conversations ADD COLUMN epoch INTEGER NOT NULL DEFAULT 1",
        "CREATE TABLE epochs (next INTEGER NOT NULL) STRICT",
        "INSERT INTO epochs VALUES (1)",
        """CREATE TABLE handles (
            number INTEGER NOT NULL,
            handle TEXT NOT NULL,
            PRIMARY KEY (number, handle)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX handles_named ON handles (handle)",
        """INSERT OR IGNORE INTO handles
            SELECT number, json_extract(value, '$.handle')
            FROM journal, json_each(CASE WHEN json_valid(records) THEN records ELSE '[]' END)
            WHERE instr(records, '"handle":"') AND json_extract(value, '$.kind') = 'tool_finished'
                AND json_extract(value, '$.handle') <> ''""",
        # What people said stands in rows that are never moved, or in pages of its own, where it can be overwritten.
        """CREATE TABLE titles (
            number INTEGER PRIMARY KEY,
            padding BLOB NOT NULL,
            title TEXT NOT NULL
        ) STRICT""",
        "INSERT INTO titles SELECT number, zeroblob(1024), title FROM conversations WHERE title <> ''",
        "UPDATE conversations SET title = '' WHERE title <> ''",
        "DROP TABLE snapshots",
        """CREATE TABLE snapshots (
            number INTEGER PRIMARY KEY,
            seq INTEGER NOT NULL,
            version INTEGER NOT NULL,
            padding BLOB NOT NULL,
            data BLOB NOT NULL
        ) STRICT""",
        # What earlier versions deleted may still be read in free pages: fill them with zeros, once.
        "CREATE TABLE zeros (zero BLOB)",
        """INSERT INTO zeros SELECT zeroblob(min(900000000, freelist_count * page_size))
            FROM pragma_freelist_count, pragma_page_size""",
        "DROP TABLE zeros",
    ),
    (
        # What stays of what was erased; no name and nothing that was said can be told from it without the secret.
        "CREATE TABLE tombstone_secret (secret BLOB NOT NULL) STRICT",
        "INSERT INTO tombstone_secret VALUES (randomblob(32))",
        """CREATE TABLE tombstones (
            mark TEXT NOT NULL,
            at_us INTEGER NOT NULL,
            cause TEXT NOT NULL,
            records INTEGER NOT NULL,
            events INTEGER NOT NULL,
            epoch INTEGER NOT NULL,
            digest TEXT NOT NULL
        ) STRICT""",
        "CREATE INDEX tombstones_marked ON tombstones (mark)",
    ),
    (
        # What sub-agents write stands among the conversations, and in none of their lists.
        "DROP INDEX conversations_listed",
        """CREATE INDEX conversations_listed ON conversations (tenant, owner, conversation)
            WHERE is_archived = 0 AND instr(conversation, '/') = 0""",
        """CREATE INDEX conversations_own ON conversations (tenant, owner, conversation)
            WHERE instr(conversation, '/') = 0""",
        "CREATE INDEX conversations_children ON conversations (updated_us) WHERE instr(conversation, '/') > 0",
    ),
    ("ALTER TABLE handles ADD COLUMN is_bundle INTEGER NOT NULL DEFAULT 0",),
)
"""Position n leads from version n to n + 1. Entries are only ever added."""


def migrate(db: sqlite3.Connection, *, path: str, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring the database at ``path`` up to the last version, one transaction per step.

    Raises: StoreUnusable: it belongs to another program, or a newer engine wrote it.
    """
    version = schema_version(db, path=path, newest=len(migrations))
    for number, statements in enumerate(migrations[version:], start=version + 1):
        db.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")


def count_start(db: sqlite3.Connection, *, path: str) -> int:
    """The number of this start, greater than all before it; durable when this returns.

    Raises: StoreUnusable: the database at ``path`` lacks a table, or its count of starts, without which no writer
        could be told from an earlier one.
    """
    if missing := missing_tables(db):
        raise StoreUnusable(f"{path} is damaged, it lacks the tables {', '.join(missing)}: {_RESTORE}")
    counts = [count for (count,) in db.execute("SELECT number FROM boot")]
    if len(counts) != 1 or not isinstance(counts[0], int) or not 0 <= counts[0] < _COUNT_MAX:
        found = f"{len(counts)} rows" if len(counts) != 1 else repr(counts[0])
        raise StoreUnusable(f"{path} is damaged, its table 'boot' holds {found}, expected one count: {_RESTORE}")
    (number,) = db.execute("UPDATE boot SET number = number + 1 RETURNING number").fetchone()
    return int(number)


def missing_tables(db: sqlite3.Connection) -> list[str]:
    """Tables that a database of the last version has and this one lacks."""
    return sorted(_tables_of_a_new_database() - _tables(db))


def schema_faults(db: sqlite3.Connection) -> list[str]:
    """In words: what a database of the last version has beside its tables and this one lacks, and what no database has,
    such as a trigger, which would act on whatever is written."""
    found, expected = _objects(db), _objects_of_a_new_database()
    lacks = [f"the database lacks {kind} {name!r}" for kind, name in sorted(expected - found) if kind != _TABLE]
    return lacks + [
        f"the database has {kind} {name!r}, which is none of ours" for kind, name in sorted(found - expected)
    ]


def _tables_of_a_new_database() -> set[str]:
    return {name for kind, name in _objects_of_a_new_database() if kind == _TABLE}


@functools.cache
def _objects_of_a_new_database() -> set[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for statement in itertools.chain.from_iterable(MIGRATIONS):
            db.execute(statement)
        return _objects(db)


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for kind, name in _objects(db) if kind == _TABLE}


def _objects(db: sqlite3.Connection) -> set[tuple[str, str]]:
    """Kind and name of all but what SQLite makes for itself."""
    return set(db.execute("SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'"))


def schema_version(db: sqlite3.Connection, *, path: str, newest: int = len(MIGRATIONS)) -> int:
    """0 for an empty file. Raises: StoreUnusable: it is not ours, or newer than ``newest``."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    try:
        (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except UnicodeDecodeError as exc:  # sqlite3 tells of a damaged schema in its own bytes
        raise StoreUnusable(f"{path} is damaged, its schema is no text: {_RESTORE}") from exc
    if application_id != APPLICATION_ID and (version or tables):
        raise StoreUnusable(f"{path} is a database of another program, choose another data directory")
    if version > newest:
        raise StoreUnusable(
            f"{path} has schema version {version}, this engine knows up to {newest}: upgrade torpor, "
            "or choose another data directory"
        )
    return int(version)
