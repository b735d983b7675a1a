"""Which tickets are good: those of finished uploads that were not forgotten since.

Above: the uploads. Below: what is noted of each upload on disk; this is what a ``send`` has to know of it, in memory,
since it waits for no disk.

A deletion takes the bytes of files that messages have named, and the tickets of these are void from then on. What no
message has named yet is still to come, so its bytes stay. Which of the two holds is noted on disk behind the send; a
crash before that leaves an upload that seems to be still to come, and goes when it expires.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import structlog

from torpor.errors import StoreError
from torpor.records.ids import ConversationKey
from torpor.store.uploads import LocalUploads

_THREADS: Final = 4
_LAST_NOTES_S: Final = 2.0
"""At the end, for what is not noted yet."""
_log = structlog.get_logger()
_T = TypeVar("_T")
_Owner = tuple[str, str]


class Disk:
    """Waits for what blocks."""

    def __init__(self, *, in_threads: bool) -> None:
        self._limit = anyio.CapacityLimiter(_THREADS) if in_threads else None

    async def waited(self, work: Callable[[], _T]) -> _T:
        """What ``work`` came to."""
        if self._limit is None:
            await anyio.lowlevel.checkpoint()
            return work()
        return await anyio.to_thread.run_sync(work, limiter=self._limit)


class _Good(msgspec.Struct):
    """Of a finished upload."""

    blob: str
    finished_us: int
    is_named: bool
    """By a message, so that it goes with the conversations that have it."""


class GoodTickets:
    """Of all owners. The ``key`` of each call is an owner's; its conversation does not count."""

    def __init__(self, files: LocalUploads, *, disk: Disk) -> None:
        self._files = files
        self._disk = disk
        self._good: dict[_Owner, dict[str, _Good]] = defaultdict(dict)
        """By upload."""
        self._locks: dict[tuple[str, str, str], anyio.Lock] = {}
        self._unnoted: dict[tuple[ConversationKey, str], None] = {}
        """Named by a message since that was noted last, in order."""
        self._has_unnoted = anyio.Event()

    @asynccontextmanager
    async def alone(self, key: ConversationKey, upload: str) -> AsyncIterator[None]:
        """Nobody else finishes, drops or replaces ``upload`` meanwhile."""
        named = (key.tenant, key.owner, upload)
        lock = self._locks.setdefault(named, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            told = lock.statistics()
            if not told.locked and not told.tasks_waiting:
                self._locks.pop(named, None)

    async def load(self, *, since_us: int) -> None:
        """What was finished before this process, from then on. Of an owner whose notes cannot be read, none is good."""

        def load() -> None:
            for key in self._files.owners():
                try:
                    known = self._files.known(key)
                except StoreError as exc:
                    _log.warning("uploads.not_loaded", tenant=key.tenant, why=str(exc))
                    continue
                for upload, found in known.items():
                    told = found.announced
                    if told.blob and told.touched_us >= since_us:
                        self.add(key, upload, blob=told.blob, finished_us=told.touched_us, is_named=told.is_named)

        try:
            await self._disk.waited(load)
        except StoreError as exc:
            _log.warning("uploads.not_loaded", why=str(exc))

    def add(self, key: ConversationKey, upload: str, *, blob: str, finished_us: int, is_named: bool = False) -> None:
        """Before it is noted, so that whoever forgets it on disk first forgets it here as well."""
        self._good[key.tenant, key.owner][upload] = _Good(blob, finished_us, is_named)

    def void(self, key: ConversationKey, uploads: Iterable[str]) -> None:
        """Those that are not there are no error."""
        good = self._good.get((key.tenant, key.owner), {})
        for upload in uploads:
            good.pop(upload, None)
        if not good:
            self._good.pop((key.tenant, key.owner), None)

    def void_all(self, key: ConversationKey) -> None:
        self._good.pop((key.tenant, key.owner), None)

    def is_good(self, key: ConversationKey, upload: str, *, blob: str) -> bool:
        found = self._of(key).get(upload)
        return found is not None and found.blob == blob

    def name(self, key: ConversationKey, uploads: Iterable[str]) -> None:
        """A message does."""
        good, owner = self._of(key), ConversationKey(key.tenant, key.owner, "")
        for upload in uploads:
            if not good[upload].is_named:
                good[upload].is_named = True
                self._unnoted[owner, upload] = None
                self._has_unnoted.set()

    def blobs(self, key: ConversationKey, *, since_us: int) -> frozenset[str]:
        """What messages may name, of uploads that were finished since."""
        return frozenset(each.blob for each in self._of(key).values() if each.finished_us >= since_us)

    async def give_up(self, key: ConversationKey, blobs: Collection[str]) -> frozenset[str]:
        """The last conversation that has ``blobs`` is gone, and so is what is known of where they came from. Which of
        them no upload holds that is still to be named: nobody can name these any more.

        Raises: StoreError.
        """
        wanted = frozenset(blobs)
        for upload in [upload for upload, each in self._of(key).items() if each.blob in wanted]:
            async with self.alone(key, upload):
                found = self._of(key).get(upload)
                if found is not None and found.is_named and found.blob in wanted:
                    self.void(key, [upload])
                    await self._disk.waited(partial(self._dropped, key, upload))
        return wanted - {each.blob for each in self._of(key).values()}

    def _dropped(self, key: ConversationKey, upload: str) -> None:
        with self._files.lock(key):
            self._files.drop(key, upload)

    async def noting(self) -> None:
        """Runs for ever: which ones messages have named, on disk."""
        while True:
            await self._has_unnoted.wait()
            self._has_unnoted = anyio.Event()
            await self._note_all()

    async def note_last(self) -> None:
        """At the end. Shielded, and bounded."""
        with anyio.move_on_after(_LAST_NOTES_S, shield=True):
            await self._note_all()

    async def _note_all(self) -> None:
        while self._unnoted:
            key, upload = next(iter(self._unnoted))
            try:
                async with self.alone(key, upload):
                    self._unnoted.pop((key, upload), None)
                    if (found := self._of(key).get(upload)) is not None:
                        await self._disk.waited(partial(self._noted, key, upload, found))
            except StoreError as exc:
                _log.warning("uploads.not_noted", tenant=key.tenant, why=str(exc))

    def _noted(self, key: ConversationKey, upload: str, good: _Good) -> None:
        with self._files.lock(key):
            found = self._files.found(key, upload)
            if found is not None and found.announced.blob == good.blob:
                told = msgspec.structs.replace(found.announced, is_named=good.is_named)
                self._files.note(key, upload, told)

    def _of(self, key: ConversationKey) -> Mapping[str, _Good]:
        return self._good.get((key.tenant, key.owner), {})

    def __repr__(self) -> str:
        return f"<GoodTickets owners={len(self._good)} unnoted={len(self._unnoted)}>"
