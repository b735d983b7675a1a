"""Conversations that are not to be kept any longer are taken away, slowly, while the server does something else.

So are the journals of sub-agents that ended long ago, whose conversations stay. Above: the composition root. Below:
``retention``, which says which they are; the directory, which takes them away. What is left to do stands in the store
alone, so a restart goes on where it was, and doing it again changes nothing.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

import anyio
import structlog

from torpor.clock import Clock
from torpor.errors import ClientError, TorporError
from torpor.records.ids import ConversationKey
from torpor.store.contract import DirectoryRow, Store
from torpor.supervisor.listing import rows_of
from torpor.supervisor.options import RetentionOptions
from torpor.supervisor.retention import Retired, ended_before_us, retired

_SUBAGENTS: Final = 64
"""Whose names are read at once."""
_log = structlog.get_logger()


class Retires(Protocol):
    """What is needed of the directory."""

    async def retire(self, old: Retired) -> bool:
        """Raises: ClientError: not now. StoreError."""
        ...

    async def retire_subagent(self, key: ConversationKey) -> bool:
        """Likewise."""
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
        subagents_days: float = 0.0,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        """Args: subagents_days: for how long a sub-agent's journal is kept behind its last record; 0 for always.
        may_go_on: no more once the server stops."""
        self._directory = directory
        self._may_go_on = may_go_on
        self._store = store
        self._clock = clock
        self._options = options
        self._subagents_days = subagents_days

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Retiring"]:
        """Look again and again; one look that fails is not the last. Does nothing where everything is kept."""
        async with anyio.create_task_group() as tasks:
            if self._subagents_days or not self._options.keeps_everything:
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
        """Take away what is not to be kept now; returns how many conversations that were. Raises: StoreError."""
        gone = await self._look_at_conversations() if not self._options.keeps_everything else 0
        if self._subagents_days:
            await self._look_at_subagents()
        return gone

    async def _look_at_conversations(self) -> int:
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

    async def _look_at_subagents(self) -> None:
        """Those that cannot go now are found again at the next look."""
        before_us = ended_before_us(self._subagents_days, now_us=self._clock.now_us())
        left: set[ConversationKey] = set()
        while True:
            old = await self._store.old_children(before_us=before_us, limit=len(left) + _SUBAGENTS)
            if not (found := [key for key in old if key not in left]):
                return
            for key in found:
                if not self._may_go_on():
                    return
                left.add(key)
                with suppress(ClientError):
                    if await self._directory.retire_subagent(key):
                        left.discard(key)
                await anyio.sleep(self._options.pause_s)

    async def _of_next_owner(self, after: ConversationKey | None) -> list[DirectoryRow]:
        """All the rows of the owner who comes behind ``after``; none behind the last one."""
        first = await self._store.list_conversations(tenant=None, owner=None, limit=1, after=after)
        if not first:
            return []
        return await rows_of(self._store, tenant=first[0].key.tenant, owner=first[0].key.owner)
