"""Conversations as a whole: taken away so that nothing of them is left.

Above: the gateway, which knows who may ask. Below: the registry, which has nobody serve what is being taken
away; the store; the blobs. Whatever takes conversations away, whoever asked for it, goes through ``erase``.

What was begun is not given up when the one who asked has gone: it runs in a task of the directory's own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, Protocol

import anyio
import anyio.abc
import structlog

from torpor.actor.mailbox import PendingReply
from torpor.bus.contract import Bus
from torpor.errors import ClientError, ConversationDeleted, InvariantBroken, TorporError, UnknownConversation
from torpor.records.commands import CancelTurn, Command, Wake
from torpor.records.ids import ConversationKey
from torpor.store.contract import ErasableBlobs, Lease, Store
from torpor.supervisor.contract import Answer, LiveStatus

_DONE: Final = True
_log = structlog.get_logger()


class Served(Protocol):
    """What is needed of the registry."""

    def live_status(self, key: ConversationKey) -> LiveStatus | None: ...

    async def deliver(self, key: ConversationKey, command: Command) -> Answer: ...

    def set_aside(self, key: ConversationKey, *, verdict: ClientError) -> AbstractAsyncContextManager[Lease]: ...


class StoredDirectory:
    """Implements ``supervisor.contract.Directory``; ``async with directory.running()``."""

    def __init__(
        self, *, served: Served, store: Store, blobs: ErasableBlobs, bus: Bus, cancel_deadline_s: float
    ) -> None:
        """Args: cancel_deadline_s: how long a running turn may take to end before it is cut off."""
        self._served = served
        self._store = store
        self._blobs = blobs
        self._bus = bus
        self._cancel_deadline_s = cancel_deadline_s
        self._tasks: anyio.abc.TaskGroup | None = None
        self._erasing: dict[ConversationKey, PendingReply] = {}

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
        """See the contract. Of several that ask at once, each is answered."""
        if (under_way := self._erasing.get(key)) is None:
            if await self._store.describe(key) is None:
                raise UnknownConversation(key.conversation)
            under_way = self._erasing.get(key) or self._begun(key, principal=principal)
        await under_way.wait()

    async def erase(self, key: ConversationKey) -> None:
        """Take away everything that is stored of ``key``; its actor is cut off, and who watches it is told.

        Raises: Unavailable: nothing was erased, since its actor did not end in time or lives on another server.
            StoreError: it may be erased in part; asking again completes it.
        """
        async with self._served.set_aside(key, verdict=ConversationDeleted(key.conversation)) as lease:
            # Blobs go first: once the rows are gone, nothing tells any more which they were.
            await self._blobs.remove(key, await self._store.handles_of(key))
            erased = await self._store.erase(lease)
            self._bus.publish_gone(key)
        _log.info("conversation.erased", tenant=key.tenant, records=erased.records)

    def _begun(self, key: ConversationKey, *, principal: str) -> PendingReply:
        async def delete() -> None:
            await self._cancelled(key, principal=principal)
            await self.erase(key)

        return self._start(delete, key=key)

    def _start(self, work: Callable[[], Awaitable[None]], *, key: ConversationKey) -> PendingReply:
        """Do ``work`` to its end, whether or not anybody waits for that."""
        assert self._tasks is not None, "the directory is not running"
        reply = self._erasing[key] = PendingReply(Wake())
        self._tasks.start_soon(self._done, work, key, reply, name=f"directory:{key.conversation}")
        return reply

    async def _done(self, work: Callable[[], Awaitable[None]], key: ConversationKey, reply: PendingReply) -> None:
        error: TorporError = InvariantBroken(f"what was begun with {key.path!r} was cut off")
        try:
            await work()
        except TorporError as exc:
            error = exc
        except Exception as exc:  # noqa: BLE001  the actor edge: one conversation's failure stays its own
            _log.error("directory.failed", conversation=key.path, why=repr(exc), exc_info=exc)
            error = InvariantBroken(f"deleting {key.path!r} failed: {exc!r}")
        else:
            reply.resolve(_DONE)
        finally:
            del self._erasing[key]
            reply.fail(error)

    async def _cancelled(self, key: ConversationKey, *, principal: str) -> None:
        """End a running turn in order, so that a write which runs gets its grace; what does not end is cut off."""
        live = self._served.live_status(key)
        if live is None or not live.turn:
            return
        with suppress(ClientError), anyio.move_on_after(self._cancel_deadline_s):
            await self._served.deliver(key, CancelTurn(principal=principal, reason="deleted"))

    def __repr__(self) -> str:
        return f"<StoredDirectory erasing={len(self._erasing)}>"
