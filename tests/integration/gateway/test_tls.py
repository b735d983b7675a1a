"""Real TLS on a real socket: certificates out of files, and again when they change."""

import shutil
import socket
import ssl
from pathlib import Path

import anyio
import pytest
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from tests.support.gateway_house import gateway_house
from tests.support.gateway_line import token_for
from tests.support.issuer import trusting, write_certificate
from torpor.client.failures import ServerRefused
from torpor.client.torpor_client import TorporClient
from torpor.errors import ConfigError
from torpor.gateway.options import GatewayOptions
from torpor.gateway.tls import CertificateFiles, certificate_files


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(*write_certificate(tmp_path))


def serial(context: ssl.SSLContext, port: int) -> bytes:
    """What tells the certificate that is shown from another one."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as line,
    ):
        shown = line.getpeercert(binary_form=True)
    assert shown is not None
    return shown


async def test_a_client_that_trusts_the_certificate_talks_over_tls(files: CertificateFiles) -> None:
    async with gateway_house(tls=files.context) as house:
        assert house.gateway.url == f"wss://127.0.0.1:{house.gateway.port}"
        token = token_for("alice", clock=house.clock)
        async with TorporClient(house.gateway.url, token, tls=trusting(files.certificate)) as client:
            with anyio.fail_after(20):
                receipt = await client.send("c1", "hello", message_id="m1")

    assert receipt.message_id == "m1"


async def test_a_client_that_does_not_trust_it_gives_up_and_says_why(files: CertificateFiles) -> None:
    async with gateway_house(tls=files.context) as house:
        async with TorporClient(house.gateway.url, token_for("alice", clock=house.clock)) as client:
            with anyio.fail_after(20), pytest.raises(ServerRefused, match="is not trusted: self-signed certificate"):
                await client.connected()

        assert house.gateway.statistics().opened == 0


async def test_a_client_that_speaks_plainly_gets_nothing(files: CertificateFiles) -> None:
    async with gateway_house(tls=files.context) as house:
        with pytest.raises(Exception, match=r"HTTP|connection"), anyio.fail_after(20):
            async with connect(f"ws://127.0.0.1:{house.gateway.port}", proxy=None):
                pass

        assert house.gateway.statistics().opened == 0


async def test_a_client_with_a_plain_address_is_told_the_other_one(files: CertificateFiles) -> None:
    async with gateway_house(tls=files.context) as house:
        plain = f"ws://127.0.0.1:{house.gateway.port}"
        async with TorporClient(plain, token_for("alice", clock=house.clock)) as client:
            with (
                anyio.fail_after(20),
                pytest.raises(ServerRefused, match=f"speaks TLS, expected the address wss{plain[2:]}"),
            ):
                await client.connected()

        assert house.gateway.statistics().opened == 0


async def test_what_is_neither_is_tried_again() -> None:
    asked = 0

    async def hang_up(stream: anyio.abc.SocketStream) -> None:
        nonlocal asked
        async with stream:
            asked += 1
            if asked == 5:
                done.set()

    done = anyio.Event()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, hang_up)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with TorporClient(f"ws://127.0.0.1:{port}", "token") as client:
            with anyio.fail_after(20):
                await done.wait()
            assert client.welcome is None
        tasks.cancel_scope.cancel()


async def test_old_versions_of_tls_are_refused(files: CertificateFiles) -> None:
    old = trusting(files.certificate)
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with gateway_house(tls=files.context) as house:
        with pytest.raises(ssl.SSLError):
            await anyio.to_thread.run_sync(serial, old, house.gateway.port)


async def test_a_handshake_that_stalls_is_ended(files: CertificateFiles) -> None:
    async with gateway_house(tls=files.context, hello_deadline_s=0.2) as house:
        stream = await anyio.connect_tcp("127.0.0.1", house.gateway.port)
        async with stream:
            with anyio.fail_after(20), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()


async def test_a_web_page_over_tls_is_our_own_under_https_alone(files: CertificateFiles) -> None:
    async with gateway_house(tls=files.context) as house:
        port = house.gateway.port
        async with connect(
            house.gateway.url,
            ssl=trusting(files.certificate),
            proxy=None,
            origin=f"https://localhost:{port}",  # type: ignore[arg-type]  # a NewType of text
            subprotocols=[Subprotocol("torpor.v1")],
        ):
            pass
        with pytest.raises(Exception, match="403"):
            async with connect(
                house.gateway.url,
                ssl=trusting(files.certificate),
                proxy=None,
                origin=f"http://localhost:{port}",  # type: ignore[arg-type]  # likewise
            ):
                pass


async def test_new_connections_get_the_newest_certificate_and_old_ones_go_on(
    files: CertificateFiles, tmp_path: Path
) -> None:
    async with gateway_house(tls=files.context) as house:
        port, before = house.gateway.port, trusting(files.certificate)
        first = await anyio.to_thread.run_sync(serial, before, port)
        async with TorporClient(house.gateway.url, token_for("alice", clock=house.clock), tls=before) as client:
            with anyio.fail_after(20):
                await client.connected()
            write_certificate(tmp_path)
            await files.reload()
            second = await anyio.to_thread.run_sync(serial, trusting(files.certificate), port)
            with anyio.fail_after(20):
                await client.send("c1", "hello")

            assert first != second
            assert client.statistics().connections == 1


async def test_half_of_a_new_pair_changes_nothing_and_is_told(files: CertificateFiles, tmp_path: Path) -> None:
    async with gateway_house(tls=files.context) as house:
        trusted = trusting(files.certificate)
        before = await anyio.to_thread.run_sync(serial, trusted, house.gateway.port)
        other = tmp_path / "other"
        other.mkdir()
        write_certificate(other)
        shutil.copy(other / "certificate.pem", files.certificate)
        with capture_logs() as logs:
            await files.reload()
        assert await anyio.to_thread.run_sync(serial, trusted, house.gateway.port) == before
        assert [(line["event"], line["log_level"]) for line in logs] == [("gateway.certificate_kept", "warning")]

        shutil.copy(other / "key.pem", files.key)
        await files.reload()
        assert await anyio.to_thread.run_sync(serial, trusting(files.certificate), house.gateway.port) != before


async def test_files_that_did_not_change_are_not_loaded_again(files: CertificateFiles) -> None:
    with capture_logs() as logs:
        await files.reload()

    assert logs == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tls_certificate": "certificate.pem"}, "gateway.tls_key is ''"),
        ({"tls_key": "key.pem"}, "gateway.tls_certificate is ''"),
        ({"tls_certificate": "gone.pem", "tls_key": "key.pem"}, "no such file"),
        ({"tls_certificate": "certificate.pem", "tls_key": "certificate.pem"}, "gateway.tls_certificate is"),
        ({"tls_certificate": "key.pem", "tls_key": "key.pem"}, "gateway.tls_certificate is"),
        ({"tls_certificate": "certificate.pem", "tls_key": "foreign.pem"}, "key values mismatch"),
        ({"tls_certificate": "certificate.pem", "tls_key": "locked.pem"}, "gateway.tls_certificate is"),
        (
            {"tls_certificate": "certificate.pem", "tls_key": "key.pem", "tls": "terminated"},
            "gateway.tls is 'terminated'",
        ),
    ],
)
def test_files_that_cannot_be_used_are_told_at_the_start(options: dict[str, str], reason: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    _, foreign = write_certificate(other)
    foreign.rename(tmp_path / "foreign.pem")
    _, key = write_certificate(tmp_path)
    locked = serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"a password"),
    )
    (tmp_path / "locked.pem").write_bytes(locked)

    with pytest.raises(ConfigError, match=reason):
        certificate_files(GatewayOptions(**options), home=tmp_path)  # type: ignore[arg-type]  # a table of texts
