"""The medium of the store in memory, and the core that changes it.

Above: ``in_memory``, which reads it directly, since a commit is never half done. Several stores over one ``MemoryData``
are several processes over one database, and it outlives each of them. It holds bytes, not objects, so that every record
is encoded and decoded as in any other store.
"""

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from torpor.errors import DuplicateMessage, Fenced, InvariantBroken, LeaseHeld, TorporError, WrongSequence
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import ConversationCreated
from torpor.store.codec import StoredBatch, bundles_in, encode_receipt, encode_records, handles_in, shown_by
from torpor.store.contract import Erased, Head, Lease, Snapshot, Timer, Tombstone
from torpor.store.memory_jobs import MemoryJobs
from torpor.store.requests import (
    Acquire,
    Append,
    AskHead,
    Begin,
    ClaimJob,
    DropJob,
    Erase,
    HastenJobs,
    Outcome,
    PutSnapshot,
    Quarantine,
    RedoJob,
    Release,
    Renew,
    Request,
    SettleJob,
    Tidy,
)
from torpor.store.tombstones import digest_of, path_mark

_NOBODY: Final = ""
_SECRET: Final = b""
"""Of tombstones; nobody else reads this medium."""


class Held:
    """Everything stored under one key."""

    __slots__ = (
        "agent",
        "batches",
        "bundles",
        "created_us",
        "due_us",
        "epoch",
        "expires_us",
        "fence",
        "handles",
        "head",
        "holder",
        "is_archived",
        "is_failed",
        "quarantine",
        "quarantine_kind",
        "quarantine_seq",
        "quarantined_us",
        "receipts",
        "snapshot",
        "timers",
        "title",
        "updated_us",
    )

    def __init__(self) -> None:
        self.fence = 0
        self.holder = _NOBODY
        self.expires_us = 0
        self.head = Head()
        self.batches: list[StoredBatch] = []
        self.snapshot: Snapshot | None = None
        self.receipts: dict[MessageId, bytes] = {}
        self.handles: set[str] = set()
        self.bundles: set[str] = set()
        """Those of them that sub-agents left."""
        self.epoch = 1
        self.timers: dict[str, Timer] = {}
        self.due_us: int | None = None
        self.agent = ""
        self.title = ""
        self.is_archived = False
        self.is_failed = False
        self.created_us = 0
        self.updated_us = 0
        self.quarantine = ""
        self.quarantine_kind = ""
        self.quarantined_us = 0
        self.quarantine_seq = 0


class MemoryData:
    """What lasts. Keys without an append hold no more than a lease."""

    def __init__(self) -> None:
        self.conversations: dict[ConversationKey, Held] = {}
        self.epoch = 1
        self.tombstones: dict[str, list[Tombstone]] = {}
        """By ``path_mark``."""
        self.jobs = MemoryJobs(sleeps=self.is_quarantined)

    def of(self, key: ConversationKey) -> Held:
        return self.conversations.setdefault(key, Held())

    def below(self, key: ConversationKey) -> list[ConversationKey]:
        """Of its sub-agents and theirs."""
        prefix = key.child("").path
        return sorted(each for each in self.conversations if each.path.startswith(prefix))

    def is_quarantined(self, key: ConversationKey) -> bool:
        return bool(self.of(key).quarantine)

    def replace_batch(self, key: ConversationKey, index: int, batch: StoredBatch) -> None:
        """Tamper with the journal, as a failing medium would."""
        self.conversations[key].batches[index] = batch

    def __repr__(self) -> str:
        return f"<MemoryData conversations={len(self.conversations)}>"


