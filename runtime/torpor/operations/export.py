"""A stored conversation -> lines of JSON that hold all of it, and back.

The first line says what follows: format, key, epoch, head, how many lines, and the digest of every byte behind it. Then
a record a line, written as it is stored; then a line for each result that was too long for its record. What is a cache
or an index (snapshot, receipts, directory) is left out and made again.

Both sides verify: nothing is exported that differs from what it says of itself, and nothing imported.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from torpor.conversation.steps import Lane, Rest, StepOptions, next_step
from torpor.operations.audit import Verdict, audited
from torpor.operations.verify import Differs, Verification
from torpor.records.commands import Receipt
from torpor.records.frames import Cursor
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord, MessageReceived
from torpor.records.nesting import is_deep_json
from torpor.store.codec import MAX_BATCH_RECORDS
from torpor.store.contract import Blobs, Head
from torpor.store.sqlite.auditing import StoredConversation

FORMAT: Final = "torpor.conversation"
VERSION: Final = 1
"""Raised when lines change their meaning."""

Stored = Callable[[], StoredConversation | None]
"""The conversation as it is now, each time it is called."""


class BadExport(ValueError):
    """Lines that are no export, or not the one that was written."""


class ExportHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    format: str = ""
    version: int = 0
    tenant: str = ""
    owner: str = ""
    conversation: str = ""
    epoch: int = Cursor(event=0).epoch
    head: Head = Head()
    records: int = 0
    blobs: int = 0
    digest: str = ""
    """sha256 over all lines behind this one, their ends included, hex."""


class BlobLine(msgspec.Struct, frozen=True, kw_only=True):
    """A result that was too long for its record."""

    blob: str
    """Its handle: the sha256 of what it is."""
    data: bytes
    """In base64."""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    path: str
    records: int
    requests: int
    blobs: int


class Appends(Protocol):
    """Where records go; ``store.sqlite.importing.Importer``, or nowhere."""

    def append(
        self,
        records: Sequence[JournalRecord],
        *,
        batch_id: str,
        dedupe: Mapping[MessageId, Receipt],
        due_us: int | None,
    ) -> None: ...


_HEADER: Final = msgspec.json.Decoder(ExportHeader)
_BLOB: Final = msgspec.json.Decoder(BlobLine)
_BLOB_BEGIN: Final = b'{"blob":'


async def exported(stored: Stored, blobs: Blobs, *, write: Callable[[bytes], object]) -> Verdict | None:
    """Write the lines, each with its end; None when there is no such conversation.

    Reads everything twice, so that the header can say what follows and nothing is written of what differs; then the
    verdict says so. What is appended meanwhile is left out.
    """
    first = stored()
    if first is None:
        return None
    digest = hashlib.sha256()

    def hashed(line: bytes) -> None:
        digest.update(line + b"\n")

    verdict = await audited(first, blobs, take=hashed)
    if verdict.difference:
        return verdict
    for handle in verdict.blobs:
        hashed(await _blob_line(blobs, first.key, handle))
    key = first.key
    header = ExportHeader(
        format=FORMAT,
        version=VERSION,
        tenant=key.tenant,
        owner=key.owner,
        conversation=key.conversation,
        head=first.head,
        records=verdict.records,
        blobs=len(verdict.blobs),
        digest=digest.hexdigest(),
    )
    write(msgspec.json.encode(header) + b"\n")
    for line in _records_up_to(stored(), first.head.seq):
        write(line + b"\n")
    for handle in verdict.blobs:
        write(await _blob_line(blobs, key, handle) + b"\n")
    return verdict


def read_header(line: bytes) -> ExportHeader:
    """Raises: BadExport: the line is no header, or one of another version."""
    try:
        header = _HEADER.decode(b"" if is_deep_json(line) else line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        header = ExportHeader()
    if header.format != FORMAT:
        raise BadExport("its first line is no header, expected what `torpor export` writes")
    if header.version != VERSION:
        raise BadExport(f"it has version {header.version}, this engine reads {VERSION}")
    if header.epoch != ExportHeader().epoch:
        raise BadExport(f"it has epoch {header.epoch}, this engine counts events in {ExportHeader().epoch}")
    return header


class Importing:
    """The lines behind a header, in order, then ``end``. All raise ``BadExport``.

    Args: now_us: when what is unfinished in it is due.  new_id: names batches.
    """

    def __init__(
        self,
        header: ExportHeader,
        importer: Appends,
        *,
        key: ConversationKey,
        blobs: Blobs,
        now_us: int,
        new_id: Callable[[], str],
    ) -> None:
        self._header = header
        self._importer = importer
        self._key = key
        self._blobs = blobs
        self._now_us = now_us
        self._new_id = new_id
        self._verification = Verification()
        self._digest = hashlib.sha256()
        self._waiting: list[JournalRecord] = []
        self._handles: set[str] | None = None
        """Blobs still to come; None while records do."""
        self._taken = 0
        """Blobs that came."""

    def line(self, line: bytes) -> None:
        """Take the next line, with its end; nothing is kept of a blob yet."""
        self._digest.update(line)
        written = line.removesuffix(b"\n")
        try:
            if written.startswith(_BLOB_BEGIN):
                self._blob(written)
            elif self._handles is None:
                self._record(written)
            else:
                raise BadExport("a record follows a blob, expected blobs only behind the first one")
        except Differs as exc:
            raise BadExport(str(exc)) from exc

    def end(self) -> Imported:
        """There are no more lines. What was appended may be committed when this returns."""
        missing = self._handles if self._handles is not None else self._records_ended()
        if missing:
            raise BadExport(f"blob {min(missing)} is named by a record and missing")
        found = self._digest.hexdigest()
        if found != self._header.digest:
            raise BadExport(f"its lines have digest {found}, its header says {self._header.digest}")
        told = (self._header.records, self._header.blobs)
        if told != (counted := (self._verification.records, self._taken)):
            raise BadExport(
                f"its header tells of {told[0]} records and {told[1]} blobs, it has {counted[0]}, {counted[1]}"
            )
        return Imported(
            path=self._key.path,
            records=self._verification.records,
            requests=self._verification.requests,
            blobs=self._taken,
        )

    async def keep_blob(self, line: bytes) -> None:
        """Once all was verified, and before it is committed: store what the line holds, if that is a blob."""
        written = line.removesuffix(b"\n")
        if written.startswith(_BLOB_BEGIN):
            await self._blobs.put(self._key, _BLOB.decode(written).data)

    def _record(self, written: bytes) -> None:
        if len(self._waiting) == MAX_BATCH_RECORDS:
            self._append(due_us=None)
        self._waiting.append(self._verification.record(written))

    def _blob(self, written: bytes) -> None:
        if self._handles is None:
            self._handles = self._records_ended()
        try:
            blob = _BLOB.decode(b"" if is_deep_json(written) else written)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise BadExport(f"a blob cannot be read: {exc}") from exc
        if blob.blob not in self._handles:
            raise BadExport(f"blob {blob.blob} is named by no record, or is there twice")
        if hashlib.sha256(blob.data).hexdigest() != blob.blob:
            raise BadExport(f"blob {blob.blob} has digest {hashlib.sha256(blob.data).hexdigest()}")
        self._handles.remove(blob.blob)
        self._taken += 1

    def _records_ended(self) -> set[str]:
        """Hand over the last of them; returns the handles of the blobs that must follow."""
        try:
            self._verification.end(self._header.head)
        except Differs as exc:
            raise BadExport(str(exc)) from exc
        if not self._waiting:
            raise BadExport("it holds no record")
        step = next_step(self._verification.state, Lane.TURN, StepOptions(), self._now_us)
        self._append(due_us=None if isinstance(step, Rest) else self._now_us)
        return {named.handle for named in self._verification.handles}

    def _append(self, *, due_us: int | None) -> None:
        records, self._waiting = self._waiting, []
        receipts = {receipt.message_id: receipt for receipt in _receipts(records)}
        self._importer.append(records, batch_id=self._new_id(), dedupe=receipts, due_us=due_us)


def _receipts(records: Iterable[JournalRecord]) -> Iterator[Receipt]:
    for record in records:
        if isinstance(record, MessageReceived):
            yield Receipt(message_id=MessageId(record.message_id), event=record.event, at_us=record.at_us)


def _records_up_to(stored: StoredConversation | None, seq: int) -> Iterator[bytes]:
    """As they are written in rows that were verified."""
    for row in stored.rows if stored is not None else ():
        if row.batch.last_seq > seq:
            return
        for record in msgspec.json.decode(row.batch.records, type=list[msgspec.Raw]):
            yield bytes(record)


async def _blob_line(blobs: Blobs, key: ConversationKey, handle: str) -> bytes:
    data = await blobs.get(key, handle)
    if data is None:
        raise BadExport(f"blob {handle} went away")
    return msgspec.json.encode(BlobLine(blob=handle, data=data))
