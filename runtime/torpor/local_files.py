"""The small files that a server keeps beside its database, for its owner's eyes only.

Above: the composition root, which makes them at start; the command line, which finds the running server by them. The
folder has mode 0700 and its files 0600 from their first byte on, whatever the umask. A file is written whole under
another name and then put in place, so that nobody reads half of one and a crash leaves the old one or the new one.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from torpor.errors import ConfigError
from torpor.misfits import Words

DATA_FOLDER: Final = ".torpor"
"""Name of the data folder inside an agent home."""
SECRET_BYTES: Final = 32
"""Least length of a secret that signs tokens with HS256: that of its digest."""

_KEY_FILE: Final = "secret"
_LOGIN_FILE: Final = "development_token"
_ADDRESS_FILE: Final = "server.json"
_WRITTEN: Final = (_KEY_FILE, _LOGIN_FILE, "lock", "torpor.db", "blobs", "uploads")
"""What a start writes into where it stands already; other files are replaced."""
_WRITABLE: Final = "one that this user may write in: make it so, or name another one with --data"


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the last server of a data folder listens, or did."""

    url: str
    token: str
    """The development token; empty where the server takes none."""
    pid: int
    home: str = ""
    certificate: str = ""
    """The file with the one that the server shows, since it may be of another name than this machine calls it."""
    written_in: str = ""
    """As ``identity`` of the data folder tells, which that of a copy of it does not; empty of older servers."""


def make_data_folder(folder: Path) -> None:
    """Make ``folder`` and its parents; only its owner can read it afterwards.

    Raises: ConfigError: something else stands there, it cannot be made or written, or it holds files of others.
    """
    if problem := data_folder_problem(folder):
        raise problem
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True)
            _put(folder / ".gitignore", b"*\n")  # homes are kept under git, secrets are not
        if _is_open(folder):
            folder.chmod(0o700)
    except OSError as exc:
        raise _unusable(folder, why=exc.strerror) from exc


def data_folder_problem(folder: Path) -> ConfigError | None:
    """What stands in the way of a server with this data folder, as far as can be told without writing anything."""
    try:
        if not folder.exists():
            return _unmakable(folder)
        if not folder.is_dir():
            return _unusable(folder, why=os.strerror(errno.EEXIST))
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return _unusable(folder, why=_why_not(folder))
        if _is_open(folder) and any(folder.iterdir()) and not (folder / _KEY_FILE).is_file():
            # A shared directory that somebody named by mistake is left as it is.
            expected = "an empty directory, or mode 0700, so that nobody else's files are shut away"
            return ConfigError(str(folder), key="mode", found=Words(f"{_mode(folder):04o}"), expected=expected)
        if _is_open(folder) and os.geteuid() not in {0, folder.stat().st_uid}:
            return _unusable(folder, why="others may read it, and this user cannot close it")
        for path in (folder / name for name in _WRITTEN):
            if path.exists() and not os.access(path, os.R_OK | os.W_OK):
                expected = "what this user may write: make it so, or name another data folder with --data"
                found = Words(f"not writable ({_why_not(path)})")
                return ConfigError(str(path), key="part of the data folder", found=found, expected=expected)
    except OSError as exc:
        return _unusable(folder, why=exc.strerror)
    return None


def _unmakable(folder: Path) -> ConfigError | None:
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir():
        return _unusable(folder, why=f"{above} is no directory")
    if os.access(above, os.W_OK | os.X_OK):
        return None
    return _unusable(folder, why=f"it is not there, and {above} cannot be written, {_why_not(above)}")


def _unusable(folder: Path, *, why: str | None) -> ConfigError:
    found = Words(f"unusable ({_uncapitalised(why or 'unknown')})")
    return ConfigError(str(folder), key="data folder", found=found, expected=_WRITABLE)


def _why_not(path: Path) -> str:
    is_read_only = os.statvfs(path).f_flag & os.ST_RDONLY
    return os.strerror(errno.EROFS if is_read_only else errno.EACCES).lower()


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _is_open(folder: Path) -> bool:
    """Whether others than its owner may look into it."""
    return _mode(folder) & 0o077 != 0


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """Raises: ConfigError: what could not be written, and what can be done."""
    try:
        yield
    except OSError as exc:
        found = Words(f"not writable ({(exc.strerror or 'unknown').lower()})")
        expected = "room and the right to write it, or another data folder with --data"
        raise ConfigError(str(path), key="part of the data folder", found=found, expected=expected) from exc


def keep_secret(folder: Path, *, fresh: bytes) -> bytes:
    """The secret that signs the tokens of this folder; ``fresh`` becomes it at the first start.

    Raises: ConfigError: the file holds less than ``SECRET_BYTES``, or cannot be written.
    """
    path = folder / _KEY_FILE
    with _told_of(path):
        secret = _kept(path, lambda: fresh)
    if len(secret) < SECRET_BYTES:
        expected = f"at least {SECRET_BYTES} bytes; delete the file and start the server to make a new one"
        raise ConfigError(str(path), key="length", found=len(secret), expected=expected)
    return secret


def keep_development_token(folder: Path, *, make: Callable[[], str], is_good: Callable[[str], bool]) -> str:
    """The token of this folder's owner; made when there is none, or when the one there is not good any more.

    Raises: ConfigError: it cannot be written.
    """
    path = folder / _LOGIN_FILE
    with _told_of(path):
        token = _kept(path, lambda: make().encode()).decode(errors="replace").strip()
        if not is_good(token):
            token = make()
            _put(path, token.encode())
    return token


def read_secret(folder: Path) -> bytes | None:
    """The secret of a folder in which a server ran before; None when none did."""
    path = folder / _KEY_FILE
    return path.read_bytes() if path.is_file() else None


def write_server_address(folder: Path, address: ServerAddress) -> None:
    """Leave word of where the server listens; replaces what the one before it left.

    Raises: ConfigError: it cannot be written.
    """
    with _told_of(folder / _ADDRESS_FILE):
        _put(folder / _ADDRESS_FILE, msgspec.json.format(msgspec.json.encode(address), indent=2) + b"\n")


def read_server_address(folder: Path) -> ServerAddress | None:
    """What the last server of this folder left, running or not; None when none ever did.

    Raises: ConfigError: the file is not what a server leaves.
    """
    path = folder / _ADDRESS_FILE
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=ServerAddress)
    except msgspec.DecodeError as exc:
        expected = "what a server leaves there; delete it and start the server again"
        raise ConfigError(str(path), key="content", found=Words(str(exc)), expected=expected) from exc


def _kept(path: Path, make: Callable[[], bytes]) -> bytes:
    """The bytes at ``path``, made first when there are none; of two that make them at once, both get the winner's."""
    if not path.is_file():
        part = _written_beside(path, make())
        try:
            os.link(part, path)  # unlike a rename, refuses to replace
        except FileExistsError:
            pass
        finally:
            part.unlink()
        _flush_folder(path.parent)
    path.chmod(0o600)
    return path.read_bytes()


def _put(path: Path, data: bytes) -> None:
    _written_beside(path, data).replace(path)
    _flush_folder(path.parent)


def _written_beside(path: Path, data: bytes) -> Path:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return part


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
