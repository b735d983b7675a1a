"""Who may come in, and how: what ``[auth]`` and the address of ``[gateway]`` say, checked and made into working parts.

Above: the composition root. Below: secrets, the public keys of an issuer, certificates. Nothing listens here; an
address that others can reach and that lacks protection is refused before anything does.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import msgspec
import structlog

from torpor.clock import Clock
from torpor.errors import ConfigError
from torpor.file_watch import watch
from torpor.gateway.auth_options import AuthOptions
from torpor.gateway.authenticator import Authenticator, Trusted
from torpor.gateway.exposure import check_exposure, is_loopback, is_loopback_name
from torpor.gateway.key_keeper import KeyKeeper
from torpor.gateway.key_loaders import (
    WHERE,
    address_loader,
    auth_problems,
    check_auth_options,
    configured_secret,
    file_loader,
    is_address,
    placed,
    secret_readable_by_others,
    shown,
)
from torpor.gateway.options import GatewayOptions
from torpor.gateway.origins import origin_problems
from torpor.gateway.tls import CertificateFiles, certificate_files, tls_problems
from torpor.misfits import Words

_log = structlog.get_logger()


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway needs to know of clients."""

    authenticator: Authenticator
    tls: ssl.SSLContext | None
    certificate: Path | None
    """Where the one is that ``tls`` shows."""
    is_development: bool
    """Nobody's tokens count but this machine's own."""


@asynccontextmanager
async def open_door(
    own_secret: bytes,
    *,
    gateway: GatewayOptions,
    auth: AuthOptions,
    home: Path,
    environ: Mapping[str, str],
    clock: Clock,
) -> AsyncIterator[Door]:
    """Keys and certificates are kept fresh until the block ends.

    Raises: ConfigError: something is missing or unusable. OSError: nothing is known of the host.
    """
    check_exposure(gateway, auth, is_loopback=await is_loopback(gateway.host))
    files = certificate_files(gateway, home=home)
    async with AsyncExitStack() as opened:
        trusted = await opened.enter_async_context(_trusted(auth, home=home, environ=environ))
        if files is not None:
            await opened.enter_async_context(_fresh(files))
        yield Door(
            authenticator=Authenticator(own_secret, clock=clock, leeway_s=gateway.token_leeway_s, trusted=trusted),
            tls=files.context if files is not None else None,
            certificate=files.certificate if files is not None else None,
            is_development=trusted is None,
        )


def door_problems(
    gateway: GatewayOptions, auth: AuthOptions, *, home: Path, environ: Mapping[str, str]
) -> Iterator[ConfigError]:
    """What ``open_door`` would raise, as far as can be told without the network."""
    yield from auth_problems(auth)
    yield from _raised(lambda: configured_secret(auth, home=home, environ=environ))
    yield from origin_problems(gateway.origins)
    yield from tls_problems(gateway, home=home)
    yield from _raised(lambda: check_exposure(gateway, auth, is_loopback=is_loopback_name(gateway.host)))


def _raised(check: Callable[[], object]) -> Iterator[ConfigError]:
    try:
        check()
    except ConfigError as exc:
        yield exc


@asynccontextmanager
async def _trusted(auth: AuthOptions, *, home: Path, environ: Mapping[str, str]) -> AsyncIterator[Trusted | None]:
    check_auth_options(auth)
    secret = configured_secret(auth, home=home, environ=environ)
    if why := secret_readable_by_others(auth, home=home):
        _log.warning("auth.secret_readable", why=why)
    if not auth.jwks:
        yield Trusted(secret=secret, options=auth) if secret is not None else None
        return
    path = None if is_address(auth.jwks) else placed(auth.jwks, home=home)
    load = address_loader(auth.jwks) if path is None else file_loader(path)
    keeper = KeyKeeper(load, source=shown(auth.jwks), options=auth)
    async with keeper.running() as tasks:
        if path is not None:
            if keeper.failure is not None or not keeper.keys.keys:
                found = Words(f"{path}, {keeper.failure or '; '.join(keeper.keys.passed_over) or 'without keys'}")
                raise ConfigError(WHERE, key="auth.jwks", found=found, expected="a JSON Web Key Set with public keys")
            tasks.start_soon(partial(watch, [path], changed=keeper.ask), name="gateway:key_file")
        yield Trusted(secret=secret, keys=keeper, options=auth)


@asynccontextmanager
async def _fresh(files: CertificateFiles) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(watch, [files.certificate, files.key], changed=files.reload), name="gateway:tls")
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()
