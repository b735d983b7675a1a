"""Batches of records as the bytes every backend stores, and back; whatever does not add up is a corrupt journal.

Above: the backends. A batch is stored as one JSON array of records beside the numbers it covers, a format that other
programs may read. Reading trusts nothing: the numbers beside a batch, the numbers in its records and the number the
reader expected next must agree.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from torpor.errors import InvariantBroken, JournalCorrupt
from torpor.records.attachments import attachment_of, is_marker
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey
from torpor.records.journal import (
    ConversationArchived,
    ConversationCreated,
    ConversationForked,
    ConversationRenamed,
    ConversationUnarchived,
    JournalRecord,
    MessageReceived,
    MessageRetracted,
    SubagentFinished,
    ToolFinished,
    TurnFailed,
    TurnPrepared,
)
from torpor.store.contract import Head, Loaded, Snapshot

MAX_BATCH_RECORDS: Final = 256

_ENCODER: Final = msgspec.json.Encoder()
_RECORDS: Final = msgspec.json.Decoder(tuple[JournalRecord, ...])
_RECEIPT: Final = msgspec.json.Decoder(Receipt)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What is not JSON, not ours, not text, or nested deeper than a reader can go; an engine writes none of it."""


class StoredBatch(msgspec.Struct, frozen=True, array_like=True):
    """One append as it lies in a store."""

    first_seq: int
    last_seq: int
    last_event: int
    """Of the journal up to here, whether or not this batch holds a public record."""
    records: bytes


class BatchNumbers(msgspec.Struct, frozen=True, gc=False):
    """Where a batch goes, by its own account."""

    expected_seq: int
    last_seq: int
    expected_event: int | None
    """None when the batch holds no public record."""
    last_event: int | None


class Shown(msgspec.Struct, frozen=True, gc=False):
    """What a batch changes in lists; None for no change."""

    title: str | None = None
    is_archived: bool | None = None
    is_failed: bool | None = None


_UNCHANGED: Final = Shown()
_SHOWN: Final = (
    ConversationCreated,
    ConversationRenamed,
    ConversationArchived,
    ConversationUnarchived,
    ConversationForked,
    TurnPrepared,
    TurnFailed,
    MessageRetracted,
)


def shown_by(records: Sequence[JournalRecord]) -> Shown:
    """What lists show of a conversation after ``records``."""
    title: str | None = None
    is_archived: bool | None = None
    is_failed: bool | None = None
    for record in records:
        if not isinstance(record, _SHOWN):
            continue
        match record:
            case ConversationCreated() | ConversationRenamed():
                title = record.title
            case ConversationArchived():
                is_archived = True
            case ConversationUnarchived() | ConversationForked():
                is_archived = False
            case TurnPrepared():
                is_failed = False
            case MessageRetracted() if record.turn:
                is_failed = False
            case TurnFailed():
                is_failed = True
    if title is None and is_archived is None and is_failed is None:
        return _UNCHANGED
    return Shown(title, is_archived, is_failed)


def handles_in(records: Iterable[JournalRecord]) -> list[str]:
    """Blobs that ``records`` name."""
    handles: list[str] = []
    for record in records:
        match record:
            case ToolFinished(handle=handle) | SubagentFinished(bundle=handle) if handle:
                handles.append(handle)
            case MessageReceived(blocks=blocks):
                handles.extend(attachment_of(block).blob for block in map(bytes, blocks) if is_marker(block))
    return handles


def bundles_in(records: Iterable[JournalRecord]) -> list[str]:
    """Those of them that sub-agents left."""
    return [record.bundle for record in records if isinstance(record, SubagentFinished) and record.bundle]


def encode_records(records: Sequence[JournalRecord]) -> bytes:
    """A JSON array, UTF-8."""
    return _ENCODER.encode(records)


