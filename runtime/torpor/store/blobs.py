"""Whole bodies beside the journal: one file each, named by what it holds, in a folder of its owner's.

Above: the tool host, which keeps what is too long for the model. A blob is durable, its folder's entry included, before
its handle is given out, so a record may name it. Files are written under another name and put in place whole, so nobody
reads half of one. Files have mode 0600 and folders 0700.
"""

import errno
import hashlib
import os
import re
import threading
from pathlib import Path
from typing import Final

import anyio.to_thread

from torpor.errors import StoreError, StoreFull, StoreUnavailable
from torpor.records.ids import ConversationKey

_HANDLE: Final = re.compile(r"[0-9a-f]{64}")


class LocalBlobs:
    """Implements ``store.contract.Blobs`` over a local directory, made when it is first written to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def put(self, key: ConversationKey, data: bytes) -> str:
        """See the contract. Cancellation: waits until the file is in place or given up."""
        handle = hashlib.sha256(data).hexdigest()
        await anyio.to_thread.run_sync(_write, self._path(key, handle), data)
        return handle

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        if _HANDLE.fullmatch(handle) is None:
            return None
        return await anyio.to_thread.run_sync(_read, self._path(key, handle), offset, size)

    def _path(self, key: ConversationKey, handle: str) -> Path:
        """Owners are named by a digest: whatever a tenant or an owner is called, it cannot leave the directory."""
        owner = hashlib.sha256(f"{key.tenant}/{key.owner}".encode()).hexdigest()
        return self._directory / owner / handle[:2] / handle

    def __repr__(self) -> str:
        return f"<LocalBlobs {self._directory}>"


class MemoryBlobs:
    """Implements ``store.contract.Blobs`` over a dictionary."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], bytes] = {}

    async def put(self, key: ConversationKey, data: bytes) -> str:
        handle = hashlib.sha256(data).hexdigest()
        self._held[key.tenant, key.owner, handle] = data
        return handle

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        data = self._held.get((key.tenant, key.owner, handle))
        return None if data is None else data[offset : None if size is None else offset + size]

    def __repr__(self) -> str:
        return f"<MemoryBlobs blobs={len(self._held)}>"


def _write(path: Path, data: bytes) -> None:
    """Flushes the folders also when the file is there: whoever wrote it may not have come so far."""
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _put_in_place(path, data)
        for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
            _flush(folder)
    except OSError as exc:
        raise _translated(exc, path) from exc


def _put_in_place(path: Path, data: bytes) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _read(path: Path, offset: int, size: int | None) -> bytes | None:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(-1 if size is None else size)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise _translated(exc, path) from exc


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _translated(exc: OSError, path: Path) -> StoreError:
    if exc.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StoreFull(f"no space left for {path}, nothing was written: free some space")
    return StoreUnavailable(f"blob {path} cannot be read or written: {exc.strerror or exc}")
