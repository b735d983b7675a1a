"""Reads of journals, so many at once: a crowd that comes back together leaves the event loop time for everybody else.

A read near the head of a journal is done where it is asked for, since that is the quickest. Thousands of clients that
resume in one moment would all be ready at once, and nothing else would run until the last of them had its page.
"""

import anyio

from torpor.gateway.status import Journals
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord
from torpor.store.contract import DirectoryRow


class PacedJournals:
    """Implements ``gateway.status.Journals``. Whoever waits for a place waits in the order of asking."""

    def __init__(self, journals: Journals, *, reads_max: int) -> None:
        self._journals = journals
        self._places = anyio.CapacityLimiter(reads_max)

    async def describe(self, key: ConversationKey) -> DirectoryRow | None:
        return await self._journals.describe(key)

    async def epoch(self) -> int:
        return await self._journals.epoch()

    async def names_blob(self, key: ConversationKey, handle: str) -> bool:
        return await self._journals.names_blob(key, handle)

    async def names_bundle(self, key: ConversationKey, handle: str) -> bool:
        return await self._journals.names_bundle(key, handle)

    async def events_after(
        self, key: ConversationKey, *, event: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        async with self._places:
            return await self._journals.events_after(key, event=event, limit=limit, size_bytes=size_bytes)

    async def records_after(
        self, key: ConversationKey, *, seq: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        async with self._places:
            return await self._journals.records_after(key, seq=seq, limit=limit, size_bytes=size_bytes)