class MemoryCore:
    """Implements ``store.requests.CommitCore`` over ``MemoryData``."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        return [self._carry_out(request) for request in requests]

    def _carry_out(self, request: Request) -> Outcome:
        try:
            match request:
                case Append():
                    self._append(request)
                case Begin():
                    self._begin(request)
                case PutSnapshot():
                    self._put_snapshot(request)
                case Quarantine():
                    self._quarantine(request)
                case Release():
                    self._release(request)
                case ClaimJob() | SettleJob() | RedoJob() | DropJob():
                    self._data.jobs.carry_out(request)
                case HastenJobs():
                    return self._data.jobs.hasten(request)
                case Erase():
                    return self._erase(request)
                case Tidy():
                    return True
                case AskHead():
                    return self._head(request.key)
                case Acquire():
                    return self._acquire(request)
                case Renew():
                    return self._renew(request)
                case _:
                    assert_never(request)
        except TorporError as exc:
            return exc
        return None

    def _append(self, request: Append) -> None:
        held = self._fenced(request.key, request.fence)
        numbers, path = request.numbers, request.key.path
        if held.head.seq != numbers.expected_seq:
            raise WrongSequence(path, expected_seq=numbers.expected_seq, head_seq=held.head.seq)
        for message_id in request.dedupe:
            if (receipt := held.receipts.get(message_id)) is not None:
                raise DuplicateMessage(path, message_id=message_id, receipt=receipt)
        if numbers.expected_event not in {None, held.head.event}:
            raise InvariantBroken(f"batch for {path!r} follows event {numbers.expected_event}, not {held.head.event}")
        event = held.head.event if numbers.last_event is None else numbers.last_event
        first, last = request.records[0], request.records[-1]
        try:
            batch = StoredBatch(first.seq, last.seq, event, encode_records(request.records))
            receipts = {message_id: encode_receipt(receipt) for message_id, receipt in request.dedupe.items()}
        except ValueError as exc:
            raise InvariantBroken(f"batch for {path!r} cannot be stored: {exc}") from exc
        held.batches.append(batch)
        held.head = Head(seq=last.seq, event=event, batch_id=request.batch_id)
        held.receipts.update(receipts)
        self._data.jobs.add(request.key, request.jobs, at_us=last.at_us)
        held.timers.update({timer.id: timer for timer in request.timers})
        held.due_us = request.due_us
        held.updated_us = last.at_us
        if first.seq == 1:
            held.created_us = first.at_us
            held.epoch = self._data.epoch
        held.handles.update(handles_in(request.records))
        held.bundles.update(bundles_in(request.records))
        if isinstance(first, ConversationCreated):
            held.agent = first.agent
        shown = shown_by(request.records)
        held.title = held.title if shown.title is None else shown.title
        held.is_archived = held.is_archived if shown.is_archived is None else shown.is_archived
        held.is_failed = held.is_failed if shown.is_failed is None else shown.is_failed

    def _begin(self, request: Begin) -> None:
        if head := self._fenced(request.key, request.fence).head.seq:
            raise WrongSequence(request.key.path, expected_seq=0, head_seq=head)
        try:
            for append in request.appends:
                self._append(append)
        except TorporError:
            self._emptied(request.key)
            raise

    def _put_snapshot(self, request: PutSnapshot) -> None:
        held = self._fenced(request.key, request.fence)
        if request.snapshot.seq > held.head.seq:
            raise WrongSequence(request.key.path, expected_seq=request.snapshot.seq, head_seq=held.head.seq)
        held.snapshot = request.snapshot

    def _erase(self, request: Erase) -> Erased:
        """What is left is the lease, so that a holder before it stays fenced."""
        self._fenced(request.key, request.fence)
        for child in self._data.below(request.key):
            self._bury(child, request)
            del self._data.conversations[child]
        records = self._bury(request.key, request)
        if request.key.is_child:  # its lease is that of its conversation
            self._data.conversations.pop(request.key, None)
        else:
            self._emptied(request.key)
        self._data.jobs.forget(request.key)
        return Erased(records=records)

    def _bury(self, key: ConversationKey, request: Erase) -> int:
        """Leave a tombstone of what is there, if it can have been copied; returns how many records that is."""
        held = self._data.of(key)
        records = held.head.seq
        self._data.epoch += records > 0
        if records and not key.is_child:
            tombstone = Tombstone(
                at_us=request.at_us,
                cause=request.cause,
                records=records,
                events=held.head.event,
                epoch=held.epoch,
                digest=digest_of((batch.records for batch in held.batches), secret=_SECRET),
            )
            self._data.tombstones.setdefault(path_mark(key, secret=_SECRET), []).append(tombstone)
        return records

    def _emptied(self, key: ConversationKey) -> None:
        """Nothing but the lease is left of it."""
        held = self._data.of(key)
        left = self._data.conversations[key] = Held()
        left.fence, left.holder, left.expires_us = held.fence, held.holder, held.expires_us

    def _head(self, key: ConversationKey) -> Head:
        held = self._data.conversations.get(key)
        return held.head if held else Head()

    def _quarantine(self, request: Quarantine) -> None:
        held = self._data.conversations.get(request.key)
        if held is not None and held.head.seq:
            held.quarantine = request.reason
            is_held = bool(request.reason)
            held.quarantine_kind = request.kind if is_held else ""
            held.quarantined_us, held.quarantine_seq = (request.at_us, held.head.seq) if is_held else (0, 0)

    def _fenced(self, key: ConversationKey, fence: int) -> Held:
        """What is stored under ``key``, for the holder of the lease of the conversation itself."""
        leased = self._data.of(key.root)
        if leased.holder == _NOBODY or leased.fence != fence:
            raise Fenced(key.path, fence=fence, newer=leased.fence)
        return self._data.of(key)

    def _acquire(self, request: Acquire) -> Lease:
        held = self._data.of(request.key)
        if held.holder not in {_NOBODY, request.holder} and request.now_us < held.expires_us:
            raise LeaseHeld(request.key.path, holder=held.holder, until_us=held.expires_us)
        held.fence += 1
        held.holder = request.holder
        held.expires_us = request.now_us + request.ttl_us
        return Lease(key=request.key, holder=held.holder, fence=held.fence, expires_us=held.expires_us)

    def _renew(self, request: Renew) -> Lease:
        held = self._fenced(request.lease.key, request.lease.fence)
        held.expires_us = request.now_us + request.ttl_us
        return msgspec.structs.replace(request.lease, expires_us=held.expires_us)

    def _release(self, request: Release) -> None:
        held = self._data.of(request.lease.key)
        if held.fence == request.lease.fence:
            held.holder = _NOBODY
            held.expires_us = 0
