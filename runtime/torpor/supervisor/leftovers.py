"""Owners of whom blobs stayed that ought to have gone with a conversation: they are tried again, slowly.

Above: the directory, which knows how they are taken away. Known to this process only: after a restart, the next
deletion of the same owner finds them.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.abc
import structlog

from torpor.errors import StoreError
from torpor.records.ids import ConversationKey

_PAUSE_S: Final = 300.0
_OWNERS_MAX: Final = 10_000
"""Remembered; what further ones have left waits for their next deletion."""
_log = structlog.get_logger()


class Leftovers:
    """Of all owners; nothing runs while there are none."""

    def __init__(self, take_away: Callable[[ConversationKey], Awaitable[object]], *, pause_s: float = _PAUSE_S) -> None:
        """Args: take_away: what no record of an owner names. Raises StoreError: ask again."""
        self._take_away = take_away
        self._pause_s = pause_s
        self._owners: set[tuple[str, str]] = set()
        self._is_running = False

    def add(self, key: ConversationKey, *, tasks: anyio.abc.TaskGroup) -> None:
        """Something of its owner stayed. Args: tasks: of whoever ends what runs."""
        if len(self._owners) < _OWNERS_MAX:
            self._owners.add((key.tenant, key.owner))
        if not self._is_running:
            self._is_running = True
            tasks.start_soon(self._run, name="directory:leftovers")

    async def _run(self) -> None:
        try:
            while self._owners:
                await anyio.sleep(self._pause_s)
                await self._look()
        finally:
            self._is_running = False

    async def _look(self) -> None:
        for tenant, owner in tuple(self._owners):
            try:
                await self._take_away(ConversationKey(tenant, owner, ""))
            except StoreError as exc:  # of the others it would say the same; the next look comes as well
                _log.warning("directory.blobs_still_left", owners=len(self._owners), why=str(exc))
                return
            self._owners.discard((tenant, owner))
            _log.info("directory.blobs_gone", tenant=tenant)

    def __repr__(self) -> str:
        return f"<Leftovers owners={len(self._owners)}>"
