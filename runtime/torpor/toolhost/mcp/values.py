"""References in a server's table become values; what they are is told nowhere, also where they are at fault.

Above: settings, which look at each reference at start; the connections, which take the values when they are made, so
that a secret that was renewed counts from the next one.
"""

import glob
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

from torpor.errors import ConfigError
from torpor.misfits import Words
from torpor.ordinary_files import read_ordinary, readable_by_others
from torpor.toolhost.mcp.options import MCP_FILE, PRINCIPAL, TENANT, McpServer, Reference, Value

_SECRET_BYTES_MAX: Final = 65_536
_BETWEEN: Final = re.compile(r"[\s:/@?&=,;]+")
"""The parts of a secret, as in an address with a password."""
_PART_CHARS_MIN: Final = 8


NO_CREDENTIAL: Final = "there is no credential for this user"


class NoCredential(Exception):
    """There is none for this user."""

    def __init__(self) -> None:
        super().__init__(NO_CREDENTIAL)


class Values:
    """Of one home."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._home = home
        self._environ = environ

    def faults_of(self, name: str, server: McpServer) -> Iterator[ConfigError]:
        """References that lead to nothing now; those to credentials are looked at when somebody is there."""
        for part, values in (("env", server.env), ("headers", server.headers)):
            for key, value in values.items():
                if isinstance(value, Reference) and value.credential:
                    continue
                try:
                    self._value(value, credential="", where=f"mcp.{name}.{part}.{key}")
                except ConfigError as exc:
                    yield exc

    def readable_by_others(self, server: McpServer) -> Iterator[str]:
        """Of each file of a secret that others may read, that they may; of users' credentials the first such file."""
        values = (*server.env.values(), *server.headers.values())
        for file in dict.fromkeys(each.file for each in values if isinstance(each, Reference) and each.file):
            if why := readable_by_others(self._home / file):
                yield why
        yield from islice(filter(None, map(readable_by_others, self._credential_files(server))), 1)

    def _credential_files(self, server: McpServer) -> Iterator[Path]:
        if not server.credentials:
            return
        path = (self._home / server.credentials).absolute()
        pattern = glob.escape(str(path.relative_to(path.anchor))).replace(TENANT, "*").replace(PRINCIPAL, "*")
        yield from sorted(filter(_is_file, Path(path.anchor).glob(pattern)))

    def of(self, name: str, server: McpServer, part: str, *, tenant: str, principal: str) -> dict[str, str]:
        """The values of ``env`` or ``headers``. Takes time: files are read.

        Args: tenant, principal: whose credential is meant; empty for a server that all share.
        Raises: ConfigError: one cannot be had. NoCredential.
        """
        credential = self._credential(name, server, tenant=tenant, principal=principal) if server.credentials else ""
        values: Mapping[str, Value] = getattr(server, part)
        return {
            key: self._value(value, credential=credential, where=f"mcp.{name}.{part}.{key}")
            for key, value in values.items()
        }

    def has_credential(self, server: McpServer, *, tenant: str, principal: str) -> bool:
        """Whether there is a file for this user, with anything in it."""
        return bool(principal) and _is_file(self._file_of(server, tenant=tenant, principal=principal), least_bytes=1)

    def _value(self, value: Value, *, credential: str, where: str) -> str:
        if isinstance(value, str):
            return _sendable(value, where=where)
        if value.credential:
            return _sendable(value.prefix + credential, where=where)
        if value.env:
            held = self._environ.get(value.env)
            if not held:
                found = Words(
                    f"the variable {value.env}, which is {'empty' if value.env in self._environ else 'not set'}"
                )
                raise ConfigError(MCP_FILE, key=where, found=found, expected="a value in it")
            return _sendable(value.prefix + held, where=where)
        return _sendable(value.prefix + _text(self._home / value.file, where=where), where=where)

    def _credential(self, name: str, server: McpServer, *, tenant: str, principal: str) -> str:
        path = self._file_of(server, tenant=tenant, principal=principal)
        if not principal or not _is_file(path):
            raise NoCredential
        return _text(path, where=f"mcp.{name}.credentials")

    def _file_of(self, server: McpServer, *, tenant: str, principal: str) -> Path:
        """Names are quoted, so that none leads out of the folder or into another user's file."""
        file = server.credentials.replace(TENANT, _as_file_name(tenant))
        return self._home / file.replace(PRINCIPAL, _as_file_name(principal))


def secrets_of(values: Mapping[str, Value], held: Mapping[str, str]) -> set[str]:
    """All that must not be shown of ``held``, which ``values`` became: also without a prefix, and the parts of it."""
    secrets = set(held.values())
    for key, value in values.items():
        if isinstance(value, Reference) and key in held:
            own = held[key].removeprefix(value.prefix)
            secrets |= {own, own.strip(), *(part for part in _BETWEEN.split(own) if len(part) >= _PART_CHARS_MIN)}
    return secrets


def _as_file_name(text: str) -> str:
    quoted = quote(text, safe="@")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def _is_file(path: Path, *, least_bytes: int = 0) -> bool:
    try:
        return path.is_file() and (not least_bytes or path.stat().st_size >= least_bytes)
    except OSError:  # too long a name
        return False


def _text(path: Path, *, where: str) -> str:
    file = f"the file {str(path)!r}"
    try:
        text = read_ordinary(path, cap_bytes=_SECRET_BYTES_MAX).decode().strip()
    except UnicodeDecodeError:
        raise ConfigError(MCP_FILE, key=where, found=Words(f"{file}, which is no UTF-8"), expected="text") from None
    except OSError as exc:
        found = Words(f"{file}, unreadable ({(exc.strerror or str(exc)).lower()})")
        raise ConfigError(MCP_FILE, key=where, found=found, expected="a file that this user may read") from exc
    if not text:
        raise ConfigError(MCP_FILE, key=where, found=Words(f"{file}, which is empty"), expected="a value in it")
    return text


def _sendable(value: str, *, where: str) -> str:
    if not value.isprintable():
        raise ConfigError(MCP_FILE, key=where, found=Words("a value with control characters"), expected="one line")
    return value
