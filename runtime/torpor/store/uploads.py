"""Files on their way: what came of each so far, so that an upload goes on where it was cut off.

Above: the gateway's desk for uploads. Below: a directory with a folder for each owner, in it for each upload what was
announced, as JSON, and a file that grows by each piece. What is in the operating system's hands survives a kill of the
server; a whole file becomes a blob, which is durable, before anybody names it.

All of it blocks, and is called in threads.
"""

import hashlib
import os
import shutil
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from torpor.errors import StoreError, StoreFull, StoreUnavailable
from torpor.records.ids import ConversationKey
from torpor.store.blob_names import folder_of
from torpor.store.blobs import NO_SPACE

_STRIPES: Final = 32
_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_HASHED_BYTES: Final = 1_048_576


class Announced(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client says that it will send, and what became of it."""

    name: str
    size_bytes: int
    sha256: str
    tenant: str
    owner: str
    touched_us: int
    """When something was added last, UTC, microseconds."""
    blob: str = ""
    """Of the finished one; empty before."""
    meant: str = ""
    """What it is to become, from before that is stored: should nobody come back for it, it is known what to take
    away."""
    result: msgspec.Raw = msgspec.Raw(b"{}")
    """What was answered for it."""
    is_named: bool = False
    """By a message, so that it goes with the conversations that have it. That may be so before it is noted."""

    def is_same_as(self, other: "Announced") -> bool:
        """Whether both speak of one file."""
        return (self.name, self.size_bytes, self.sha256) == (other.name, other.size_bytes, other.sha256)


class OpenUpload(msgspec.Struct, frozen=True):
    """How far one has come."""

    announced: Announced
    received_bytes: int


class Swept(NamedTuple):
    """Of an owner's uploads, by name."""

    gone: dict[str, Announced]
    left: dict[str, OpenUpload]


_DECODER: Final = msgspec.json.Decoder(Announced)


class LocalUploads:
    """Uploads of one owner never see each other's files; names are checked by who calls."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._locks = tuple(threading.Lock() for _ in range(_STRIPES))

    def lock(self, key: ConversationKey) -> threading.Lock:
        """Held by whoever looks at an owner's uploads and then changes them."""
        return self._locks[int(folder_of(key)[:8], 16) % _STRIPES]

    def found(self, key: ConversationKey, upload: str) -> OpenUpload | None:
        """Raises: StoreUnavailable."""
        path = self._folder(key) / f"{upload}.json"
        try:
            announced = _DECODER.decode(path.read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):  # half written by a crash is not there
            return None
        except OSError as exc:
            raise _translated(exc, path) from exc
        if announced.blob:
            return OpenUpload(announced, announced.size_bytes)
        part = path.with_suffix(".part")
        return OpenUpload(announced, part.stat().st_size if part.exists() else 0)

    def known(self, key: ConversationKey) -> dict[str, OpenUpload]:
        """All of the owner, finished or not. Raises: StoreUnavailable."""
        found = ((path.stem, self.found(key, path.stem)) for path in self._listed(key, "*.json"))
        return {name: upload for name, upload in found if upload is not None}

    def begin(self, key: ConversationKey, upload: str, announced: Announced) -> None:
        """From the beginning; what was there of that name goes. Raises: StoreUnavailable."""
        folder = self._folder(key)
        try:
            folder.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            self.drop(key, upload)
            _written(folder / f"{upload}.part", b"", os.O_TRUNC)
            self.note(key, upload, announced)
        except OSError as exc:
            raise _translated(exc, folder) from exc

    def note(self, key: ConversationKey, upload: str, announced: Announced) -> None:
        """Keep what is known of it. Raises: StoreUnavailable."""
        path = self._folder(key) / f"{upload}.json"
        fresh = path.with_suffix(".fresh")
        try:
            _written(fresh, msgspec.json.encode(announced), os.O_TRUNC)
            fresh.replace(path)
        except OSError as exc:
            raise _translated(exc, path) from exc

    def append(self, key: ConversationKey, upload: str, data: bytes) -> None:
        """Raises: StoreUnavailable: a part of it may be there."""
        path = self.part(key, upload)
        try:
            _written(path, data, os.O_APPEND)
        except OSError as exc:
            raise _translated(exc, path) from exc

    def part(self, key: ConversationKey, upload: str) -> Path:
        """What has come of it."""
        return self._folder(key) / f"{upload}.part"

    def read(self, path: Path) -> bytes:
        """Raises: StoreUnavailable: also when it is not there."""
        try:
            return path.read_bytes()
        except OSError as exc:
            raise _translated(exc, path) from exc

    def sha256(self, key: ConversationKey, upload: str) -> str:
        """Of what has come, hex. Raises: StoreUnavailable."""
        path, digest = self.part(key, upload), hashlib.sha256()
        try:
            with path.open("rb") as file:
                while piece := file.read(_HASHED_BYTES):
                    digest.update(piece)
        except OSError as exc:
            raise _translated(exc, path) from exc
        return digest.hexdigest()

    def finish(self, key: ConversationKey, upload: str, announced: Announced) -> None:
        """It is a blob now, and its bytes are needed no more here. Raises: StoreUnavailable."""
        self.note(key, upload, announced)
        self._clear(key, upload)

    def drop(self, key: ConversationKey, upload: str) -> None:
        """Raises: StoreUnavailable."""
        try:
            (self._folder(key) / f"{upload}.json").unlink(missing_ok=True)
            self._clear(key, upload)
        except OSError as exc:
            raise _translated(exc, self._folder(key)) from exc

    def owners(self) -> tuple[ConversationKey, ...]:
        """Everybody of whom there is something. Raises: StoreUnavailable."""
        found = dict[Path, Announced]()
        try:
            for path in self._directory.glob("*/*.json"):
                if path.parent not in found:
                    with suppress(msgspec.DecodeError, FileNotFoundError):  # a crash left half of it, or it was dropped
                        found[path.parent] = _DECODER.decode(path.read_bytes())
        except OSError as exc:
            raise _translated(exc, self._directory) from exc
        return tuple(ConversationKey(each.tenant, each.owner, "") for each in found.values())

    def give_up(self, key: ConversationKey, blobs: Collection[str]) -> frozenset[str]:
        """Forget the finished ones that became ``blobs`` and that a message has named; which of ``blobs`` no other one
        holds. Raises: StoreUnavailable."""
        held = set[str]()
        for name, upload in self.known(key).items():
            if upload.announced.blob in blobs:
                if upload.announced.is_named:
                    self.drop(key, name)
                else:
                    held.add(upload.announced.blob)
        return frozenset(blobs) - held

    def forget(self, key: ConversationKey) -> None:
        """Everything of an owner. Raises: StoreUnavailable."""
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(self._folder(key))
        except OSError as exc:
            raise _translated(exc, self._folder(key)) from exc

    def drop_older(self, key: ConversationKey, *, before_us: int) -> Swept:
        """Forget what was not touched since, and what a crash left of some. Raises: StoreUnavailable."""
        swept = Swept({}, {})
        for name in sorted({path.stem for path in self._listed(key, "*")}):
            upload = self.found(key, name)
            if upload is not None and upload.announced.touched_us >= before_us:
                swept.left[name] = upload
                continue
            self.drop(key, name)
            if upload is not None:
                swept.gone[name] = upload.announced
        return swept

    def _clear(self, key: ConversationKey, upload: str) -> None:
        for suffix in (".part", ".made", ".fresh"):
            (self._folder(key) / f"{upload}{suffix}").unlink(missing_ok=True)

    def _listed(self, key: ConversationKey, pattern: str) -> list[Path]:
        folder = self._folder(key)
        return sorted(folder.glob(pattern)) if folder.is_dir() else []

    def _folder(self, key: ConversationKey) -> Path:
        return self._directory / folder_of(key)

    def __repr__(self) -> str:
        return f"<LocalUploads {self._directory}>"


def _written(path: Path, data: bytes, how: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, _FILE_MODE)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
    finally:
        os.close(file)


def _translated(exc: OSError, path: Path) -> StoreError:
    if exc.errno in NO_SPACE:
        return StoreFull(f"no space left for {path}: free some space")
    return StoreUnavailable(f"{path} cannot be written or read: {exc}")
