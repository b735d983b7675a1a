"""A whole conversation taken out of the database, so that nothing of it can be read there any more.

Above: ``carrying_out``. The connection overwrites what it deletes (``secure_delete``), and what stands in pages of its
own goes with them; rows of the journal are emptied, not deleted, since SQLite would move their neighbours (see
``migrations``). What the write-ahead log still holds is gone once that is emptied, which the engine sees to. Only then
is an erasure complete. A tombstone stays, written in the same transaction.
"""

import sqlite3
from typing import Final

import msgspec

from torpor.records.ids import ConversationKey
from torpor.store.contract import Erased
from torpor.store.requests import Erase
from torpor.store.tombstones import digest_of, path_mark

_PLACE: Final = """
SELECT number, last_position, seq, event, epoch FROM conversations
    WHERE tenant = ? AND owner = ? AND conversation = ?"""
_CHILDREN: Final = """
SELECT conversation FROM conversations
    WHERE tenant = ? AND owner = ? AND conversation > ? || '/' AND conversation < ? || '0'"""
"""The digit is the character behind the slash."""
_CHAIN: Final = """
WITH RECURSIVE chain (position, previous) AS (
    SELECT position, previous FROM journal WHERE position = :last AND number = :number
    UNION ALL
    SELECT j.position, j.previous
        FROM chain JOIN journal AS j ON j.position = chain.previous AND j.position < chain.position
        WHERE j.number = :number
)
SELECT position FROM chain"""
_EMPTIED: Final = "number = 0, previous = 0, first_seq = 0, last_seq = 0, last_event = 0, records = '', checksum = NULL"
_EMPTY: Final = f"UPDATE journal SET {_EMPTIED} WHERE position = ?"  # noqa: S608 - our own words
_EMPTY_REST: Final = f"UPDATE journal SET {_EMPTIED} WHERE number = ?"  # noqa: S608 - our own words
_RECORDS: Final = "SELECT CAST(records AS BLOB) FROM journal WHERE position = ?"
_KEY_OF_TOMBSTONES: Final = "SELECT secret FROM tombstone_secret"
_BURY: Final = """
INSERT INTO tombstones (mark, at_us, cause, records, events, epoch, digest) VALUES (?, ?, ?, ?, ?, ?, ?)"""
_COUNTED: Final = "SELECT sum(last_seq - first_seq + 1) FROM journal WHERE position = ?"
_TABLES: Final = ("titles", "snapshots", "receipts", "jobs", "timers", "handles", "conversations")
_NEXT_EPOCH: Final = "UPDATE epochs SET next = next + 1"


def erase(db: sqlite3.Connection, request: Erase) -> Erased:
    """All of it or, with an error, nothing; in the transaction that is open, or in one of its own."""
    db.execute("SAVEPOINT erasing")
    try:
        key = request.key
        names = db.execute(_CHILDREN, (key.tenant, key.owner, key.conversation, key.conversation)).fetchall()
        for (name,) in names:
            _erased(db, request, msgspec.structs.replace(key, conversation=name))
        erased = _erased(db, request, key)
    except BaseException:
        if db.in_transaction:  # damage may have ended it
            db.execute("ROLLBACK TO erasing")
            db.execute("RELEASE erasing")
        raise
    db.execute("RELEASE erasing")
    return erased


def _erased(db: sqlite3.Connection, request: Erase, key: ConversationKey) -> Erased:
    found = db.execute(_PLACE, (key.tenant, key.owner, key.conversation)).fetchone()
    if found is None:
        return Erased(records=0)
    number, last_position, seq, event, epoch = found
    positions = db.execute(_CHAIN, {"number": number, "last": last_position}).fetchall()
    records = sum(db.execute(_COUNTED, position).fetchone()[0] for position in positions)
    if not key.is_child:  # nobody can have a copy of one
        (secret,) = db.execute(_KEY_OF_TOMBSTONES).fetchone()
        rows = (db.execute(_RECORDS, position).fetchone()[0] for position in reversed(positions))
        digest = digest_of(rows, secret=secret) if records == seq else ""
        mark = path_mark(key, secret=secret)
        db.execute(_BURY, (mark, request.at_us, request.cause, seq, event, epoch, digest))
    db.executemany(_EMPTY, positions)
    if records != seq:  # the chain is broken, and rows that it does not reach are found only by looking at all
        db.execute(_EMPTY_REST, (number,))
    for table in _TABLES:
        db.execute(f"DELETE FROM {table} WHERE number = ?", (number,))  # noqa: S608 - our own names
    db.execute(_NEXT_EPOCH)
    return Erased(records=seq)
