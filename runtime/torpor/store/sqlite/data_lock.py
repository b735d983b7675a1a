"""One process per data directory, held by the kernel for as long as the process lives."""

import fcntl
import os
from pathlib import Path
from typing import Final, Self

from torpor.errors import StoreUnusable

LOCK_FILE: Final = "lock"
_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


def identity(directory: Path) -> str:
    """What a directory keeps when it is moved or mounted elsewhere, and a copy of it does not have.

    Its lock file tells it apart from one that took its number because it was deleted while a process served it; and the
    directory tells apart copies whose files are hard links. Raises: OSError: it is not there.
    """
    its = directory.stat()
    lock = directory / LOCK_FILE
    return f"{its.st_dev}:{its.st_ino}:{lock.stat().st_ino if lock.is_file() else 0}"


class DataLock:
    """The right to write into a directory, which is created when it is not there: ``with``.

    Raises: StoreUnusable: another process holds it, or the directory cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = -1

    def __enter__(self) -> Self:
        path = self._directory / LOCK_FILE
        try:
            self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        except OSError as exc:
            raise StoreUnusable(f"data directory {self._directory} cannot be written: {exc}") from exc
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            if not isinstance(exc, BlockingIOError):
                raise StoreUnusable(f"data directory {self._directory} cannot be locked: {exc}") from exc
            raise StoreUnusable(
                f"data directory {self._directory} is in use by the process {holder}: "
                "stop that server, or choose another directory with --data"
            ) from exc
        # A child that only forked would hold the lock when this process is gone.
        os.register_at_fork(after_in_child=self._let_go)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, b"%d\n" % os.getpid(), 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