def checksum_of(key: ConversationKey, records: bytes, *, first_seq: int) -> int:
    """CRC-32 of a batch, its place and whose it is: what lies on a disk may change, and decoding forgives much."""
    return zlib.crc32(records, zlib.crc32(f"{key.path} {first_seq}\n".encode()))


def encode_receipt(receipt: Receipt) -> bytes:
    return _ENCODER.encode(receipt)


def decode_receipt(key: ConversationKey, data: bytes) -> Receipt:
    """Raises: JournalCorrupt: the bytes are no receipt."""
    try:
        return _RECEIPT.decode(data)
    except _UNREADABLE as exc:
        raise JournalCorrupt(key.path, reason=f"a receipt cannot be decoded: {exc}") from exc


def number_batch(key: ConversationKey, records: Sequence[JournalRecord], *, expected_seq: int) -> BatchNumbers:
    """What the numbers in ``records`` say, compared with each other.

    Raises: InvariantBroken: the writer gave more or fewer than 1..256 records, or numbers that do not follow.
    """
    if not 1 <= len(records) <= MAX_BATCH_RECORDS:
        raise InvariantBroken(f"batch for {key.path!r} holds {len(records)} records, expected 1 to {MAX_BATCH_RECORDS}")
    seq, first_event, event = expected_seq, None, None
    for record in records:
        seq += 1
        if record.seq != seq:
            raise InvariantBroken(f"batch for {key.path!r} numbers a record {record.seq}, expected {seq}")
        if record.event:
            if event is None:
                first_event = record.event
            elif record.event != event + 1:
                raise InvariantBroken(f"batch for {key.path!r} numbers an event {record.event}, expected {event + 1}")
            event = record.event
    return BatchNumbers(expected_seq, seq, None if first_event is None else first_event - 1, event)


def until(
    batches: Iterable[StoredBatch],
    *,
    seq: int | None = None,
    event: int | None = None,
    size_bytes: int | None = None,
) -> list[StoredBatch]:
    """The first of ``batches``, in order, up to the one that holds record ``seq`` or event ``event``, or that makes
    them ``size_bytes`` long together."""
    taken: list[StoredBatch] = []
    total_bytes = 0
    for batch in batches:
        taken.append(batch)
        total_bytes += len(batch.records)
        if (seq is not None and batch.last_seq >= seq) or (event is not None and batch.last_event >= event):
            break
        if size_bytes is not None and total_bytes >= size_bytes:
            break
    return taken


def _is_full(batches: Sequence[StoredBatch], *, size_bytes: int | None) -> bool:
    return size_bytes is not None and sum(len(batch.records) for batch in batches) >= size_bytes


def records_after(
    key: ConversationKey,
    batches: Sequence[StoredBatch],
    *,
    seq: int,
    head: Head,
    limit: int | None = None,
    size_bytes: int | None = None,
) -> tuple[JournalRecord, ...]:
    """Records above ``seq`` from the batches that end above it, at most ``limit``; without one, all up to ``head``.

    Args: size_bytes: where ``until`` ended them.
    Raises: JournalCorrupt: they cannot be decoded, do not add up, or do not reach what was asked for.
    """
    records = _checked(key, batches)
    first = records[0].seq if records else seq + 1
    if first > seq + 1:
        raise JournalCorrupt(key.path, reason=_hole(seq, first))
    end = head.seq if limit is None else min(head.seq, seq + limit)
    last = records[-1].seq if records else seq
    if last < end and not _is_full(batches, size_bytes=size_bytes):
        raise JournalCorrupt(key.path, reason=f"it ends at record {last}, expected {head.seq}")
    if limit is None and records and (last, batches[-1].last_event) != (head.seq, head.event):
        reason = f"it ends at record {last}, event {batches[-1].last_event}, expected {head.seq}, {head.event}"
        raise JournalCorrupt(key.path, reason=reason)
    return records[seq + 1 - first :][:limit]


