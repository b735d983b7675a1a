"""An issuer of tokens as an identity provider is one: private keys, their public set over HTTP, and bad days.

Keys are made once per process, since a pair of RSA takes a while. Certificates for sockets come from the same tools.
"""

import datetime
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from tests.support.gateway_line import ManualClock
from torpor.gateway.auth_options import AuthOptions

ISSUER = "https://login.example.org"
AUDIENCE = "torpor"
ALGORITHMS = ("RS256", "ES256", "EdDSA")


@cache
def private_key(algorithm: str, name: str = "one") -> Any:
    """The same for the same words."""
    match algorithm:
        case "RS256":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
    raise AssertionError(f"no algorithm {algorithm!r} of {name!r}")


def public_jwk(algorithm: str, name: str = "one", **more: Any) -> dict[str, Any]:
    """As an issuer publishes it; a field that is ``...`` is left out."""
    told: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(
        private_key(algorithm, name).public_key(), as_dict=True
    )
    told.pop("key_ops", None)
    told |= {"kid": name, "alg": algorithm, "use": "sig", **more}
    return {field: value for field, value in told.items() if value is not ...}


def public_pem(algorithm: str, name: str = "one") -> bytes:
    pem: bytes = (
        private_key(algorithm, name)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return pem


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def issued(
    clock: ManualClock,
    algorithm: str = "RS256",
    name: str = "one",
    *,
    headers: dict[str, Any] | None = None,
    **claims: Any,
) -> str:
    """A token of the issuer for ada, good for an hour; a claim that is ``...`` is left out."""
    now = clock.now_us() // 1_000_000
    everything = {"sub": "ada", "iss": ISSUER, "aud": AUDIENCE, "exp": now + 3_600, **claims}
    told = {claim: value for claim, value in everything.items() if value is not ...}
    return jwt.encode(
        told, private_key(algorithm, name), algorithm, headers={"kid": name} if headers is None else headers
    )


def issuer_options(jwks: str = "https://login.example.org/keys", **more: Any) -> AuthOptions:
    return AuthOptions(**{"jwks": jwks, "issuer": ISSUER, "audience": AUDIENCE, **more})


class Issuer:
    """Answers every request with ``body``, as long as it is well."""

    def __init__(self) -> None:
        self.body = key_set(public_jwk("RS256"))
        self.status = "200 OK"
        self.hangs = False
        self.hangs_up = False
        self.asked = 0
        self.url = ""

    async def answer(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                await stream.receive()
                self.asked += 1
                if self.hangs_up:
                    return
                if self.hangs:
                    await anyio.sleep_forever()
                head = f"HTTP/1.1 {self.status}\r\ncontent-length: {len(self.body)}\r\nconnection: close\r\n\r\n"
                await stream.send(head.encode() + self.body)
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                return


@asynccontextmanager
async def issuer() -> AsyncIterator[Issuer]:
    """Listens on this machine for the length of a block."""
    it = Issuer()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, anyio.create_task_group() as tasks:
        it.url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/keys"
        tasks.start_soon(listener.serve, it.answer)
        try:
            yield it
        finally:
            tasks.cancel_scope.cancel()


def write_certificate(
    folder: Path, name: str = "server", *, hosts: tuple[str, ...] = ("127.0.0.1",)
) -> tuple[Path, Path]:
    """A certificate that vouches for itself, and its key, in ``folder``; the same names are written over."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


def trusting(certificate: Path) -> ssl.SSLContext:
    """A client's context that trusts what is in the file, and nothing else."""
    return ssl.create_default_context(cafile=certificate)
