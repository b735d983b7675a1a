"""The store contract over a dictionary, with leases proper: for tests, simulation and embedders who keep nothing.

Above: whoever takes a ``Store``. Below: ``memory_data``, which lasts longer than this.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from types import TracebackType
from typing import Final, Self

import anyio.lowlevel

from torpor.errors import InvariantBroken
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord
from torpor.store.codec import decode_receipt, events_after, loaded, records_after, until
from torpor.store.contract import Cause, DirectoryRow, Erased, Head, Job, Lease, Loaded, Timer
from torpor.store.job_contract import JobStore
from torpor.store.job_port import JobPort
from torpor.store.memory_data import Held, MemoryCore, MemoryData
from torpor.store.requests import Acquire, CommitCore, Erase, Release, Renew
from torpor.store.writer import TaskWriter, ask_erased, ask_lease
from torpor.store.writes import Writes

_MICROSECONDS: Final = 1_000_000


class InMemoryStore(Writes):
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
        self._task = TaskWriter(core or MemoryCore(self._data), group_limit=group_limit, latency=latency)
        super().__init__(self._task)
        self._job_port = JobPort(self._writer, self._data.jobs)

    @property
    def job_store(self) -> JobStore:
        """The same jobs across conversations."""
        return self._job_port

    async def __aenter__(self) -> Self:
        await self._task.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        return await self._task.__aexit__(exc_type, exc, tb)

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

    async def load(self, key: ConversationKey, *, use_snapshot: bool = True) -> Loaded:
        await anyio.lowlevel.checkpoint()
        held = self._data.conversations.get(key)
        if held is None:
            return Loaded(head=Head(), snapshot=None, tail=(), tail_bytes=0)
        snapshot = held.snapshot if use_snapshot else None
        after = snapshot.seq if snapshot else 0
        batches = [batch for batch in held.batches if batch.last_seq > after]
        return loaded(key, batches, snapshot=snapshot, head=held.head)

    async def receipt(self, key: ConversationKey, message_id: MessageId) -> Receipt | None:
        await anyio.lowlevel.checkpoint()
        held = self._data.conversations.get(key)
        data = held.receipts.get(message_id) if held else None
        return decode_receipt(key, data) if data else None

    async def events_after(
        self, key: ConversationKey, *, event: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        await anyio.lowlevel.checkpoint()
        held = self._data.conversations.get(key) or Held()
        batches = until(
            (batch for batch in held.batches if batch.last_event > event), event=event + limit, size_bytes=size_bytes
        )
        return events_after(key, batches, event=event, head=held.head, limit=limit, size_bytes=size_bytes)

    async def records_after(
        self, key: ConversationKey, *, seq: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        await anyio.lowlevel.checkpoint()
        held = self._data.conversations.get(key) or Held()
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
            and not key.is_child
            and (tenant is None or key.tenant == tenant)
            and (owner is None or key.owner == owner)
            and (after is None or key > after)
            and (with_archived or not held.is_archived)
        )
        return tuple(islice(matching, limit))

    async def children(self, key: ConversationKey, *, limit: int) -> tuple[DirectoryRow, ...]:
        await anyio.lowlevel.checkpoint()
        found = ((each, self._data.of(each)) for each in self._data.below(key))
        return tuple(islice((_row(each, held) for each, held in found if held.head.seq), limit))

    async def old_children(self, *, before_us: int, limit: int) -> tuple[ConversationKey, ...]:
        await anyio.lowlevel.checkpoint()
        old = sorted(
            (held.updated_us, key)
            for key, held in self._data.conversations.items()
            if key.is_child and held.head.seq and held.updated_us < before_us
        )
        return tuple(key for _, key in old[:limit])

    async def epoch(self) -> int:
        await anyio.lowlevel.checkpoint()
        return self._data.epoch

    async def handles_of(self, key: ConversationKey) -> tuple[str, ...]:
        await anyio.lowlevel.checkpoint()
        conversations = self._data.conversations
        its_own = {key, *self._data.below(key)} & conversations.keys()
        others = (held for other, held in conversations.items() if other not in its_own and _is_same_owner(other, key))
        elsewhere = {handle for held in others for handle in held.handles}
        return tuple(sorted({handle for each in its_own for handle in conversations[each].handles} - elsewhere))

    async def unnamed(self, key: ConversationKey, handles: Sequence[str]) -> tuple[str, ...]:
        await anyio.lowlevel.checkpoint()
        held_by = (held for other, held in self._data.conversations.items() if _is_same_owner(other, key))
        named = {handle for held in held_by for handle in held.handles}
        return tuple(sorted(set(handles) - named))

    async def names_blob(self, key: ConversationKey, handle: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return key in self._data.conversations and handle in self._data.conversations[key].handles

    async def names_bundle(self, key: ConversationKey, handle: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return key in self._data.conversations and handle in self._data.conversations[key].bundles

    async def erase(self, lease: Lease, *, cause: Cause = Cause.DELETED, at_us: int = 0) -> Erased:
        request = Erase(key=lease.key, fence=lease.fence, cause=cause.value, at_us=at_us)
        return await ask_erased(self._writer, request)

    async def scrubbed(self) -> bool:
        await anyio.lowlevel.checkpoint()
        return True

    async def count_conversations(self, *, tenant: str, owner: str, limit: int) -> int:
        await anyio.lowlevel.checkpoint()
        mine = (
            held.head.seq > 0
            for key, held in self._data.conversations.items()
            if (key.tenant, key.owner) == (tenant, owner) and not key.is_child
        )
        return min(sum(mine), limit)

    def __repr__(self) -> str:
        return f"<InMemoryStore {self._data!r} {self._writer!r}>"


def _is_same_owner(one: ConversationKey, other: ConversationKey) -> bool:
    return (one.tenant, one.owner) == (other.tenant, other.owner)


def _row(key: ConversationKey, held: Held) -> DirectoryRow:
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
