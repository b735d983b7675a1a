"""What every store promises: fenced, all-or-nothing appends to one journal per conversation.

Above: the actor, the only writer of its conversation; the supervisor, which leases and lists; the gateway and the
inspector, which read. Below: one module per backend. A store knows records, not what they mean, and returns values,
never its own objects.

Every call names the owner's key. A conversation that was never written to has head 0 and loads empty.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from enum import StrEnum
from typing import Protocol

import msgspec

from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The timed right to write one conversation."""

    key: ConversationKey
    holder: str
    fence: int
    """Grows with each grant (embedded: with each start of the process); every write carries it."""
    expires_us: int
    """0 when it ends with the process only."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Where a journal ends."""

    seq: int = 0
    event: int = 0
    batch_id: str = ""
    """Of the last append."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The fold at ``seq``, encoded; a cache that may be deleted at any time."""

    seq: int
    version: int
    """Of the encoding; another version is ignored, not an error."""
    data: bytes


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What a thaw needs, from one consistent read."""

    head: Head
    snapshot: Snapshot | None
    tail: tuple[JournalRecord, ...]
    """The records after the snapshot, or all of them without one."""
    tail_bytes: int
    """Stored size of ``tail``."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Durable background work, written by an append."""

    id: str
    kind: str
    due_us: int
    payload: msgspec.Raw = msgspec.Raw(b"{}")


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A moment to wake at; replaced whole by id."""

    id: str
    due_us: int


class QuarantineKind(StrEnum):
    """Who found that a conversation must not go on."""

    JOURNAL = "journal"
    """Its journal cannot be read, decoded or continued."""
    CRASHES = "crashes"
    """Its actor crashed again and again."""
    OPERATOR = "operator"


class DirectoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation as lists show it; read from an index row, never from a transcript."""

    key: ConversationKey
    agent: str
    title: str
    head: Head
    created_us: int
    updated_us: int
    due_us: int | None
    """When its next step may run; None at rest."""
    quarantine: str
    """Why it is quarantined; empty when it is not."""
    quarantine_kind: str = ""
    """A ``QuarantineKind``; empty likewise."""
    quarantined_us: int = 0
    quarantine_seq: int = 0
    """The last record when it was quarantined."""
    epoch: int = 1
    """Of its events: an id that is used again after an erasure has another one."""
    is_archived: bool = False
    is_failed: bool = False
    """Whether its last turn failed, and nothing came after it."""


