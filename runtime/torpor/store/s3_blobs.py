"""Whole bodies beside the journal, in an object store that speaks the protocol of S3: one object per content.

Above: whatever names bodies by handle. Below: ``obstore``, which is imported here alone, when such a store is opened.
Its calls block and let other threads run, so each has one of a few threads, on either event loop. A store that hangs
holds up nobody who is cancelled: what was begun goes on unheard, at worst to an object that no record names.

What is kept for a conversation that may name it soon is known to this process only: servers that share a bucket share
no owners.
"""

import hashlib
import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

from torpor.errors import ConfigError, StoreError, StoreUnavailable
from torpor.records.ids import ConversationKey
from torpor.store.blob_names import HANDLE, folder_of
from torpor.store.bucket_trouble import BucketTrouble, says_no_object, trouble_in
from torpor.store.kept import KeptBlobs
from torpor.store.leavable import LeavableCalls, NoPlace
from torpor.store.options import BlobOptions

_THREADS: Final = 8
_STRIPES: Final = 64
_RETRIES: Final = 3
_TOLD_CHARS: Final = 300
_CHECK_S: Final = 5.0
"""For the question at a start."""
WHERE: Final = "config/torpor.toml"
_T = TypeVar("_T")
_IsLeft = Callable[[], bool]
"""Whether nobody waits any more for what is written."""


