"""The database's layout, and the steps that bring an older file up to it.

The layout is public: other programs may read ``journal`` and ``conversations``. One row of ``journal`` is one append,
``records`` a JSON array. Rows stand in the order they were written, whatever conversation they belong to, so that a
group of appends fills few pages; ``previous`` is the position of the same conversation's row before, 0 for none, and
``conversations.last_position`` is where its chain begins. Reading goes backwards from there, which costs no index.
"""

import sqlite3
from collections.abc import Sequence
from typing import Final, TypeAlias

from torpor.errors import StoreUnusable

APPLICATION_ID: Final = 0x746F7270
"""``torp``, in the file's header: tells our databases from anybody else's."""
PAGE_BYTES: Final = 1024
"""A lone append touches half a dozen pages, whole, each of them twice; larger pages write more and read no faster."""

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


def schema_version(db: sqlite3.Connection, *, path: str, newest: int = len(MIGRATIONS)) -> int:
    """0 for an empty file. Raises: StoreUnusable: it is not ours, or newer than ``newest``."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application_id != APPLICATION_ID and (version or tables):
        raise StoreUnusable(f"{path} is a database of another program, choose another data directory")
    if version > newest:
        raise StoreUnusable(
            f"{path} has schema version {version}, this engine knows up to {newest}: upgrade torpor, "
            "or choose another data directory"
        )
    return int(version)
