"""Rows of a journal -> whether they are what an engine wrote, or the first record that is not.

Rows come in order and are not kept. Each is taken apart and its numbers compared with each other; each record must be
what its own text says, written as this engine writes it; the fold of them all must make every request that the journal
says was sent, and the snapshot. What can be told without the fold is told without it: digests of preambles, and the
chain over the messages of the last request and of each that a fold ended, taken from their bodies.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from torpor.conversation.fold import fold
from torpor.conversation.snapshot import SNAPSHOT_VERSION, BadSnapshot, decode_snapshot
from torpor.conversation.state import BadHistory, ConversationState
from torpor.conversation.view import Preamble, request_fields
from torpor.operations.requests import TURN, RebuiltRequest
from torpor.operations.soundness import flaw_of, too_deep
from torpor.records.attachments import attachment_of, is_marker
from torpor.records.blocks import canonical
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey
from torpor.records.journal import (
    ContextReplaced,
    JournalRecord,
    MessageReceived,
    MessageRetracted,
    ModelRequested,
    PreambleChanged,
    SubagentFinished,
    ToolFinished,
    TurnRefused,
)
from torpor.records.nesting import RECORD_DEPTH_MAX, is_deep_json
from torpor.store.codec import StoredBatch, shown_by
from torpor.store.contract import Blobs, Head, Snapshot

_ROW: Final = msgspec.json.Decoder(list[msgspec.Raw])
_RECORD: Final = msgspec.json.Decoder(JournalRecord)
_RECEIPT: Final = msgspec.json.Decoder(Receipt)
_ENCODER: Final = msgspec.json.Encoder()
_PIECE_BYTES: Final = 1_048_576
_OF_THE_FIRST: Final = frozenset({"agent", "title", "created_us"})
"""What stands in the first record, or began there."""
_RECEIPT_LATER_MAX_US: Final = 60_000_000
"""A receipt bears the time of its record; older ones were dated when they were made, a moment later."""
_NOT_SENT: Final = ": something before it is not what was sent"


class Differs(ValueError):
    """What is stored is not what was written; ``seq`` is the first record of which that can be told, 0 for none."""

    def __init__(self, seq: int, what: str) -> None:
        super().__init__(f"record {seq}: {what}" if seq else what)
        self.seq = seq
        self.what = what


class Handle(msgspec.Struct, frozen=True):
    """A blob that a record names."""

    seq: int
    handle: str
    file: str = ""
    """Of a file that somebody sent, what and with which message; empty for all else."""

    def differs(self, how: str) -> Differs:
        """It is not as the record says."""
        if not self.file:
            return Differs(self.seq, f"blob {self.handle} {how}")
        remedy = "whoever sends the same file again has it stored anew"
        return Differs(self.seq, f"blob {self.handle}, {self.file}, {how}; {remedy}")


class Verification:
    """Of one conversation: every row, then ``end``, then ``check_receipts``. All raise ``Differs``.

    Keeps the state, the last request, and a number for each message.
    """

    def __init__(self, *, snapshot: Snapshot | None = None, said_end: SubagentFinished | None = None) -> None:
        """Args: said_end: what the journal of whom it worked for says of a sub-agent's end, where that is known."""
        self._said_end = said_end
        self._snapshot = snapshot if snapshot is not None and snapshot.version == SNAPSHOT_VERSION else None
        self._last: RebuiltRequest | None = None
        self._messages: dict[str, MessageReceived] = {}
        self._updated_us = 0
        self._is_failed = False
        """Whether lists show that the last turn failed."""
        self.state = ConversationState()
        self.requests = 0
        """Rebuilt, each with the digest and the link that its record names."""
        self.handles: list[Handle] = []
        """Blobs that records name."""
        self.ends: list[SubagentFinished] = []
        """Of sub-agents that worked for it and wrote something."""

    @property
    def records(self) -> int:
        """Taken so far."""
        return self.state.seq

    def row(self, batch: StoredBatch) -> tuple[msgspec.Raw, ...]:
        """Take the next row; returns its records as they are written there."""
        first = self.state.seq + 1
        if batch.first_seq != first:
            raise Differs(first, f"the row that follows begins with record {batch.first_seq}")
        if is_deep_json(batch.records):  # before it is read, which would fail or not as the stack is deep
            raise Differs(first, f"its row cannot be read: {too_deep(RECORD_DEPTH_MAX)}")
        try:
            written = _ROW.decode(batch.records)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise Differs(first, f"its row cannot be read: {exc}") from exc
        for raw in written:
            self.record(bytes(raw))
        if _ENCODER.encode(written) != batch.records:
            raise Differs(first, "its row is not written as a list of records")
        now = self.state
        if (batch.last_seq, batch.last_event) != (now.seq, now.event):
            found = f"record {now.seq}, event {now.event}"
            raise Differs(first, f"its row says it ends at {batch.last_seq}, event {batch.last_event}, it has {found}")
        return tuple(written)

    def record(self, written: bytes) -> JournalRecord:
        """Take the next record as it is written."""
        seq = self.state.seq + 1
        if is_deep_json(written):
            raise Differs(seq, f"it cannot be read: {too_deep(RECORD_DEPTH_MAX)}")
        try:
            record = _RECORD.decode(written)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise Differs(seq, f"it cannot be read: {exc}") from exc
        if _ENCODER.encode(record) != written:
            raise Differs(seq, "it is not written as this engine writes it, or holds more than this engine knows")
        for block in _blocks_of(record):
            _check_canonical(seq, block)
        if flaw := flaw_of(record):
            raise Differs(seq, flaw)
        self._fold(seq, record)
        self._check(record)
        if self._snapshot is not None and self._snapshot.seq == seq:
            self._check_snapshot(self._snapshot)
        return record

    def end(self, head: Head) -> None:
        """All rows were taken, and the journal should end at ``head``."""
        now = self.state
        if (now.seq, now.event) != (head.seq, head.event):
            found = f"it ends at record {now.seq}, event {now.event}"
            raise Differs(min(now.seq, head.seq) + 1, f"{found}, its head says {head.seq}, event {head.event}")
        if self._snapshot is not None and self._snapshot.seq > now.seq:
            raise Differs(now.seq + 1, f"its snapshot stands at record {self._snapshot.seq}, the journal ends before")
        self._check_last()
        self._check_said_end()

    def check_directory(self, told: Mapping[str, object]) -> None:
        """What lists show of the conversation, by name, is what its records say."""
        now = self.state
        said: dict[str, object] = {
            "agent": now.agent,
            "title": now.title,
            "created_us": now.created_us,
            "updated_us": self._updated_us,
            "is_archived": now.is_archived,
            "is_failed": self._is_failed,
        }
        for name, value in told.items():
            if value != said[name]:
                seq = 1 if name in _OF_THE_FIRST else now.seq
                raise Differs(seq, f"the directory says {name} is {value!r}, the record {said[name]!r}")

    def check_receipts(self, receipts: Iterable[tuple[str, bytes]], *, event_now: Callable[[], int]) -> None:
        """One for each message, with its event, and those of messages that came meanwhile, up to ``event_now``."""
        missing, ahead = dict(self._messages), list[Receipt]()
        for message_id, stored in receipts:
            if is_deep_json(stored):
                what = f"the receipt of message {message_id!r} cannot be read: {too_deep(RECORD_DEPTH_MAX)}"
                raise Differs(0, what)
            try:
                receipt = _RECEIPT.decode(stored)
            except (msgspec.DecodeError, UnicodeDecodeError) as exc:
                raise Differs(0, f"the receipt of message {message_id!r} cannot be read: {exc}") from exc
            message = missing.pop(message_id, None)
            if message is None and receipt.event > self.state.event and receipt.message_id == message_id:
                ahead.append(receipt)
                continue
            if message is None or (receipt.message_id, receipt.event) != (message_id, message.event):
                seq = message.seq if message is not None else 0
                raise Differs(
                    seq, f"the receipt of message {message_id!r} names {receipt.message_id!r}, {receipt.event}"
                )
            later_us = receipt.at_us - message.at_us
            if not 0 <= later_us <= _RECEIPT_LATER_MAX_US or _ENCODER.encode(receipt) != stored:
                raise Differs(message.seq, f"the receipt of message {message_id!r} is not the one that was given")
        if missing:
            first = min(missing.values(), key=lambda message: message.seq)
            raise Differs(first.seq, f"message {first.message_id!r} has no receipt")
        last = event_now() if ahead else 0
        for receipt in ahead:
            if receipt.event > last:
                what = f"the receipt of message {receipt.message_id!r} names event {receipt.event}, the last is {last}"
                raise Differs(0, what)

    def _fold(self, seq: int, record: JournalRecord) -> None:
        if _ends_view(record):
            self._check_last()
        try:
            self.state = fold(self.state, (record,))
        except (BadHistory, msgspec.DecodeError) as exc:
            what = str(exc).removeprefix(f"record {seq} ")
            told = _NOT_SENT if isinstance(record, ModelRequested) and "link" in what else ""
            raise Differs(seq, f"{what}{told}") from exc
        self._updated_us = record.at_us
        if (is_failed := shown_by((record,)).is_failed) is not None:
            self._is_failed = is_failed

    def _check_said_end(self) -> None:
        """Behind a link, nothing came; without one, what was on its way may have been written after all."""
        end, now = self._said_end, self.state
        if end is None:
            return
        if now.seq < end.child_seq or (end.link and now.seq != end.child_seq):
            what = f"it ends at record {now.seq}, whom it worked for says {end.child_seq}"
            raise Differs(min(now.seq, end.child_seq) + 1, what)
        if end.link and now.view.link.hex() != end.link:
            raise Differs(now.seq, f"its last link is {now.view.link.hex()}, whom it worked for says {end.link}")

    def _check(self, record: JournalRecord) -> None:
        if isinstance(record, SubagentFinished) and (record.child_seq or record.rounds):
            self.ends.append(record)
        match record:
            case PreambleChanged():
                _check_preamble(record)
            case ModelRequested() if record.purpose == TURN:
                self._last = RebuiltRequest(record=record, state=self.state)
                self.requests += 1
            case MessageReceived():
                if record.message_id in self._messages:
                    raise Differs(record.seq, f"message {record.message_id!r} was received before")
                self._messages[record.message_id] = msgspec.structs.replace(record, blocks=())
                self.handles += _files_of(record)
            case ToolFinished(handle=handle) | SubagentFinished(bundle=handle) if handle:
                self.handles.append(Handle(record.seq, handle))
            case _:
                pass

    def _check_snapshot(self, snapshot: Snapshot) -> None:
        try:
            held = decode_snapshot(snapshot.data)
        except BadSnapshot as exc:
            raise Differs(snapshot.seq, f"its snapshot cannot be read: {exc}") from exc
        if held != self.state:
            raise Differs(snapshot.seq, "its snapshot is not the fold of the journal up to here")

    def _check_last(self) -> None:
        """The chain over the messages of the last request, from nothing but its body."""
        request, self._last = self._last, None
        if request is None:
            return
        body = request.body()
        messages = msgspec.json.decode(body, type=_Body).messages
        link = b""
        for message in messages:
            for block in message.content:
                link = hashlib.sha256(link + bytes(canonical([message.role, block]))).digest()
        if link.hex() != request.record.link:
            what = f"it names link {request.record.link}, its messages have {link.hex()}"
            raise Differs(request.seq, f"{what}{_NOT_SENT}")


