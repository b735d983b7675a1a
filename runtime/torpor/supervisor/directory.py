"""Conversations as a whole: taken away so that nothing of them is left.

Above: the gateway, which knows who may ask. Below: the registry, which has nobody serve what is being taken
away; the store; the blobs. Whatever takes conversations away, whoever asked for it, goes through ``erase``.

What was begun is not given up when the one who asked has gone: it runs in a task of the directory's own.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, Protocol

import anyio
import anyio.abc
import msgspec
import structlog

from torpor.actor.mailbox import PendingReply
from torpor.actor.thaw import thaw
from torpor.bus.contract import Bus
from torpor.clock import Clock
from torpor.conversation.state import ChildState
from torpor.errors import (
    ClientError,
    ConversationDeleted,
    Fenced,
    InvariantBroken,
    JournalCorrupt,
    StoreError,
    TorporError,
    Unavailable,
    UnknownConversation,
)
from torpor.records.commands import CancelTurn, Wake
from torpor.records.ids import ConversationKey
from torpor.store.contract import Cause, ErasableBlobs, Erased, Lease, Store
from torpor.supervisor.contract import Forgotten, LiveStatus, Reply
from torpor.supervisor.leftovers import Leftovers
from torpor.supervisor.listing import rows_of
from torpor.supervisor.remains import ERASED, Remains, remains_of
from torpor.supervisor.retention import Retired, may_go
from torpor.turn.contract import UNOBSERVED, Observer

_DONE: Final = True
_LOOKED_AT_MAX: Final = 10_000
"""Owners that are remembered; a further one has all looked at once more."""
_LEFT_MAX: Final = 100_000
"""Of conversations that are counted."""
_RETIRING: Final = {Cause.AGE, Cause.ARCHIVED, Cause.COUNT}
_log = structlog.get_logger()


class Served(Protocol):
    """What is needed of the registry."""

    def live_status(self, key: ConversationKey) -> LiveStatus | None: ...

    def close(self, key: ConversationKey, *, verdict: ClientError) -> Callable[[], None]: ...

    async def end_turn(self, key: ConversationKey, command: CancelTurn) -> None: ...

    def set_aside(self, key: ConversationKey, *, verdict: ClientError) -> AbstractAsyncContextManager[Lease]: ...

    def lent(self, key: ConversationKey) -> AbstractAsyncContextManager[Lease | None]: ...


class Coming(Protocol):
    """Files that are on their way to a message; implemented by the gateway's uploads."""

    async def awaited(self, key: ConversationKey) -> frozenset[str]: ...

    async def give_up(self, key: ConversationKey, blobs: Collection[str]) -> frozenset[str]: ...

    async def forget(self, key: ConversationKey) -> None: ...


class NothingComing:
    """Implements ``Coming`` where nothing can be uploaded."""

    async def awaited(self, key: ConversationKey) -> frozenset[str]:
        del key
        return frozenset()

    async def give_up(self, key: ConversationKey, blobs: Collection[str]) -> frozenset[str]:
        del key
        return frozenset(blobs)

    async def forget(self, key: ConversationKey) -> None:
        """There is nothing."""


_NOTHING_COMING: Final = NothingComing()


class DirectoryStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Now, and since the start of the process."""

    erasing: int
    erased: Mapping[str, int]
    """By ``Cause``."""
    subagents: int
    """Journals of sub-agents that were taken away before their conversations."""
    blobs: int
    """Taken away with conversations, or with what is left of an owner."""
    failures: int
    """Erasures that have to be asked for again, or are tried again at the next look."""


class _Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Out of the store and the blobs."""

    records: int
    blobs: int


