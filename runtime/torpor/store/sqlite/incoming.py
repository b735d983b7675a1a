"""An append as one statement: a row for a view whose trigger checks it and writes every table concerned.

Above: the commit core. The view and the trigger exist on its connection only and are no part of the file. Since fence
and sequence are compared inside the database, no copy of a head can be stale; and since a group of appends is a few
statements of many rows, the interpreter lock changes hands a few times per group, which matters while the event loop is
busy: each time costs a wait of milliseconds.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from torpor.records.journal import ConversationCreated, JournalRecord
from torpor.store.codec import bundles_in, checksum_of, encode_receipt, encode_records, handles_in, shown_by
from torpor.store.requests import Append

_COLUMNS: Final = (
    "tenant",
    "owner",
    "conversation",
    "fence",
    "expected_seq",
    "last_seq",
    "expected_event",
    "last_event",
    "batch_id",
    "at_us",
    "due_us",
    "agent",
    "title",
    "is_archived",
    "is_failed",
    "created_us",
    "records",
    "checksum",
    "receipts",
    "handles",
    "jobs",
    "timers",
)

_INCOMING: Final = f"CREATE TEMP VIEW incoming AS SELECT {', '.join(f'NULL AS {name}' for name in _COLUMNS)}"

_ON_APPEND: Final = """
CREATE TEMP TRIGGER on_append INSTEAD OF INSERT ON incoming BEGIN
    INSERT INTO conversations
        (tenant, owner, conversation, agent, title, seq, event, batch_id, last_position,
         created_us, updated_us, quarantine, epoch)
        SELECT new.tenant, new.owner, new.conversation, new.agent, '', 0, 0, '', 0, new.created_us, 0, '', next
        FROM epochs WHERE new.expected_seq = 0;
    INSERT INTO journal (number, previous, first_seq, last_seq, last_event, records, checksum)
        SELECT number, last_position, seq + 1, new.last_seq, coalesce(new.last_event, event),
            CAST(new.records AS TEXT), new.checksum
        FROM conversations
        WHERE tenant = new.tenant AND owner = new.owner AND conversation = new.conversation
            AND seq = new.expected_seq AND event = coalesce(new.expected_event, event)
            AND new.fence = (SELECT number FROM boot);
    SELECT raise(ABORT, 'refused') WHERE changes() <> 1;
    UPDATE conversations SET
        seq = new.last_seq, event = coalesce(new.last_event, event), batch_id = new.batch_id,
        last_position = last_insert_rowid(), updated_us = new.at_us
        WHERE number = (SELECT number FROM journal WHERE position = last_insert_rowid());
    UPDATE conversations SET
        is_archived = coalesce(new.is_archived, is_archived), is_failed = coalesce(new.is_failed, is_failed)
        WHERE coalesce(new.is_archived, new.is_failed) IS NOT NULL
            AND number = (SELECT number FROM journal WHERE position = last_insert_rowid());
    UPDATE conversations SET due_us = new.due_us
        WHERE number = (SELECT number FROM journal WHERE position = last_insert_rowid())
            AND due_us IS NOT new.due_us;
    INSERT INTO receipts
        SELECT number, json_extract(value, '$[0]'), json_extract(value, '$[1]')
        FROM json_each(new.receipts), journal
        WHERE new.receipts IS NOT NULL AND position = last_insert_rowid();
    INSERT INTO jobs (number, id, kind, due_us, payload, added_us, token)
        SELECT number, json_extract(value, '$[0]'), json_extract(value, '$[1]'),
            json_extract(value, '$[2]'), json_extract(value, '$[3]'), new.at_us, new.at_us
        FROM json_each(new.jobs), journal
        WHERE new.jobs IS NOT NULL AND position = last_insert_rowid()
        ON CONFLICT (number, id) DO UPDATE SET
            kind = excluded.kind, due_us = excluded.due_us, payload = excluded.payload, added_us = excluded.added_us,
            state = 'waiting', boot = 0, attempts = 0, error = '', token = token + 1;
    DELETE FROM titles
        WHERE new.title IS NOT NULL AND number = (SELECT number FROM journal WHERE position = last_insert_rowid());
    INSERT INTO handles (number, handle, is_bundle)
        SELECT number, json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(new.handles), journal
        WHERE new.handles IS NOT NULL AND position = last_insert_rowid()
        ON CONFLICT (number, handle) DO UPDATE SET is_bundle = max(is_bundle, excluded.is_bundle);
    INSERT OR REPLACE INTO timers
        SELECT number, json_extract(value, '$[0]'), json_extract(value, '$[1]')
        FROM json_each(new.timers), journal
        WHERE new.timers IS NOT NULL AND position = last_insert_rowid();
    INSERT INTO titles
        SELECT number, zeroblob(1024), new.title FROM journal
        WHERE new.title <> '' AND position = last_insert_rowid();
END"""

_ROW: Final = f"({', '.join('?' * len(_COLUMNS))})"
_MAX_ROWS: Final = 128
_INSERTS: Final = {
    1 << power: f"INSERT INTO incoming VALUES {', '.join([_ROW] * (1 << power))}"  # noqa: S608 - only question marks
    for power in range(_MAX_ROWS.bit_length())
}
"""By number of rows, powers of two: few enough that each stays compiled."""

_ENCODER: Final = msgspec.json.Encoder()


def prepare(db: sqlite3.Connection) -> None:
    """Make ``db`` able to ``insert``."""
    db.execute(_INCOMING)
    db.execute(_ON_APPEND)


def insert(db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Append the batches of ``rows``, in order.

    Raises: sqlite3.IntegrityError: one of them is refused.
    """
    start = 0
    while start < len(rows):
        size = min(_MAX_ROWS, 1 << ((len(rows) - start).bit_length() - 1))
        db.execute(_INSERTS[size], [value for row in rows[start : start + size] for value in row])
        start += size


def row_of(request: Append) -> tuple[Any, ...]:
    """The values of ``_COLUMNS``."""
    key, numbers, records = request.key, request.numbers, request.records
    first = records[0]
    agent = first.agent if isinstance(first, ConversationCreated) else ""
    shown = shown_by(records)
    encoded = encode_records(records)
    return (
        key.tenant,
        key.owner,
        key.conversation,
        request.fence,
        numbers.expected_seq,
        numbers.last_seq,
        numbers.expected_event,
        numbers.last_event,
        request.batch_id,
        records[-1].at_us,
        request.due_us,
        agent,
        shown.title,
        shown.is_archived,
        shown.is_failed,
        first.at_us,
        encoded,
        checksum_of(key, encoded, first_seq=numbers.expected_seq + 1),
        _rows([(message_id, encode_receipt(receipt).decode()) for message_id, receipt in request.dedupe.items()]),
        _rows(_handles(records)),
        _rows([(job.id, job.kind, job.due_us, bytes(job.payload).decode()) for job in request.jobs]),
        _rows([(timer.id, timer.due_us) for timer in request.timers]),
    )


def _handles(records: Sequence[JournalRecord]) -> list[Any]:
    """Blobs that they name, each with whether it is a sub-agent's bundle."""
    bundles = bundles_in(records)
    return [(handle, int(handle in bundles)) for handle in handles_in(records)]


def _rows(values: list[Any]) -> str | None:
    """Rows for ``json_each``; None, which costs nothing, for none."""
    return _ENCODER.encode(values).decode() if values else None
