"""Files below a folder, opened so that no symbolic link is ever followed.

Each part of a path is opened from the folder before it, so a link that is put in between a look and an opening is met
by the opening itself. The folder at the top may be reached through links: its path is the operator's.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from torpor.ordinary_files import NotOrdinary

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe would wait for somebody to write into it.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES: Final = 3


@contextmanager
def opened_root(root: Path) -> Iterator[int]:
    """A descriptor of ``root``."""
    descriptor = os.open(root, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_folder(name: str, *, within: int) -> Iterator[int]:
    """A descriptor of the folder ``name``. Raises: OSError: also for a link."""
    descriptor = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_path(root: Path, parts: Sequence[str]) -> Iterator[int]:
    """A descriptor of the folder at ``parts`` below ``root``. Raises: OSError: also for a link on the way."""
    descriptor = os.open(root, _FOLDER)
    try:
        for part in parts:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def read_bytes(name: str, *, within: int, cap_bytes: int) -> bytes:
    """The file ``name``; one byte more than ``cap_bytes`` tells that it is larger.

    A file that is being written is read again, a few times, so that it is rarely seen half.

    Raises: NotOrdinary.  OSError: also for a link.
    """
    data, is_steady = _read_once(name, within=within, cap_bytes=cap_bytes)
    for _ in range(_TRIES - 1):
        if is_steady:
            break
        data, is_steady = _read_once(name, within=within, cap_bytes=cap_bytes)
    return data


def is_of_link(exc: OSError) -> bool:
    """Whether an opening failed because of a link, as far as the system tells."""
    return exc.errno in {errno.ELOOP, errno.EMLINK}


def _read_once(name: str, *, within: int, cap_bytes: int) -> tuple[bytes, bool]:
    descriptor = os.open(name, _FILE, dir_fd=within)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise NotOrdinary(errno.EINVAL, "not an ordinary file", name)
        parts = []
        left = cap_bytes + 1
        while left > 0 and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    is_steady = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    return b"".join(parts), is_steady
