"""Certificates out of files into what a socket needs, and again when the files change.

Above: the composition root, which hands the context to the server. New connections get the newest certificate; a pair
that does not fit, as between two writes, changes nothing and is told.
"""

import ssl
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import anyio.to_thread
import structlog

from torpor.errors import ConfigError
from torpor.gateway.key_loaders import WHERE, placed
from torpor.gateway.options import GatewayOptions
from torpor.misfits import Words
from torpor.ordinary_files import read_ordinary

_BYTES_MAX: Final = 1_048_576
_log = structlog.get_logger()


class CertificateFiles:
    """A certificate with those that vouch for it, and its key, both PEM; ``context`` always has the last good pair.

    Raises: ConfigError: they cannot be read, or do not belong together.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self.certificate = certificate
        self.key = key
        try:
            self._loaded = self._versions()
            self.context = _context(certificate, key)
        except OSError as exc:  # an SSLError is one
            expected = "a certificate and its own key without a password, both PEM and readable"
            raise ConfigError(
                WHERE, key="gateway.tls_certificate", found=Words(_why(exc, self)), expected=expected
            ) from exc

    async def reload(self) -> None:
        """Look whether the files have changed, and use them if they are good."""
        await anyio.to_thread.run_sync(self._reload)

    def _reload(self) -> None:
        try:
            if (versions := self._versions()) == self._loaded:
                return
            _context(self.certificate, self.key)  # half of a new pair would spoil the context in use
            self.context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except OSError as exc:
            _log.warning("gateway.certificate_kept", why=_why(exc, self))
        else:
            self._loaded = versions
            _log.info("gateway.certificate_loaded", file=str(self.certificate))

    def _versions(self) -> tuple[bytes, bytes]:
        """Digests, since a key is not to lie about."""
        one, other = (
            sha256(read_ordinary(path, cap_bytes=_BYTES_MAX)).digest() for path in (self.certificate, self.key)
        )
        return one, other


def certificate_files(options: GatewayOptions, *, home: Path) -> CertificateFiles | None:
    """Those that ``options`` name; None when they name none. Raises: ConfigError: half of them, or unusable ones."""
    if not options.tls_certificate and not options.tls_key:
        return None
    for problem in _contradictions(options):
        raise problem
    return CertificateFiles(
        placed(options.tls_certificate, home=home).absolute(), placed(options.tls_key, home=home).absolute()
    )


def tls_problems(options: GatewayOptions, *, home: Path) -> Iterator[ConfigError]:
    """All that ``certificate_files`` might raise."""
    try:
        certificate_files(options, home=home)
    except ConfigError as exc:
        yield from list(_contradictions(options)) or [exc]


def _contradictions(options: GatewayOptions) -> Iterator[ConfigError]:
    """Of options that name a certificate or a key."""
    for key, value in (("tls_certificate", options.tls_certificate), ("tls_key", options.tls_key)):
        if not value:
            yield ConfigError(WHERE, key=f"gateway.{key}", found=value, expected="a file, beside its other half")
    if options.tls == "terminated":
        expected = "'here', or no tls_certificate: one of the two ends TLS"
        yield ConfigError(WHERE, key="gateway.tls", found=options.tls, expected=expected)


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key, password=_no_password)
    return context


def _no_password() -> str:
    """So that a key with one is unusable, instead of asking for it on the terminal."""
    return ""


def _why(exc: OSError, files: CertificateFiles) -> str:
    reason = exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror
    return f"{files.certificate} with {files.key}, {(reason or 'unreadable').lower().replace('_', ' ')}"