class StoredDirectory:
    """Implements ``supervisor.contract.Directory``; ``async with directory.running()``."""

    def __init__(
        self,
        *,
        served: Served,
        store: Store,
        blobs: ErasableBlobs,
        bus: Bus,
        clock: Clock,
        cancel_deadline_s: float,
        observer: Observer = UNOBSERVED,
        uploads: Coming = _NOTHING_COMING,
    ) -> None:
        """Args: cancel_deadline_s: how long a running turn may take to end before it is cut off.  observer: is told of
        sub-agents that end with their conversation.  uploads: name blobs that no record names yet."""
        self._served = served
        self._store = store
        self._blobs = blobs
        self._bus = bus
        self._clock = clock
        self._cancel_deadline_s = cancel_deadline_s
        self._uploads = uploads
        self._observer = observer
        self._tasks: anyio.abc.TaskGroup | None = None
        self._erasing: dict[ConversationKey, PendingReply] = {}
        self._looked_at: set[tuple[str, str]] = set()
        """Owners none of whose blobs is left without a record that names it, as far as this process is to blame."""
        self._leftovers = Leftovers(self._remove_rest)
        self._erased = Counter[str](dict.fromkeys(Cause, 0))
        self._subagents = 0
        self._blobs_gone = 0
        self._failures = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["StoredDirectory"]:
        """What is still under way at the end is cut off, as by a crash, and may be asked for again."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    async def delete(self, key: ConversationKey, *, principal: str) -> None:
        """See the contract."""
        await self.begin_delete(key, principal=principal).wait()

    def begin_delete(self, key: ConversationKey, *, principal: str) -> Reply:
        """See the contract. Of several that ask at once, each is answered."""
        return self._erasing.get(key) or self._begun(key, principal=principal)

    async def forget(self, *, tenant: str, owner: str, limit: int, principal: str) -> Forgotten:
        """See the contract."""
        taken: list[_Taken] = []
        before = await self._stored(ConversationKey(tenant, owner, ""))
        rows = await self._store.list_conversations(tenant=tenant, owner=owner, limit=limit)
        for row in rows:
            under_way = self._erasing.get(row.key) or self._begun(
                row.key, principal=principal, cause=Cause.FORGOTTEN, taken=taken
            )
            try:
                await under_way.wait()
            except TorporError as exc:  # it is counted as left, and keeps no other one from being taken away
                _log.warning("directory.not_forgotten", conversation=row.key.path, why=str(exc))
        try:
            await self._uploads.forget(ConversationKey(tenant, owner, ""))
            self._looked_at.discard((tenant, owner))
            rest, is_left = await self._remove_rest(ConversationKey(tenant, owner, "")), False
        except StoreError as exc:  # what went is gone; that some of it may be there still is said as well
            self._blobs_left(ConversationKey(tenant, owner, ""), exc)
            rest, is_left = 0, True
        gone = rest + sum(each.blobs for each in taken)
        if before is not None and (after := await self._stored(ConversationKey(tenant, owner, ""))) is not None:
            gone = len(before - after)  # records may name what was not there any more
        return Forgotten(
            conversations=len(taken),
            records=sum(each.records for each in taken),
            blobs=gone,
            left=await self._store.count_conversations(tenant=tenant, owner=owner, limit=_LEFT_MAX),
            lingers=not await self._store.scrubbed() or is_left,
        )

    async def _stored(self, owner: ConversationKey) -> frozenset[str] | None:
        """None where that cannot be told now."""
        try:
            return frozenset(await self._blobs.stored(owner))
        except StoreError:
            return None

    async def survey(self, *, tenant: str, owner: str) -> Forgotten:
        """See the contract."""
        rows = await rows_of(self._store, tenant=tenant, owner=owner)
        blobs = await self._blobs.stored(ConversationKey(tenant, owner, ""))
        records = sum(row.head.seq for row in rows)
        return Forgotten(conversations=len(rows), records=records, blobs=len(blobs), left=len(rows), lingers=False)

    async def retire(self, old: Retired) -> bool:
        """Take away what is not to be kept, unless somebody uses it; whether that was done.

        Raises: Unavailable: it is used after all. StoreError: as ``erase``.
        """
        key = old.row.key
        if key in self._erasing or self._served.live_status(key) is not None:
            return False

        async def retire() -> None:
            if self._served.live_status(key) is not None:
                raise _used_again(key)
            # Nothing happens between this look and the next line, so that nobody's turn is cut off.
            async with self._served.set_aside(key, verdict=ConversationDeleted(key.conversation)) as lease:
                row = await self._store.describe(key)
                if row is None or row.head != old.row.head or not may_go(row):
                    raise _used_again(key)
                await self._take(lease, cause=old.cause)

        await self._start(retire, key=key).wait()
        return True

    async def retire_subagent(self, key: ConversationKey) -> bool:
        """Take away what a sub-agent wrote, and what those below it did; whether that was done.

        Its conversation stays in service, with what its own journal says of the sub-agent. Nothing is done while a turn
        runs in it or is due, or while it is quarantined.
        Raises: ClientError: its conversation is being taken away. StoreError: as ``erase``.
        """
        row = await self._store.describe(key.root)
        if row is not None and not may_go(row):
            return False
        async with self._served.lent(key.root) as lease:
            if lease is None:
                return False
            self._blobs.let_go(key)  # it has ended, which only its conversation was told
            with self._blobs.deciding():
                handles = await self._store.handles_of(key)
                try:
                    erased = await self._erased_of(msgspec.structs.replace(lease, key=key), cause=Cause.AGE)
                except Fenced:
                    return False
                await self._removed(key, handles)
        if erased.records:
            self._subagents += 1
            _log.info("subagent.retired", tenant=key.tenant, records=erased.records)
        return erased.records > 0

    async def erase(self, key: ConversationKey, *, cause: Cause = Cause.DELETED) -> _Taken:
        """Take away everything that is stored of ``key``; its actor is cut off, and who watches it is told.

        Raises: UnknownConversation: there is nothing. Unavailable: nothing was erased, since its actor did not end in
            time or lives on another server. StoreError: nothing was erased, or nobody can tell; ask again.
        """
        async with self._served.set_aside(key, verdict=ConversationDeleted(key.conversation)) as lease:
            if await self._store.describe(key) is None:
                await self._store.release(lease)
                await self._removed(key, ())
                raise UnknownConversation(key.conversation)
            return await self._take(lease, cause=cause)

    def statistics(self) -> DirectoryStatistics:
        return DirectoryStatistics(
            erasing=len(self._erasing),
            erased=dict(self._erased),
            subagents=self._subagents,
            blobs=self._blobs_gone,
            failures=self._failures,
        )

    async def _take(self, lease: Lease, *, cause: Cause) -> _Taken:
        """Nobody serves it."""
        key = lease.key
        cut = await self._cut_off(key)
        with self._blobs.deciding():
            handles = await self._store.handles_of(key)  # once the rows are gone, nothing tells any more which
            # Rows go first: an erasure that fails leaves a conversation that is whole.
            erased = await self._erased_of(lease, cause=cause)
            self._bus.publish_gone(key)
            for child, remains in cut:
                self._observer.unrecorded(key, remains.end_of(child, ERASED))
                remains.tell(self._observer, ERASED)
            self._erased[cause] += 1
            _log.info(
                "conversation.retired" if cause in _RETIRING else "conversation.erased",
                tenant=key.tenant,
                cause=cause.value,
                records=erased.records,
            )
            blobs = await self._removed(key, handles)
        return _Taken(records=erased.records, blobs=blobs)

    async def _cut_off(self, key: ConversationKey) -> list[tuple[ChildState, Remains]]:
        """Sub-agents whose end nobody will put on record: the conversation ended before they did."""
        if not await self._store.children(key, limit=1):
            return []
        try:
            open_ = (await thaw(self._store, key)).state.children
        except JournalCorrupt as exc:  # it goes all the same
            _log.warning("directory.unreadable", tenant=key.tenant, why=exc.reason)
            return []
        return [(child, await remains_of(self._store, key.child(child.child))) for child in open_]

    async def _erased_of(self, lease: Lease, *, cause: Cause) -> Erased:
        """Where the answer was lost, look: who watches must be told of an erasure before the id is used again."""
        try:
            return await self._store.erase(lease, cause=cause, at_us=self._clock.now_us())
        except StoreError:
            if await self._store.describe(lease.key) is not None:
                raise
            return Erased(records=0, lingers=True)  # as far as anybody knows

    async def _removed(self, key: ConversationKey, handles: Sequence[str]) -> int:
        """How many blobs went of a conversation that is erased, whether or not all of them did."""
        try:
            # What is still to be named by a message stays, and is its upload's from now on.
            going = sorted(await self._uploads.give_up(key, handles)) if handles else []
            await self._blobs.remove(key, going)
            self._blobs_gone += len(going)
            return len(going) + await self._remove_rest(key)
        except StoreError as exc:
            self._blobs_left(key, exc)
            return 0

    async def _remove_rest(self, key: ConversationKey) -> int:
        """What no record of its owner names, which a crash may have left: looked for once, and when nothing is left
        that could name any."""
        owner = msgspec.structs.replace(key, conversation="")
        if (key.tenant, key.owner) in self._looked_at and await self._store.count_conversations(
            tenant=key.tenant, owner=key.owner, limit=1
        ):
            return 0
        with self._blobs.deciding():
            # Before the look at the records, so that none of them is of a conversation begun since.
            names = await self._blobs.stored(owner)
            unnamed = await self._store.unnamed(owner, names) if names else ()
            if unnamed and (awaited := await self._uploads.awaited(owner)):
                unnamed = tuple(name for name in unnamed if name not in awaited)
            await self._blobs.remove(owner, unnamed)
        self._blobs_gone += len(unnamed)
        if len(self._looked_at) >= _LOOKED_AT_MAX:
            self._looked_at.clear()
        self._looked_at.add((key.tenant, key.owner))
        return len(unnamed)

    def _blobs_left(self, key: ConversationKey, exc: StoreError) -> None:
        """They are looked for again in a while, and at the next deletion of the same owner."""
        self._looked_at.discard((key.tenant, key.owner))
        if self._tasks is not None:
            self._leftovers.add(key, tasks=self._tasks)
        _log.error("directory.blobs_left", tenant=key.tenant, why=str(exc))

    def _begun(
        self,
        key: ConversationKey,
        *,
        principal: str,
        cause: Cause = Cause.DELETED,
        taken: list[_Taken] | None = None,
    ) -> PendingReply:
        """Args: taken: gets what it came to."""

        async def delete() -> None:
            # What lives without a journal may be writing the beginning of it just now.
            if self._served.live_status(key) is None and await self._store.describe(key) is None:
                await self._removed(key, ())  # of a deletion that was killed before it had come so far
                raise UnknownConversation(key.conversation)
            await self._cancelled(key, principal=principal)
            came_to = await self.erase(key, cause=cause)
            if taken is not None:
                taken.append(came_to)

        # Whatever anybody asks of it from now on comes after the deletion.
        reopen = self._served.close(key, verdict=ConversationDeleted(key.conversation))
        return self._start(delete, key=key, at_end=reopen)

    def _start(
        self, work: Callable[[], Awaitable[None]], *, key: ConversationKey, at_end: Callable[[], None] = lambda: None
    ) -> PendingReply:
        """Do ``work`` to its end, whether or not anybody waits for that."""
        assert self._tasks is not None, "the directory is not running"
        reply = self._erasing[key] = PendingReply(Wake())
        self._tasks.start_soon(self._done, work, key, reply, at_end, name=f"directory:{key.conversation}")
        return reply

    async def _done(
        self, work: Callable[[], Awaitable[None]], key: ConversationKey, reply: PendingReply, at_end: Callable[[], None]
    ) -> None:
        error: TorporError = InvariantBroken(f"what was begun with {key.path!r} was cut off")
        try:
            await work()
        except UnknownConversation as exc:
            error = exc
        except TorporError as exc:
            self._failures += 1
            error = exc
        except Exception as exc:  # noqa: BLE001  the actor edge: one conversation's failure stays its own
            _log.error("directory.failed", conversation=key.path, why=repr(exc), exc_info=exc)
            self._failures += 1
            error = InvariantBroken(f"deleting {key.path!r} failed: {exc!r}")
        else:
            reply.resolve(_DONE)
        finally:
            del self._erasing[key]
            at_end()
            reply.fail(error)

    async def _cancelled(self, key: ConversationKey, *, principal: str) -> None:
        """End a running turn in order, so that a write which runs gets its grace; what does not end is cut off."""
        live = self._served.live_status(key)
        if live is None or not live.turn:
            return
        with suppress(ClientError), anyio.move_on_after(self._cancel_deadline_s):
            await self._served.end_turn(key, CancelTurn(principal=principal, reason="deleted"))

    def __repr__(self) -> str:
        return f"<StoredDirectory erasing={len(self._erasing)}>"


def _used_again(key: ConversationKey) -> Unavailable:
    return Unavailable(f"conversation {key.conversation!r} is used again", retry_after_s=0.0)
