"""Small files that people edit, read so that nothing put in their place can hang or fill up the reader.

Above: whoever reads a file of a home. A named pipe would wait for a writer and a device may never end, so neither is
opened for good: only an ordinary file is read, and no more of it than the caller takes.
"""

import errno
import os
import stat
import struct
from pathlib import Path
from typing import Final

# Without O_NONBLOCK, opening a named pipe would wait for somebody to write into it.
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


_ACCESS_LIST: Final = "system.posix_acl_access"
_ENTRY: Final = struct.Struct("<HHI")
"""Whose kind, rights, id; behind a version of four bytes."""
_USER, _GROUP_OF_FILE, _GROUP, _MASK = 0x02, 0x04, 0x08, 0x10
_READ: Final = 0o4


class NotOrdinary(OSError):
    """It is a folder, a pipe, a socket or a device."""


class TooLarge(OSError):
    """It has more bytes than are read."""


class LinkToNothing(OSError):
    """A symbolic link that leads to no file: not a file that nobody wrote."""


def read_ordinary(path: Path, *, cap_bytes: int) -> bytes:
    """All bytes of the file at ``path``, or where it links to.

    Raises: FileNotFoundError: there is nothing of that name.  LinkToNothing.  NotOrdinary.  TooLarge.  OSError.
    """
    try:
        descriptor = os.open(path, _FILE)
    except FileNotFoundError as exc:
        if path.is_symlink():
            raise LinkToNothing(errno.ENOLINK, "a link that leads to no file", str(path)) from exc
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise NotOrdinary(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise NotOrdinary(errno.EINVAL, "not an ordinary file", str(path))
        return _whole(descriptor, path, cap_bytes=cap_bytes)
    finally:
        os.close(descriptor)


def _whole(descriptor: int, path: Path, *, cap_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = cap_bytes + 1
    while left > 0 and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    if left <= 0:
        raise TooLarge(errno.EFBIG, f"larger than {cap_bytes:,} bytes", str(path))
    return b"".join(parts)


def readable_by_others(path: Path, *, how: str = "read it") -> str:
    """That others than its owner may read a secret: the file, its mode, the remedy. Empty when they may not, or there
    is no such file. Args: how: what they may do."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except (OSError, ValueError):
        return ""
    if not (mode & stat.S_IROTH or (mode & stat.S_IRGRP and _a_group_may_read(path))):
        return ""
    return f"{path} has mode {mode:04o}, so that others may {how}, expected 0600: chmod 600 {path}"


def _a_group_may_read(path: Path) -> bool:
    """Or another user. Whether a mode that says so is to be believed: where there is an access control list, such as on
    what systemd hands to a service, the mode shows what the list may grant at most in place of the group's rights."""
    try:
        told = os.getxattr(path, _ACCESS_LIST)
        entries = list(_ENTRY.iter_unpack(told[4:]))
    except (OSError, AttributeError, struct.error):  # no list, or a system without them
        return True
    most = next((rights for kind, rights, _ in entries if kind == _MASK), _READ)
    readers = {(kind, who) for kind, rights, who in entries if rights & most & _READ}
    return any(kind in {_GROUP_OF_FILE, _GROUP} or (kind == _USER and who != os.geteuid()) for kind, who in readers)


def shown(text: str) -> str:
    """A name of the file system for people and logs, also where it is no UTF-8."""
    return os.fsencode(text).decode(errors="replace")
