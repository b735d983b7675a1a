"""The directory of a data folder on which no server runs, for verbs that take conversations away from it."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from torpor.bus.local import LocalBus
from torpor.clock import SystemClock
from torpor.errors import ClientError, StoreUnusable
from torpor.records.commands import CancelTurn
from torpor.records.ids import ConversationKey
from torpor.store.contract import ErasableBlobs, Lease, Store
from torpor.store.sqlite.connection import DATABASE_FILE
from torpor.store.sqlite.engine import open_sqlite_inline
from torpor.store.uploads import LocalUploads
from torpor.supervisor.contract import LiveStatus
from torpor.supervisor.directory import StoredDirectory


class _Nobody:
    """Implements ``supervisor.directory.Served`` where nothing is served."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def live_status(self, key: ConversationKey) -> LiveStatus | None:
        return None

    def close(self, key: ConversationKey, *, verdict: ClientError) -> Callable[[], None]:
        return lambda: None

    async def end_turn(self, key: ConversationKey, command: CancelTurn) -> None:
        raise AssertionError(f"nobody serves {key.path!r}")

    def set_aside(self, key: ConversationKey, *, verdict: ClientError) -> AbstractAsyncContextManager[Lease]:
        return self._leased(key)

    def lent(self, key: ConversationKey) -> AbstractAsyncContextManager[Lease | None]:
        return self._leased(key)

    @asynccontextmanager
    async def _leased(self, key: ConversationKey) -> AsyncIterator[Lease]:
        yield await self._store.acquire(key, holder="forget", ttl_s=1.0, now_us=0)


class _Coming:
    """Implements ``supervisor.directory.Coming`` over what a server left."""

    def __init__(self, files: LocalUploads) -> None:
        self._files = files

    async def awaited(self, key: ConversationKey) -> frozenset[str]:
        return frozenset(each.announced.blob for each in self._files.known(key).values()) - {""}

    async def give_up(self, key: ConversationKey, blobs: Collection[str]) -> frozenset[str]:
        return self._files.give_up(key, blobs)

    async def forget(self, key: ConversationKey) -> None:
        self._files.forget(key)


@asynccontextmanager
async def open_to_erase(folder: Path, blobs: ErasableBlobs) -> AsyncIterator[StoredDirectory]:
    """Raises: StoreUnusable: there is no database, a server runs on it, or it is damaged, foreign or newer."""
    if not (folder / DATABASE_FILE).exists():
        raise StoreUnusable(f"{folder} holds no database, name the data folder of a home")
    async with open_sqlite_inline(folder) as store:
        directory = StoredDirectory(
            served=_Nobody(store),
            store=store,
            blobs=blobs,
            bus=LocalBus(),
            clock=SystemClock(),
            cancel_deadline_s=0.0,
            uploads=_Coming(LocalUploads(folder / "uploads")),
        )
        async with directory.running():
            yield directory