async def check_blobs(blobs: Blobs, key: ConversationKey, handles: Iterable[Handle]) -> tuple[str, ...]:
    """Those there are, once each; each is there and is what its handle says. Raises: Differs, StoreUnavailable."""
    seen: dict[str, None] = {}
    for named in handles:
        if named.handle in seen:
            continue
        seen[named.handle] = None
        digest, offset = hashlib.sha256(), 0
        while piece := await blobs.get(key, named.handle, offset=offset, size=_PIECE_BYTES):
            digest.update(piece)
            offset += len(piece)
        if piece is None:
            raise named.differs("is not there")
        if digest.hexdigest() != named.handle:
            raise named.differs(f"has digest {digest.hexdigest()}")
    return tuple(seen)


def _files_of(record: MessageReceived) -> Iterator[Handle]:
    """By kind and not by name, which is content."""
    for block in map(bytes, record.blocks):
        if is_marker(block):
            found = attachment_of(block)
            yield Handle(record.seq, found.blob, f"the {found.media_type} of message {record.message_id!r}")


class _Message(msgspec.Struct):
    role: str
    content: list[msgspec.Raw]


class _Body(msgspec.Struct):
    messages: list[_Message]


def _ends_view(record: JournalRecord) -> bool:
    """Whether requests behind ``record`` need not begin with those before it."""
    return isinstance(record, TurnRefused | ContextReplaced | MessageRetracted)


def _check_preamble(record: PreambleChanged) -> None:
    digest = hashlib.sha256(record.body).hexdigest()
    if digest != record.digest:
        raise Differs(record.seq, f"it names digest {record.digest}, its body has {digest}")
    try:
        request_fields(Preamble(record.digest, record.body))
    except msgspec.DecodeError as exc:
        raise Differs(record.seq, f"its body is no preamble: {exc}") from exc


def _blocks_of(value: Any) -> Iterator[msgspec.Raw]:
    """Whatever stands in a record as it is, at any depth."""
    if isinstance(value, msgspec.Raw):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _blocks_of(each)
    elif isinstance(value, dict):
        yield from _blocks_of(tuple(value.values()))
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _blocks_of(getattr(value, name))


def _check_canonical(seq: int, block: msgspec.Raw) -> None:
    try:
        again = canonical(msgspec.json.decode(block))
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise Differs(seq, f"a block of it cannot be read: {exc}") from exc
    if bytes(again) != bytes(block):
        raise Differs(seq, "a block of it is not canonical JSON")
