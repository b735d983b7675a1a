"""A whole conversation written into a database that no server holds: every row of it in one transaction, or none.

Above: ``operations``, by way of the command line. Below: the same statement through which a server appends, so that
what is imported is checked and laid out like anything else.
"""

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from torpor.errors import StoreUnusable
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord
from torpor.store.codec import number_batch
from torpor.store.options import StoreOptions
from torpor.store.requests import Append
from torpor.store.sqlite import incoming
from torpor.store.sqlite.connection import DATABASE_FILE, connect, translated
from torpor.store.sqlite.data_lock import DataLock
from torpor.store.sqlite.migrations import count_start, migrate

_FILE_MODE: Final = 0o600
"""It holds what people said."""


class AlreadyThere(ValueError):
    """A conversation of this name has records."""


class Importer:
    """Appends to one conversation that was not there before. Made by ``open_to_import``."""

    def __init__(self, db: sqlite3.Connection, key: ConversationKey, *, boot: int, path: Path) -> None:
        self._db = db
        self._key = key
        self._boot = boot
        self._path = path

    def append(
        self,
        records: Sequence[JournalRecord],
        *,
        batch_id: str,
        dedupe: Mapping[MessageId, Receipt],
        due_us: int | None,
    ) -> None:
        """See ``Store.append``; nothing is durable before the end.

        Raises: AlreadyThere, StoreFull, StoreUnavailable: nothing was written.
        """
        expected_seq = records[0].seq - 1
        request = Append(
            key=self._key,
            fence=self._boot,
            numbers=number_batch(self._key, records, expected_seq=expected_seq),
            batch_id=batch_id,
            records=records,
            dedupe=dedupe,
            due_us=due_us,
            jobs=(),
            timers=(),
        )
        try:
            incoming.insert(self._db, [incoming.row_of(request)])
        except sqlite3.IntegrityError as exc:
            if expected_seq == 0:
                raise AlreadyThere(self._key.path) from exc
            raise translated(exc, path=self._path) from exc
        except sqlite3.Error as exc:
            raise translated(exc, path=self._path) from exc


@contextmanager
def open_to_import(directory: Path, key: ConversationKey) -> Iterator[Importer]:
    """What is appended in the block is there when it ends, and not when it ends with an error.

    Raises: StoreUnusable: a server runs there, or the database is damaged, foreign or newer.
    """
    path, options = directory / DATABASE_FILE, StoreOptions()
    with DataLock(directory):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE))  # its log gets the same mode
            db = connect(path, options=options)
        except (OSError, sqlite3.Error) as exc:
            raise StoreUnusable(f"{path} cannot be opened: {exc}") from exc
        try:
            migrate(db, path=str(path))
            boot = count_start(db, path=str(path))
            incoming.prepare(db)
            db.execute("BEGIN IMMEDIATE")
            try:
                yield Importer(db, key, boot=boot, path=path)
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
        except sqlite3.Error as exc:
            raise translated(exc, path=path) from exc
        finally:
            db.close()