def events_after(
    key: ConversationKey,
    batches: Sequence[StoredBatch],
    *,
    event: int,
    head: Head,
    limit: int,
    size_bytes: int | None = None,
) -> tuple[JournalRecord, ...]:
    """Public records above ``event`` from the batches whose ``last_event`` is above it, at most ``limit``.

    Args: size_bytes: where ``until`` ended them.
    Raises: JournalCorrupt: they cannot be decoded, do not add up, or do not reach what was asked for.
    """
    public = tuple(record for record in _checked(key, batches) if record.event > event)[:limit]
    last = batches[-1].last_event if _is_full(batches, size_bytes=size_bytes) else head.event
    expected = max(0, min(limit, last - event))
    if len(public) < expected or (public and public[0].event != event + 1):
        reason = f"events {event + 1} to {event + expected} are not all there, found {len(public)}"
        raise JournalCorrupt(key.path, reason=reason)
    return public


def loaded(key: ConversationKey, batches: Sequence[StoredBatch], *, snapshot: Snapshot | None, head: Head) -> Loaded:
    """What a thaw needs, from ``snapshot`` and the batches that end above it.

    Raises: JournalCorrupt: as ``records_after``; or the snapshot is ahead of the journal, which proves lost records.
    """
    after = snapshot.seq if snapshot else 0
    if after > head.seq:
        raise JournalCorrupt(key.path, reason=f"its snapshot is at record {after}, but it ends at {head.seq}")
    tail = records_after(key, batches, seq=after, head=head)
    return Loaded(head=head, snapshot=snapshot, tail=tail, tail_bytes=sum(len(batch.records) for batch in batches))


def _checked(key: ConversationKey, batches: Sequence[StoredBatch]) -> tuple[JournalRecord, ...]:
    """The records of contiguous batches, all numbers compared."""
    if not batches:
        return ()
    records = _decode(key, batches)
    seq, event, start = batches[0].first_seq - 1, None, 0
    for batch in batches:
        if batch.first_seq != seq + 1:
            raise JournalCorrupt(key.path, reason=_hole(seq, batch.first_seq))
        end = start + batch.last_seq - seq
        for record in records[start:end]:
            seq += 1
            if record.seq != seq:
                raise JournalCorrupt(key.path, reason=f"record {seq} carries the number {record.seq}")
            if record.event:
                if event is not None and record.event != event + 1:
                    reason = f"record {seq} carries event number {record.event}, expected {event + 1}"
                    raise JournalCorrupt(key.path, reason=reason)
                event = record.event
        if seq != batch.last_seq or (event is not None and event != batch.last_event):
            reason = (
                f"batch {batch.first_seq} ends at record {seq}, event {event}, "
                f"expected record {batch.last_seq}, event {batch.last_event}"
            )
            raise JournalCorrupt(key.path, reason=reason)
        event, start = batch.last_event, end
    if start != len(records):
        raise JournalCorrupt(key.path, reason=f"{len(records) - start} records follow the last numbered one")
    return records


def _hole(seq: int, next_seq: int) -> str:
    if next_seq <= seq:
        return f"record {next_seq} is there twice"
    return f"records {seq + 1} to {next_seq - 1} are missing"


def _decode(key: ConversationKey, batches: Sequence[StoredBatch]) -> tuple[JournalRecord, ...]:
    """All records in one pass over one array; only when that fails, batch by batch, to find the one to blame."""
    try:
        return _RECORDS.decode(b"[%b]" % b",".join([batch.records[1:-1] for batch in batches]))
    except _UNREADABLE:
        return tuple(record for batch in batches for record in _decode_one(key, batch))


def _decode_one(key: ConversationKey, batch: StoredBatch) -> tuple[JournalRecord, ...]:
    try:
        return _RECORDS.decode(batch.records)
    except _UNREADABLE as exc:
        raise JournalCorrupt(key.path, reason=f"batch {batch.first_seq} cannot be decoded: {exc}") from exc
