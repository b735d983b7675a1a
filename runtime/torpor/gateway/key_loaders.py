"""Where the texts come from that tokens are checked with: a secret, or the public keys of an issuer.

Above: whoever opens an ``Authenticator``. Below: files, and an HTTP client, loaded when an address is configured.
"""

import importlib
import ipaddress
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio.to_thread
from jwt.algorithms import has_crypto

from torpor.errors import ConfigError
from torpor.gateway.auth import SECRET_BYTES_MIN
from torpor.gateway.auth_options import AuthOptions
from torpor.gateway.key_keeper import KeysUnreadable, Load
from torpor.gateway.key_set import KEY_SET_BYTES_MAX
from torpor.misfits import Words
from torpor.ordinary_files import read_ordinary, readable_by_others

WHERE: Final = "config/torpor.toml"
_SECRET_BYTES_MAX: Final = 4_096


def check_auth_options(options: AuthOptions) -> None:
    """Raises: ConfigError: what is set contradicts itself, or needs what is not there."""
    for problem in auth_problems(options):
        raise problem


def auth_problems(options: AuthOptions) -> Iterator[ConfigError]:
    """All that contradicts itself, or needs what is not there."""
    if options.secret_file and options.secret_env:
        yield ConfigError(WHERE, key="auth.secret_env", found=options.secret_env, expected="either it or secret_file")
    if not options.jwks:
        return
    for name, claim, value in (("issuer", "iss", options.issuer), ("audience", "aud", options.audience)):
        if not value:
            # One issuer signs for many services, and for many customers: without both, a token for any would do here.
            expected = f"the {claim!r} of the tokens, since auth.jwks is set"
            yield ConfigError(WHERE, key=f"auth.{name}", found=value, expected=expected)
    if not has_crypto:
        found = Words(f"{shown(options.jwks)!r}, and the package that checks tokens with it is not here")
        expected = "the extra 'jwks', in a checkout: make .venv/.jwks"
        yield ConfigError(WHERE, key="auth.jwks", found=found, expected=expected)
    if is_address(options.jwks) and not _is_safe(options.jwks):
        expected = "an https address without a user or a password; http for this machine alone"
        yield ConfigError(WHERE, key="auth.jwks", found=shown(options.jwks), expected=expected)


def configured_secret(options: AuthOptions, *, home: Path, environ: Mapping[str, str]) -> bytes | None:
    """The secret that ``options`` name; None when they name none.

    Raises: ConfigError: it is not there, or shorter than ``SECRET_BYTES_MIN``.
    """
    if options.secret_env:
        key, told = "auth.secret_env", environ.get(options.secret_env, "")
        if not told:
            found, expected = Words(f"{options.secret_env}, which is not set"), "a variable that holds the secret"
            raise ConfigError(WHERE, key=key, found=found, expected=expected)
        secret = told.strip().encode(errors="surrogateescape")
    elif options.secret_file:
        key, path = "auth.secret_file", placed(options.secret_file, home=home)
        try:
            secret = read_ordinary(path, cap_bytes=_SECRET_BYTES_MAX).strip()
        except OSError as exc:
            found, expected = (
                Words(f"{path}, {(exc.strerror or 'unreadable').lower()}"),
                "a file that this user may read",
            )
            raise ConfigError(WHERE, key=key, found=found, expected=expected) from exc
    else:
        return None
    if len(secret) < SECRET_BYTES_MIN:
        found = Words(f"a secret of {len(secret)} bytes")
        expected = f"at least {SECRET_BYTES_MIN} bytes, as `openssl rand -base64 48` makes them"
        raise ConfigError(WHERE, key=key, found=found, expected=expected)
    return secret


def secret_readable_by_others(options: AuthOptions, *, home: Path) -> str:
    """Why whoever has an account here may sign tokens: the file of the secret, its mode, the remedy. Empty when they
    may not, or there is no such file."""
    if not options.secret_file:
        return ""
    return readable_by_others(placed(options.secret_file, home=home), how="read it and sign tokens")


def placed(path: str, *, home: Path) -> Path:
    """Where a path of the configuration leads: from the home on, unless it begins elsewhere."""
    return home / Path(path).expanduser()


def is_address(jwks: str) -> bool:
    """Whether it is one, and no file."""
    return "://" in jwks


def file_loader(path: Path) -> Load:
    async def load() -> bytes:
        try:
            return await anyio.to_thread.run_sync(lambda: read_ordinary(path, cap_bytes=KEY_SET_BYTES_MAX))
        except OSError as exc:
            raise KeysUnreadable((exc.strerror or "unreadable").lower()) from exc

    return load


def address_loader(url: str) -> Load:
    """Follows no redirect: what may be asked was checked when the configuration was read."""

    async def load() -> bytes:
        # Slow to import, and needed for this alone.
        http: Any = await anyio.to_thread.run_sync(importlib.import_module, "httpx2")
        try:
            async with (
                http.AsyncClient(timeout=None, follow_redirects=False) as client,
                client.stream("GET", url, headers={"accept": "application/jwk-set+json, application/json"}) as answer,
            ):
                if answer.status_code != http.codes.OK:
                    raise KeysUnreadable(f"HTTP {answer.status_code}")
                return await _whole(answer)
        except http.HTTPError as exc:
            raise KeysUnreadable(f"{type(exc).__name__}: {exc}") from exc

    return load


async def _whole(answer: Any) -> bytes:
    data = b""
    async for part in answer.aiter_bytes():
        data += part
        if len(data) > KEY_SET_BYTES_MAX:
            raise KeysUnreadable(f"more than {KEY_SET_BYTES_MAX:,} bytes")
    return data


def _is_safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    if not host or parts.username is not None or parts.password is not None:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_this_machine(host))


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def shown(url: str) -> str:
    """The address, or the path of a file, for people and logs."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}" if mark else url