class Cause(StrEnum):
    """Why a conversation was taken away."""

    DELETED = "deleted"
    """Somebody who may asked for this one."""
    FORGOTTEN = "forgotten"
    """An operator had everything of its owner forgotten."""
    AGE = "age"
    """Nothing had happened in it for as long as conversations are kept."""
    ARCHIVED = "archived"
    """The same, of those that are archived."""
    COUNT = "count"
    """Its owner had more than are kept, and this was not among the newest."""


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken out of a store."""

    records: int
    """0 when there was nothing."""
    lingers: bool = False
    """Whether somebody from outside reads, so that what was erased can still be found in the log until they end; see
    ``scrubbed``."""


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """What stays of a conversation that was erased: enough to recognise it, and a copy of it, by those who have it."""

    at_us: int
    cause: str
    """A ``Cause``."""
    records: int
    events: int
    epoch: int
    digest: str
    """Of the records, see ``store.tombstones``; empty where they could not be read."""


class Ticket(Protocol):
    """An append on its way to the disk."""

    async def wait(self) -> None:
        """Return once the batch is durable. Any number of tasks may wait; each gets the same answer.

        Cancellation: the batch goes on and may become durable.
        Raises:
            Fenced, WrongSequence, DuplicateMessage, StoreFull: nothing was written.
            StoreUnavailable: it may have been written; compare ``head().batch_id`` before deciding.
        """
        ...


class Store(Protocol):
    """See the module docstring."""

    async def acquire(self, key: ConversationKey, *, holder: str, ttl_s: float, now_us: int) -> Lease:
        """Take the lease, or take it over once it has lapsed; the fence is greater than any before.

        Embedded stores lock the whole data directory, give the number of the process's start as fence, write nothing.
        Raises: LeaseHeld: another holder's lease has not lapsed.
        """
        ...

    async def renew(self, lease: Lease, *, ttl_s: float, now_us: int) -> Lease:
        """Extend. Raises: Fenced: it belongs to somebody else by now."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give it back; releasing one that was lost is not an error and changes nothing."""
        ...

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
        """Hand over 1..256 numbered records that follow ``expected_seq``; atomic with everything else it names.

        The caller is the conversation's only writer and has at most one append in flight, so it numbers the records
        itself. ``dedupe`` enters the receipt index, ``due_us`` replaces the due mark, jobs are added by id, timers
        replaced by id. Errors come from the ticket.
        """
        ...

    async def head(self, key: ConversationKey) -> Head:
        """The durable head, behind every append handed over before this call."""
        ...

    async def load(self, key: ConversationKey, *, use_snapshot: bool = True) -> Loaded:
        """Snapshot and tail. Raises: JournalCorrupt: the records cannot be read, decoded or are not contiguous."""
        ...

    async def put_snapshot(self, key: ConversationKey, *, fence: int, snapshot: Snapshot) -> None:
        """Replace the snapshot. Raises: Fenced, StoreFull, StoreUnavailable; WrongSequence: it is past the head."""
        ...

    async def receipt(self, key: ConversationKey, message_id: MessageId) -> Receipt | None:
        """The receipt of a message accepted before, from the index; a point read."""
        ...

    async def events_after(
        self, key: ConversationKey, *, event: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        """Public records numbered above ``event``, in order, at most ``limit``.

        Args: size_bytes: a read ends with the batch in which so much has been read.
        Raises: JournalCorrupt.
        """
        ...

    async def records_after(
        self, key: ConversationKey, *, seq: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        """Records numbered above ``seq``, in order, at most ``limit``; the rest as ``events_after``."""
        ...

    async def due(self, *, now_us: int, limit: int) -> tuple[ConversationKey, ...]:
        """Conversations whose mark is at or before ``now_us``, oldest first, none of them quarantined."""
        ...

    async def jobs(self, key: ConversationKey) -> tuple[Job, ...]:
        """Its jobs by id."""
        ...

    async def timers(self, key: ConversationKey) -> tuple[Timer, ...]:
        """Its timers by id."""
        ...

    async def describe(self, key: ConversationKey) -> DirectoryRow | None:
        """Its directory row; None when nothing was ever written under this key."""
        ...

    async def list_conversations(
        self,
        *,
        tenant: str | None,
        owner: str | None,
        limit: int,
        after: ConversationKey | None = None,
        with_archived: bool = True,
    ) -> tuple[DirectoryRow, ...]:
        """Rows in key order behind ``after``, none of them a sub-agent's; None for every tenant or owner."""
        ...

    async def children(self, key: ConversationKey, *, limit: int) -> tuple[DirectoryRow, ...]:
        """Rows of the sub-agents, of every depth, that work or worked for ``key``, in key order."""
        ...

    async def old_children(self, *, before_us: int, limit: int) -> tuple[ConversationKey, ...]:
        """Sub-agents' that were written to before that time and not since, oldest first."""
        ...

    async def epoch(self) -> int:
        """What a conversation has that begins now; grows with each erasure, whosever it is."""
        ...

    async def handles_of(self, key: ConversationKey) -> tuple[str, ...]:
        """Blobs that records of this conversation and its sub-agents name, and of no other one of its owner; of a
        sub-agent, also not the conversation that it works for."""
        ...

    async def unnamed(self, key: ConversationKey, handles: Sequence[str]) -> tuple[str, ...]:
        """Those of ``handles`` that no record of any conversation of the owner of ``key`` names, sorted."""
        ...

    async def names_blob(self, key: ConversationKey, handle: str) -> bool:
        """Whether a record of this very conversation names the blob ``handle``; a point read."""
        ...

    async def names_bundle(self, key: ConversationKey, handle: str) -> bool:
        """Whether a record of this conversation says that a sub-agent left the bundle ``handle``; a point read."""
        ...

    async def erase(self, lease: Lease, *, cause: Cause = Cause.DELETED, at_us: int = 0) -> Erased:
        """Take everything out that is stored under the lease's key: journal, snapshot, receipts, jobs, timers, its row.

        With it goes whatever its sub-agents wrote. Afterwards the key answers like one that was never written to, and
        where the medium can be read by others, the bytes are gone from it, unless the answer says that they linger. A
        tombstone stays, but none of a sub-agent. Blobs are not touched: see ``handles_of``, before. The lease goes on.
        What keeps the bytes from going is no failure of the erasure, which has happened then.
        Raises: Fenced, StoreFull: nothing was erased.  StoreUnavailable: it may have been; erasing again settles it.
        """
        ...

    async def scrubbed(self) -> bool:
        """Whether nothing that was ever erased lingers on the medium; what can be done about it is tried first.

        A store that cannot do it says False.
        """
        ...

    async def begin(
        self,
        lease: Lease,
        *,
        records: Sequence[JournalRecord],
        batch_id: str,
        dedupe: Mapping[MessageId, Receipt],
    ) -> None:
        """Write a conversation that is not there with all of ``records``, numbered from 1, at once; it is not due.

        Raises: Fenced, StoreFull, WrongSequence: nothing was written, the last because it is there.
            StoreUnavailable: it may have been written.
        """
        ...

    async def count_conversations(self, *, tenant: str, owner: str, limit: int) -> int:
        """How many this owner has, archived ones included and sub-agents' not, counted up to ``limit``."""
        ...

    async def quarantine(
        self,
        key: ConversationKey,
        *,
        reason: str,
        kind: QuarantineKind = QuarantineKind.OPERATOR,
        at_us: int = 0,
    ) -> None:
        """Mark it, with the last record as of now, or with an empty reason release it; needs no fence, since it changes
        no record."""
        ...


class OpenStore(Protocol):
    """Opens a store for the life of a process: ``async with``; what it opened it closes."""

    def __call__(self) -> AbstractAsyncContextManager[Store]: ...


class Blobs(Protocol):
    """Whole bodies beside the journal, content-addressed within one owner."""

    async def put(self, key: ConversationKey, data: bytes) -> str:
        """Store and make durable; returns the handle (sha256, hex). Equal data of one owner is stored once.

        Until the actor of ``key`` has ended, it stays, whoever else of the owner is taken away: a record may name it.

        Raises: StoreFull, StoreUnavailable: nothing readable was left behind.
        """
        ...

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        """Bytes from ``offset``; None when this owner has no such blob."""
        ...


class ErasableBlobs(Blobs, Protocol):
    """The same, where they can be taken away."""

    async def size_bytes(self, key: ConversationKey, handle: str) -> int | None:
        """Of the whole; None when this owner has no such blob. Raises: StoreUnavailable."""
        ...

    async def remove(self, key: ConversationKey, handles: Sequence[str]) -> None:
        """This owner has these blobs no more, durably; one that is not there is no error.

        Those stay that were put for another conversation than ``key`` which may still name them; for a sub-agent, the
        conversation that it works for is another one.
        Raises: StoreUnavailable.
        """
        ...

    def deciding(self) -> AbstractContextManager[None]:
        """In the block, from the look which blobs are named to their removal, what is let go of counts as kept."""
        ...

    def keep(self, key: ConversationKey, handles: Sequence[str]) -> None:
        """As if they were put again for ``key``, which a record of it may name soon; at once."""
        ...

    def let_go(self, key: ConversationKey) -> None:
        """The actor of ``key`` has ended, and those that worked for it: what they put is named by a record, or never
        will be."""
        ...

    async def stored(self, key: ConversationKey) -> tuple[str, ...]:
        """Everything that is kept for this owner, to be given to ``remove``: what no record names as well, and what a
        crash left unfinished. Raises: StoreUnavailable."""
        ...
