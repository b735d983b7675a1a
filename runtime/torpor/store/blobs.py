"""Whole bodies beside the journal: one file per content in a directory, or a dictionary.

Above: tools whose results are too large for a record, and whatever else a record may name by handle. A blob is durable
before ``put`` returns, so a record can name it; one that no record names is only waste.
"""

import contextlib
import errno
import hashlib
import itertools
import os
import re
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from torpor.errors import StoreError, StoreFull, StoreUnavailable
from torpor.records.ids import ConversationKey
from torpor.store.blob_names import HANDLE, folder_of
from torpor.store.kept import KeptBlobs

_STORED: Final = re.compile(r"[0-9a-f]{64}|[0-9]+\.[0-9]+\.tmp")
"""The second is what a crash left of one."""
_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of the system that say that nothing more can be written."""
_THREADS: Final = 16
"""While the event loop is busy, a thread waits some 5 ms for the interpreter after each call of the system, and a blob
takes a dozen of these; the waits of many pass together. After a restart hundreds are stored within a few seconds."""


class LocalBlobs(KeptBlobs):
    """Implements ``store.contract.ErasableBlobs`` over a directory, which is created by the first ``put``.

    An owner's blobs lie in a folder named by a hash: names of people may be anything, names of folders may not.

    Args: in_threads: without, the disk is waited for on the event loop, and runs are repeatable.
    """

    def __init__(self, directory: Path, *, in_threads: bool = True) -> None:
        super().__init__()
        self._directory = directory
        self._limit = anyio.CapacityLimiter(_THREADS) if in_threads else None
        self._numbers = itertools.count()
        self._durable: set[Path] = set()
        self._unfinished: set[str] = set()
        """Names of files that are being written."""
        self._deciding = threading.Lock()
        """Held for the look whether a blob is there or may go, so that neither comes between the other and its deed."""

    async def put(self, key: ConversationKey, data: bytes) -> str:
        # Two puts of one content at once must not share a temporary file.
        temporary = f"{os.getpid()}.{next(self._numbers)}.tmp"
        write = partial(self._write, key, data, temporary=temporary)
        if self._limit is None:
            await anyio.lowlevel.checkpoint()
            return write()
        return await anyio.to_thread.run_sync(write, limiter=self._limit)

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        """Raises: StoreUnavailable: it is there and cannot be read."""
        if not HANDLE.fullmatch(handle):
            return None
        read = partial(_read, self._folder(key) / handle, offset=offset, size=size)
        if self._limit is None:
            await anyio.lowlevel.checkpoint()
            return read()
        return await anyio.to_thread.run_sync(read, limiter=self._limit)

    async def size_bytes(self, key: ConversationKey, handle: str) -> int | None:
        if not HANDLE.fullmatch(handle):
            return None
        look = partial(_size_bytes, self._folder(key) / handle)
        if self._limit is None:
            await anyio.lowlevel.checkpoint()
            return look()
        return await anyio.to_thread.run_sync(look, limiter=self._limit)

    async def remove(self, key: ConversationKey, handles: Sequence[str]) -> None:
        remove = partial(self._remove, key, [handle for handle in handles if _STORED.fullmatch(handle)])
        if self._limit is None:
            await anyio.lowlevel.checkpoint()
            return remove()
        return await anyio.to_thread.run_sync(remove, limiter=self._limit)

    def keep(self, key: ConversationKey, handles: Sequence[str]) -> None:
        with self._deciding:
            super().keep(key, handles)

    async def stored(self, key: ConversationKey) -> tuple[str, ...]:
        look = partial(_stored, self._folder(key))
        if self._limit is None:
            await anyio.lowlevel.checkpoint()
            return look()
        return await anyio.to_thread.run_sync(look, limiter=self._limit)

    def _write(self, key: ConversationKey, data: bytes, *, temporary: str) -> str:
        """A file that is there was whole when it was renamed into place; one that was damaged since is written anew."""
        folder = self._folder(key)
        handle = hashlib.sha256(data).hexdigest()
        path, unfinished = folder / handle, folder / temporary
        try:
            self._make_durable(folder)
            with self._deciding:
                self._kept.keep(key, handle)
                self._unfinished.add(temporary)
                is_there = path.exists()
            if not is_there or not _holds(path, data):
                _write_new(unfinished, data)
                unfinished.rename(path)
            _flush_directory(folder)  # also for a file that is there: its writer may not have come this far
        except OSError as exc:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise _translated(exc, path) from exc
        finally:
            self._unfinished.discard(temporary)
        return handle

    def _remove(self, key: ConversationKey, handles: Sequence[str]) -> None:
        folder = self._folder(key)
        try:
            for handle in handles:
                with self._deciding:
                    if handle not in self._unfinished and not self._kept.is_kept(key, handle):
                        (folder / handle).unlink(missing_ok=True)
            if handles and folder.is_dir():
                _flush_directory(folder)
        except OSError as exc:
            raise _translated(exc, folder) from exc

    def _make_durable(self, folder: Path) -> None:
        """``folder``, our directory and their entries; once per process: one before may have crashed."""
        if folder not in self._durable:
            self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            folder.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
            _flush_directory(folder.parent)
            _flush_directory(folder.parent.parent)
            self._durable.add(folder)

    def _folder(self, key: ConversationKey) -> Path:
        return self._directory / folder_of(key)

    def __repr__(self) -> str:
        return f"<LocalBlobs {self._directory}>"


class MemoryBlobs(KeptBlobs):
    """Implements ``store.contract.ErasableBlobs`` over a dictionary that outlives the stores which share it."""

    def __init__(self) -> None:
        super().__init__()
        self._data: dict[tuple[str, str, str], bytes] = {}

    async def put(self, key: ConversationKey, data: bytes) -> str:
        await anyio.lowlevel.checkpoint()
        handle = hashlib.sha256(data).hexdigest()
        self._kept.keep(key, handle)
        self._data[key.tenant, key.owner, handle] = data
        return handle

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        await anyio.lowlevel.checkpoint()
        data = self._data.get((key.tenant, key.owner, handle))
        if data is None:
            return None
        return data[offset:] if size is None else data[offset : offset + size]

    async def size_bytes(self, key: ConversationKey, handle: str) -> int | None:
        await anyio.lowlevel.checkpoint()
        data = self._data.get((key.tenant, key.owner, handle))
        return None if data is None else len(data)

    async def remove(self, key: ConversationKey, handles: Sequence[str]) -> None:
        await anyio.lowlevel.checkpoint()
        for handle in handles:
            if not self._kept.is_kept(key, handle):
                self._data.pop((key.tenant, key.owner, handle), None)

    async def stored(self, key: ConversationKey) -> tuple[str, ...]:
        await anyio.lowlevel.checkpoint()
        return tuple(
            handle for tenant, owner, handle in sorted(self._data) if (tenant, owner) == (key.tenant, key.owner)
        )

    def __repr__(self) -> str:
        return f"<MemoryBlobs blobs={len(self._data)}>"


def _write_new(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)


def _holds(path: Path, data: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(data) + 1) == data
    except FileNotFoundError:
        return False


def _flush_directory(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _stored(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(file.name for file in folder.iterdir() if _STORED.fullmatch(file.name)))
    except FileNotFoundError:
        return ()
    except OSError as exc:
        raise _translated(exc, folder) from exc


def _read(path: Path, *, offset: int, size: int | None) -> bytes | None:
    try:
        with path.open("rb") as file:
            if offset >= os.fstat(file.fileno()).st_size:  # file systems refuse a place that no file of theirs can have
                return b""
            file.seek(offset)
            return file.read(-1 if size is None else size)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise _translated(exc, path) from exc


def _size_bytes(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise _translated(exc, path) from exc


def _translated(exc: OSError, path: Path) -> StoreError:
    if exc.errno in NO_SPACE:
        return StoreFull(f"no space left for {path}, nothing was written: free some space")
    return StoreUnavailable(f"{path} cannot be written or read: {exc}")
