"""The store contract over a dictionary, with leases proper: for tests, simulation and embedders who keep nothing.

Above: whoever takes a ``Store``. ``MemoryData`` is the medium: several stores over one data are several processes over
one database, and it outlives each of them. It holds bytes, not objects, so that every record is encoded and decoded as
in any other store. ``MemoryCore`` changes it; reads go to it directly, since a commit is never half done.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Final, Self, assert_never

import anyio.lowlevel
import msgspec

from torpor.errors import DuplicateMessage, Fenced, InvariantBroken, LeaseHeld, TorporError, WrongSequence
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import ConversationCreated, JournalRecord
from torpor.store.codec import (
    StoredBatch,
    decode_receipt,
    encode_receipt,
    encode_records,
    events_after,
    handles_in,
    loaded,
    number_batch,
    records_after,
    shown_by,
    until,
)
from torpor.store.contract import (
    Cause,
    DirectoryRow,
    Erased,
    Head,
    Job,
    Lease,
    Loaded,
    QuarantineKind,
    Snapshot,
    Ticket,
    Timer,
    Tombstone,
)
from torpor.store.job_contract import JobStore
from torpor.store.job_port import JobPort
from torpor.store.memory_jobs import MemoryJobs
from torpor.store.requests import (
    Acquire,
    Append,
    AskHead,
    Begin,
    ClaimJob,
    CommitCore,
    DropJob,
    Erase,
    Outcome,
    PutSnapshot,
    Quarantine,
    RedoJob,
    Release,
    Renew,
    Request,
    SettleJob,
    Tidy,
    beginning,
)
from torpor.store.tombstones import digest_of, path_mark
from torpor.store.writer import TaskWriter, ask_erased, ask_head, ask_lease

_MICROSECONDS: Final = 1_000_000
_NOBODY: Final = ""
_SECRET: Final = b""
"""Of tombstones; nobody else reads this medium."""


class _Conversation:
    """Everything stored under one key."""

    __slots__ = (
        "agent",
        "batches",
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
        self.conversations: dict[ConversationKey, _Conversation] = {}
        self.epoch = 1
        self.tombstones: dict[str, list[Tombstone]] = {}
        """By ``path_mark``."""
        self.jobs = MemoryJobs(sleeps=self.is_quarantined)

    def of(self, key: ConversationKey) -> _Conversation:
        return self.conversations.setdefault(key, _Conversation())

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
        held = self._fenced(request.key, request.fence)
        records = held.head.seq
        if records:
            tombstone = Tombstone(
                at_us=request.at_us,
                cause=request.cause,
                records=records,
                events=held.head.event,
                epoch=held.epoch,
                digest=digest_of((batch.records for batch in held.batches), secret=_SECRET),
            )
            self._data.tombstones.setdefault(path_mark(request.key, secret=_SECRET), []).append(tombstone)
        self._emptied(request.key)
        self._data.jobs.forget(request.key)
        self._data.epoch += records > 0
        return Erased(records=records)

    def _emptied(self, key: ConversationKey) -> None:
        """Nothing but the lease is left of it."""
        held = self._data.of(key)
        left = self._data.conversations[key] = _Conversation()
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

    def _fenced(self, key: ConversationKey, fence: int) -> _Conversation:
        held = self._data.of(key)
        if held.holder == _NOBODY or held.fence != fence:
            raise Fenced(key.path, fence=fence, newer=held.fence)
        return held

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


class InMemoryStore:
    """Implements ``store.contract.Store``: ``async with``, one per supervisor.

    Args: data: the medium, shared with other stores.  latency: seconds that each group of writes takes.
        core: what carries out the writes, where a test puts faults around it.
    """

    def __init__(
        self,
        data: MemoryData | None = None,
        *,
        latency: Callable[[], float] | None = None,
        group_limit: int = 256,
        core: CommitCore | None = None,
    ) -> None:
        self._data = data or MemoryData()
        self._writer = TaskWriter(core or MemoryCore(self._data), group_limit=group_limit, latency=latency)
        self._job_port = JobPort(self._writer, self._data.jobs)

    @property
    def job_store(self) -> JobStore:
        """The same jobs across conversations."""
        return self._job_port

    async def __aenter__(self) -> Self:
        await self._writer.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        return await self._writer.__aexit__(exc_type, exc, tb)

    async def acquire(self, key: ConversationKey, *, holder: str, ttl_s: float, now_us: int) -> Lease:
        if not holder:
            raise InvariantBroken("a lease needs the name of its holder")
        ttl_us = round(ttl_s * _MICROSECONDS)
        return await ask_lease(self._writer, Acquire(key=key, holder=holder, ttl_us=ttl_us, now_us=now_us))

    async def renew(self, lease: Lease, *, ttl_s: float, now_us: int) -> Lease:
        ttl_us = round(ttl_s * _MICROSECONDS)
        return await ask_lease(self._writer, Renew(lease=lease, ttl_us=ttl_us, now_us=now_us))

    async def release(self, lease: Lease) -> None:
        await self._writer.submit(Release(lease=lease)).wait()

    def append(
        self,
        key: ConversationKey,
        *,
        fence: int,
        expected_seq: int,
        batch_id: str,
        records: Sequence[JournalRecord],
        dedupe: Mapping[MessageId, Receipt],
        due_us: int | None,
        jobs: Sequence[Job] = (),
        timers: Sequence[Timer] = (),
    ) -> Ticket:
        return self._writer.submit(
            Append(
                key=key,
                fence=fence,
                numbers=number_batch(key, records, expected_seq=expected_seq),
                batch_id=batch_id,
                records=records,
                dedupe=dedupe,
                due_us=due_us,
                jobs=jobs,
                timers=timers,
            )
        )

    async def head(self, key: ConversationKey) -> Head:
        return await ask_head(self._writer, AskHead(key=key))

    async def load(self, key: ConversationKey, *, use_snapshot: bool = True) -> Loaded:
        await anyio.lowlevel.checkpoint()
        held = self._data.conversations.get(key)
        if held is None:
            return Loaded(head=Head(), snapshot=None, tail=(), tail_bytes=0)
        snapshot = held.snapshot if use_snapshot else None
        after = snapshot.seq if snapshot else 0
        batches = [batch for batch in held.batches if batch.last_seq > after]
        return loaded(key, batches, snapshot=snapshot, head=held.head)

    async def put_snapshot(self, key: ConversationKey, *, fence: int, snapshot: Snapshot) -> None:
        await self._writer.submit(PutSnapshot(key=key, fence=fence, snapshot=snapshot)).wait()

    async def receipt(self, key: ConversationKey, message_id: MessageId) -> Receipt | None:
        await anyio.lowlevel.checkpoint()
        held = self._data.conversations.get(key)
        data = held.receipts.get(message_id) if held else None
        return decode_receipt(key, data) if data else None

    async def events_after(
        self, key: ConversationKey, *, event: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        await anyio.lowlevel.checkpoint()
        held = self._data.conversations.get(key) or _Conversation()
        batches = until(
            (batch for batch in held.batches if batch.last_event > event), event=event + limit, size_bytes=size_bytes
        )
        return events_after(key, batches, event=event, head=held.head, limit=limit, size_bytes=size_bytes)

    async def records_after(
        self, key: ConversationKey, *, seq: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        await anyio.lowlevel.checkpoint()
        held = self._data.conversations.get(key) or _Conversation()
        batches = until(
            (batch for batch in held.batches if batch.last_seq > seq), seq=seq + limit, size_bytes=size_bytes
        )
        return records_after(key, batches, seq=seq, head=held.head, limit=limit, size_bytes=size_bytes)

    async def due(self, *, now_us: int, limit: int) -> tuple[ConversationKey, ...]:
        await anyio.lowlevel.checkpoint()
        marks = sorted(
            (held.due_us, key)
            for key, held in self._data.conversations.items()
            if held.due_us is not None and held.due_us <= now_us and not held.quarantine
        )
        return tuple(key for _, key in marks[:limit])

    async def jobs(self, key: ConversationKey) -> tuple[Job, ...]:
        await anyio.lowlevel.checkpoint()
        return self._data.jobs.of(key)

    async def timers(self, key: ConversationKey) -> tuple[Timer, ...]:
        await anyio.lowlevel.checkpoint()
        held = self._data.conversations.get(key)
        return tuple(timer for _, timer in sorted(held.timers.items())) if held else ()

    async def describe(self, key: ConversationKey) -> DirectoryRow | None:
        await anyio.lowlevel.checkpoint()
        held = self._data.conversations.get(key)
        return _row(key, held) if held and held.head.seq else None

    async def list_conversations(
        self,
        *,
        tenant: str | None,
        owner: str | None,
        limit: int,
        after: ConversationKey | None = None,
        with_archived: bool = True,
    ) -> tuple[DirectoryRow, ...]:
        await anyio.lowlevel.checkpoint()
        matching = (
            _row(key, held)
            for key, held in sorted(self._data.conversations.items())
            if held.head.seq
            and (tenant is None or key.tenant == tenant)
            and (owner is None or key.owner == owner)
            and (after is None or key > after)
            and (with_archived or not held.is_archived)
        )
        return tuple(islice(matching, limit))

    async def epoch(self) -> int:
        await anyio.lowlevel.checkpoint()
        return self._data.epoch

    async def handles_of(self, key: ConversationKey) -> tuple[str, ...]:
        await anyio.lowlevel.checkpoint()
        conversations = self._data.conversations
        others = (held for other, held in conversations.items() if other != key and _is_same_owner(other, key))
        elsewhere = {handle for held in others for handle in held.handles}
        return tuple(sorted(conversations[key].handles - elsewhere)) if key in conversations else ()

    async def erase(self, lease: Lease, *, cause: Cause = Cause.DELETED, at_us: int = 0) -> Erased:
        request = Erase(key=lease.key, fence=lease.fence, cause=cause.value, at_us=at_us)
        return await ask_erased(self._writer, request)

    async def scrubbed(self) -> bool:
        await anyio.lowlevel.checkpoint()
        return True

    async def begin(
        self,
        lease: Lease,
        *,
        records: Sequence[JournalRecord],
        batch_id: str,
        dedupe: Mapping[MessageId, Receipt],
    ) -> None:
        request = beginning(lease.key, records, fence=lease.fence, batch_id=batch_id, dedupe=dedupe)
        await self._writer.submit(request).wait()

    async def count_conversations(self, *, tenant: str, owner: str, limit: int) -> int:
        await anyio.lowlevel.checkpoint()
        mine = (
            held.head.seq > 0
            for key, held in self._data.conversations.items()
            if (key.tenant, key.owner) == (tenant, owner)
        )
        return min(sum(mine), limit)

    async def quarantine(
        self,
        key: ConversationKey,
        *,
        reason: str,
        kind: QuarantineKind = QuarantineKind.OPERATOR,
        at_us: int = 0,
    ) -> None:
        await self._writer.submit(Quarantine(key=key, reason=reason, kind=kind.value, at_us=at_us)).wait()

    def __repr__(self) -> str:
        return f"<InMemoryStore {self._data!r} {self._writer!r}>"


def _is_same_owner(one: ConversationKey, other: ConversationKey) -> bool:
    return (one.tenant, one.owner) == (other.tenant, other.owner)


def _row(key: ConversationKey, held: _Conversation) -> DirectoryRow:
    return DirectoryRow(
        key=key,
        agent=held.agent,
        title=held.title,
        head=held.head,
        created_us=held.created_us,
        updated_us=held.updated_us,
        due_us=held.due_us,
        quarantine=held.quarantine,
        quarantine_kind=held.quarantine_kind,
        quarantined_us=held.quarantined_us,
        quarantine_seq=held.quarantine_seq,
        epoch=held.epoch,
        is_archived=held.is_archived,
        is_failed=held.is_failed,
    )
