"""Conversations that are not to be kept any longer are taken away, slowly, while the server does something else.

Above: the composition root. Below: ``retention``, which says which they are; the directory, which takes them away. What
is left to do stands in the store alone, so a restart goes on where it was, and doing it again changes nothing.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import anyio
import structlog

from torpor.clock import Clock
from torpor.errors import ClientError, TorporError
from torpor.records.ids import ConversationKey
from torpor.store.contract import DirectoryRow, Store
from torpor.supervisor.listing import rows_of
from torpor.supervisor.options import RetentionOptions
from torpor.supervisor.retention import Retired, retired

_log = structlog.get_logger()


class Retires(Protocol):
    """What is needed of the directory."""

    async def retire(self, old: Retired) -> bool:
        """Raises: ClientError: not now. StoreError."""
        ...


class Retiring:
    """One for a process: ``async with retiring.running()``."""

    def __init__(
        self,
        directory: Retires,
        *,
        store: Store,
        clock: Clock,
        options: RetentionOptions,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        """Args: may_go_on: no more once the server stops."""
        self._directory = directory
        self._may_go_on = may_go_on
        self._store = store
        self._clock = clock
        self._options = options

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Retiring"]:
        """Look again and again; one look that fails is not the last. Does nothing where everything is kept."""
        async with anyio.create_task_group() as tasks:
            if not self._options.keeps_everything:
                tasks.start_soon(self._run, name="directory:retention")
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except TorporError as exc:
                _log.warning("retention.failed", why=str(exc))
            except Exception as exc:  # noqa: BLE001  the sweep's edge: a bug in it must not end every conversation
                _log.error("retention.failed", why=repr(exc), exc_info=exc)
            await anyio.sleep(self._options.look_s)

    async def look(self) -> int:
        """Take away what is not to be kept now; returns how many that were. Raises: StoreError."""
        gone, after = 0, None
        while rows := await self._of_next_owner(after):
            after = rows[-1].key
            for old in retired(rows, options=self._options, now_us=self._clock.now_us()):
                if not self._may_go_on():
                    return gone
                with suppress(ClientError):  # it is used, or its actor does not end: the next look finds it again
                    gone += await self._directory.retire(old)
                await anyio.sleep(self._options.pause_s)
        return gone

    async def _of_next_owner(self, after: ConversationKey | None) -> list[DirectoryRow]:
        """All the rows of the owner who comes behind ``after``; none behind the last one."""
        first = await self._store.list_conversations(tenant=None, owner=None, limit=1, after=after)
        if not first:
            return []
        return await rows_of(self._store, tenant=first[0].key.tenant, owner=first[0].key.owner)