class S3Blobs(KeptBlobs):
    """Implements ``store.contract.ErasableBlobs`` over a bucket that is there already."""

    def __init__(self, options: BlobOptions, *, credentials: Mapping[str, str]) -> None:
        """Args: credentials: ``access_key_id`` and ``secret_access_key``; none for those of the machine.

        Raises: ConfigError: the library is not installed.
        """
        super().__init__()
        self._obstore = _loaded()
        self._options = options
        self._credentials = credentials
        self._prefix = options.prefix.strip("/")
        self._bucket = options.bucket
        self._store = self._opened(deadline_s=options.deadline_s, retries=_RETRIES)
        self._calls = LeavableCalls(_THREADS, name="object store", wait_s=options.deadline_s)
        self._deciding = tuple(threading.Lock() for _ in range(_STRIPES))
        """By handle: held for the look whether an object may go and until it has gone, so that a put of the same comes
        before or after both."""

    def _opened(self, *, deadline_s: float, retries: int) -> Any:
        options, deadline = self._options, timedelta(seconds=deadline_s)
        return self._obstore.store.S3Store(
            options.bucket,
            region=options.region,
            virtual_hosted_style_request=not options.endpoint,
            **({"endpoint": options.endpoint} if options.endpoint else {}),
            **self._credentials,
            client_options={
                "allow_http": options.endpoint.startswith("http://"),
                "timeout": deadline,
                "connect_timeout": deadline,
            },
            retry_config={"max_retries": retries, "retry_timeout": deadline},
        )

    async def trouble(self) -> BucketTrouble | None:
        """Ask once for a few names, within some seconds; None when all is well, or what is wrong."""
        store = self._opened(deadline_s=_CHECK_S, retries=0)

        def look() -> None:
            next(iter(self._obstore.list(store, prefix=f"{self._prefix}/", chunk_size=1)), None)

        why = f"nothing came within {_CHECK_S:g} s"
        with anyio.move_on_after(_CHECK_S + 1.0):
            try:
                await anyio.to_thread.run_sync(look, limiter=anyio.CapacityLimiter(1), abandon_on_cancel=True)
            except (OSError, self._obstore.exceptions.BaseError) as exc:
                why = str(exc)
            else:
                return None
        return trouble_in(why, self._options)

    async def put(self, key: ConversationKey, data: bytes) -> str:
        return await self._written(lambda is_left: self._put(key, data, is_left=is_left))

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        """Raises: StoreUnavailable."""
        if not HANDLE.fullmatch(handle):
            return None
        return await self._in_thread(partial(self._get, self._path(key, handle), offset=offset, size=size))

    async def size_bytes(self, key: ConversationKey, handle: str) -> int | None:
        if not HANDLE.fullmatch(handle):
            return None
        return await self._in_thread(partial(self._size_bytes, self._path(key, handle)))

    async def remove(self, key: ConversationKey, handles: Sequence[str]) -> None:
        named = [handle for handle in handles if HANDLE.fullmatch(handle)]
        await self._written(lambda is_left: self._remove(key, named, is_left=is_left))

    async def stored(self, key: ConversationKey) -> tuple[str, ...]:
        return await self._in_thread(partial(self._stored, f"{self._folder(key)}/"))

    def _put(self, key: ConversationKey, data: bytes, *, is_left: _IsLeft) -> str:
        handle = hashlib.sha256(data).hexdigest()
        path = self._path(key, handle)
        with self._lock(handle):
            if is_left():  # it may have been let go of, and nobody would do so again
                return handle
            self._kept.keep(key, handle)
        self._obstore.put(self._store, path, data)  # also where one is: it may have been damaged since
        return handle

    def _get(self, path: str, *, offset: int, size: int | None) -> bytes | None:
        if not offset and size is None:
            try:
                return bytes(self._obstore.get(self._store, path).bytes())
            except (FileNotFoundError, self._obstore.exceptions.NotFoundError) as exc:
                self._check_bucket(exc)
                return None
        if size:
            try:
                return bytes(self._obstore.get_range(self._store, path, start=offset, end=offset + size))
            except (FileNotFoundError, self._obstore.exceptions.NotFoundError) as exc:
                self._check_bucket(exc)
                return None
            except self._obstore.exceptions.BaseError:
                if (size_bytes := self._size_bytes(path)) is None or offset < size_bytes:
                    raise
                return b""  # a range that holds nothing is none to the protocol
        if (size_bytes := self._size_bytes(path)) is None:
            return None
        if size is not None or offset >= size_bytes:
            return b""
        return bytes(self._obstore.get_range(self._store, path, start=offset, end=size_bytes))

    def _remove(self, key: ConversationKey, handles: Sequence[str], *, is_left: _IsLeft) -> None:
        for handle in handles:
            with self._lock(handle):
                is_kept = self._kept.is_kept(key, handle)
                if is_left():  # nobody keeps any more what was let go of since the look at the records
                    return
                if not is_kept:
                    self._obstore.delete(self._store, self._path(key, handle))

    def _stored(self, prefix: str) -> tuple[str, ...]:
        pages = self._obstore.list(self._store, prefix=prefix)
        names = (str(found["path"]).rpartition("/")[2] for page in pages for found in page)
        return tuple(sorted(name for name in names if HANDLE.fullmatch(name)))

    def _size_bytes(self, path: str) -> int | None:
        """None when it is not there."""
        try:
            return int(self._obstore.head(self._store, path)["size"])
        except (FileNotFoundError, self._obstore.exceptions.NotFoundError) as exc:
            self._check_bucket(exc)
            return None

    def _check_bucket(self, exc: Exception) -> None:
        """An object was not found: make sure that there is a bucket that it could be in. Raises: what else came."""
        if not says_no_object(str(exc)):
            next(iter(self._obstore.list(self._store, prefix=f"{self._prefix}/", chunk_size=1)), None)

    def _lock(self, handle: str) -> threading.Lock:
        return self._deciding[int(handle[:8], 16) % _STRIPES]

    def _folder(self, key: ConversationKey) -> str:
        return "/".join(part for part in (self._prefix, folder_of(key)) if part)

    def _path(self, key: ConversationKey, handle: str) -> str:
        return f"{self._folder(key)}/{handle}"

    async def _written(self, work: Callable[[_IsLeft], _T]) -> _T:
        left = threading.Event()
        try:
            return await self._in_thread(lambda: work(left.is_set), writes=True)
        finally:
            left.set()

    async def _in_thread(self, work: Callable[[], _T], *, writes: bool = False) -> _T:
        try:
            return await self._calls.run(work, writes=writes)
        except NoPlace as exc:
            raise StoreUnavailable(f"bucket {self._bucket!r} does not answer: {_THREADS} calls wait for it") from exc
        except (OSError, self._obstore.exceptions.BaseError) as exc:
            raise self._translated(exc) from exc

    def _translated(self, exc: Exception) -> StoreError:
        """The library's texts quote whole answers, and the first line tells what is wrong."""
        if (found := trouble_in(str(exc), self._options)).is_missing:
            return StoreUnavailable(f"{found.what}: {found.remedy}")
        told = str(exc).partition("\n")[0][:_TOLD_CHARS]
        return StoreUnavailable(f"bucket {self._bucket!r} cannot be read or written: {told}")

    def __repr__(self) -> str:
        return f"<S3Blobs {self._bucket}/{self._prefix}>"


def _loaded() -> Any:
    """The library; imported late, since it comes with an extra."""
    try:
        library = importlib.import_module("obstore")
        for part in ("exceptions", "store"):
            importlib.import_module(f"obstore.{part}")
    except ImportError as exc:
        raise ConfigError(
            WHERE, key="blobs.kind", found="s3", expected="the extra 's3', in a checkout: make .venv/.s3"
        ) from exc
    return library
