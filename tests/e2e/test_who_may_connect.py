"""Secrets, certificates and addresses as an operator meets them: at the command line."""

import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import jwt
import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from tests.support.command_line import DEADLINE_S, Command, set_pace
from tests.support.gateway_line import ManualClock
from tests.support.issuer import AUDIENCE, ISSUER, issued, key_set, public_jwk, write_certificate
from torpor.clock import SystemClock
from torpor.gateway.auth import mint

DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"
SECRET = "a secret that an operator made on purpose, with blanks"


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("starter") / "home"
    Command(folder.parent).run("init", "home")
    set_pace(folder, 0)
    return folder


@pytest.fixture
def home(starter: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(starter, tmp_path / "home"))


def protected(home: Path, **more: str) -> Command:
    """A command whose server may listen anywhere."""
    (home / "secret.txt").write_text(f"{SECRET}\n")
    files = {
        "TORPOR__AUTH__SECRET_FILE": "secret.txt",
        "TORPOR__GATEWAY__TLS_CERTIFICATE": "certificate.pem",
        "TORPOR__GATEWAY__TLS_KEY": "key.pem",
    }
    write_certificate(home, hosts=("torpor.example.org", "127.0.0.1"))
    return Command(home, **{**files, **more})


def test_an_address_that_others_reach_is_refused_and_what_to_set_is_said(home: Path) -> None:
    complaint = Command(home).complaint("serve", "--host", "0.0.0.0", "--port", "0")

    assert complaint.startswith("torpor: address to listen on: gateway.host is '0.0.0.0', which others can reach, ")
    for remedy in ("gateway.tls_certificate", "gateway.tls = 'terminated'", "auth.secret_file", "auth.jwks"):
        assert remedy in complaint


@pytest.mark.parametrize(
    ("environ", "remedy"),
    [
        ({"TORPOR__AUTH__SECRET_ENV": "KEY"}, "environment: TORPOR__AUTH__SECRET_ENV is KEY, which is not set"),
        ({"TORPOR__AUTH__SECRET_ENV": "KEY", "KEY": "hunter2"}, "a secret of 7 bytes"),
    ],
)
def test_a_secret_that_is_none_is_not_enough(environ: dict[str, str], remedy: str, home: Path) -> None:
    listening = {"TORPOR__GATEWAY__HOST": "0.0.0.0", "TORPOR__GATEWAY__PORT": "0", "TORPOR__GATEWAY__TLS": "terminated"}
    command = Command(home, **listening, **environ)

    complaint = command.complaint("serve")

    assert remedy in complaint
    assert "hunter2" not in complaint


def test_the_check_of_a_home_tells_of_it_before_a_start(home: Path) -> None:
    command = Command(home, TORPOR__GATEWAY__HOST="0.0.0.0", TORPOR__AUTH__SECRET_FILE="gone")

    wrong = [fact["detail"] for fact in command.facts("config", "check", code=1) if not fact["ok"]]

    assert any("TORPOR__AUTH__SECRET_FILE is" in detail for detail in wrong)
    assert any("gateway.host is '0.0.0.0', which others can reach" in detail for detail in wrong)


def test_behind_a_proxy_commands_here_find_the_server_and_its_own_token(home: Path) -> None:
    command = Command(home, TORPOR__GATEWAY__TLS="terminated", TORPOR__AUTH__SECRET_ENV="KEY", KEY=SECRET)
    with command.serving("--host", "0.0.0.0") as server:
        assert server.ready["token"] == ""
        assert command.output("send", "hello", "--conversation", "c1")
        (row,) = command.facts("ps")
        assert row["path"] == "default/developer/c1"


class OverTls:
    """A server that others reach: its home, its address on this machine, and what it logged."""

    def __init__(self, command: Command, *, url: str, log: Path) -> None:
        self.command = command
        self.home = command.directory
        self.url = url
        self.log = log

    def token(self) -> str:
        return self.command.output("token", "--subject", "ada", "--ttl", "5m", "--scope", "operator").strip()


@pytest.fixture(scope="module")
def over_tls(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OverTls]:
    home = Path(shutil.copytree(starter, tmp_path_factory.mktemp("tls") / "home"))
    command = protected(home, TORPOR__AUTH__ISSUER="torpor-at-home", TORPOR__AUTH__AUDIENCE="torpor")
    with logged(command, "--host", "0.0.0.0") as (url, log):
        yield OverTls(command, url=url, log=log)


def test_what_is_printed_holds_no_token_when_others_may_read_it(over_tls: OverTls) -> None:
    own = (over_tls.home / ".torpor" / "development_token").read_text()
    assert own.count(".") == 2
    assert own not in over_tls.log.read_text()


def is_healthy(home: Path) -> bool:
    """Whether the check of the image says so, run where the image runs it."""
    (told,) = re.findall(r"^HEALTHCHECK .*\\\n\s+CMD (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    _, *arguments = json.loads(told)
    check = subprocess.run([sys.executable, *arguments], cwd=home, capture_output=True, timeout=DEADLINE_S, check=False)
    return check.returncode == 0


def test_the_health_check_of_the_image_asks_with_tls_and_without(over_tls: OverTls, home: Path) -> None:
    assert is_healthy(over_tls.home)
    assert not is_healthy(home)
    with Command(home).serving():
        assert is_healthy(home)
    assert not is_healthy(home)


def test_an_address_for_every_name_is_printed_as_one_that_works_here(over_tls: OverTls) -> None:
    said = over_tls.log.read_text()
    assert f"address  {over_tls.url}\n" in said
    assert "it listens on every address" in said


def test_over_tls_commands_here_trust_the_certificate_in_its_file(over_tls: OverTls) -> None:
    assert over_tls.url.startswith("wss://127.0.0.1:")
    assert over_tls.command.output("send", "hello", "--conversation", "c1")
    assert "default/developer/c1" in [row["path"] for row in over_tls.command.facts("ps")]


def test_over_tls_other_machines_name_who_vouches_for_it(over_tls: OverTls, tmp_path: Path) -> None:
    certificate = str(over_tls.home / "certificate.pem")
    elsewhere = Command(tmp_path, TORPOR_TOKEN=over_tls.token(), TORPOR_URL=over_tls.url)

    by_variable = Command(tmp_path, **elsewhere.environ | {"TORPOR_CA": certificate})
    assert by_variable.output("ps")
    complaint = elsewhere.complaint("ps")
    assert "is not trusted: self-signed certificate" in complaint
    assert complaint.endswith("; --ca FILE or TORPOR_CA names who vouches for it")
    by_other_name = Command(
        tmp_path, **by_variable.environ | {"TORPOR_URL": over_tls.url.replace("127.0.0.1", "127.0.0.2")}
    )
    complaint = by_other_name.complaint("ps")
    assert "is for another name: IP address mismatch" in complaint
    assert complaint.endswith("; use the name that it is for in --url; on the server's own machine, leave --url out")
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    assert "is no certificate that can be read" in elsewhere.complaint("ps", "--ca", str(junk))


def test_a_token_is_signed_with_the_secret_that_the_home_names(over_tls: OverTls, tmp_path: Path) -> None:
    token = over_tls.token()

    claims = jwt.decode(token, SECRET, ["HS256"], audience="torpor", issuer="torpor-at-home")
    assert claims["sub"] == "ada"
    elsewhere = Command(tmp_path, TORPOR_TOKEN=token, TORPOR_URL=over_tls.url)
    assert elsewhere.output("send", "hello", "--ca", str(over_tls.home / "certificate.pem"))


def test_tokens_of_an_issuer_count_and_own_ones_can_be_switched_off(home: Path) -> None:
    (home / "keys.json").write_bytes(key_set(public_jwk("RS256")))
    environ = {
        "TORPOR__AUTH__JWKS": "keys.json",
        "TORPOR__AUTH__ISSUER": ISSUER,
        "TORPOR__AUTH__AUDIENCE": AUDIENCE,
    }
    now = ManualClock()
    now.us = SystemClock().now_us()
    token = issued(now, scope="operator")
    with Command(home, **environ).serving() as server:
        where = ["--url", server.ready["url"], "--token", token]
        assert Command(home).output("send", "hello", "--conversation", "c1", *where)
        assert [row["path"] for row in Command(home).facts("ps")] == ["default/ada/c1"]
    with Command(home, **environ, TORPOR__AUTH__LOCAL_TOKENS="false").serving():
        assert "no token for ws://" in Command(home).complaint("ps")
        assert Command(home).output("ps", "--token", token)
        own = (home / ".torpor" / "development_token").read_text()
        assert "unauthenticated" in Command(home).complaint("ps", "--token", own)


def test_an_expired_token_is_told_apart(home: Path) -> None:
    with Command(home).serving() as server:
        secret = (home / ".torpor" / "secret").read_bytes()
        token = mint(secret, subject="ada", now_us=SystemClock().now_us(), lifetime_s=-60)

        complaint = Command(home).complaint("ps", "--url", server.ready["url"], "--token", token)
    assert complaint == (
        "torpor: token has expired, expected a newer one (token_expired); "
        "`torpor token` signs a newer one, unless an issuer of its own does"
    )


@contextmanager
def logged(command: Command, *arguments: str) -> Iterator[tuple[str, Path]]:
    """A server that tells everything; its address, and the file with all that it says."""
    log = command.directory / "everything.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "torpor.cli.main", "serve", "--port", "0", "--log-level", "debug", *arguments],
            cwd=command.directory,
            env=command.environ,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield _ready(command.directory / ".torpor" / "server.json", process), log
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def _ready(file: Path, process: "subprocess.Popen[bytes]") -> str:
    for _ in range(round(DEADLINE_S / 0.05)):
        if file.is_file():
            return str(json.loads(file.read_text())["url"])
        assert process.poll() is None
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("the server was not ready in time")


async def test_no_token_is_in_a_log_or_in_an_answer_wherever_a_client_puts_it(home: Path) -> None:
    command = Command(home)
    with logged(command) as (url, log):
        own = (home / ".torpor" / "development_token").read_text()
        secret = (home / ".torpor" / "secret").read_bytes()
        now_us = SystemClock().now_us()
        good = mint(secret, subject="ada", now_us=now_us, lifetime_s=3_600)
        stale = mint(secret, subject="ada", now_us=now_us, lifetime_s=-3_600)
        foreign = mint(b"f" * 32, subject="ada", now_us=now_us, lifetime_s=3_600)
        answers: list[str] = []
        for token in (own, good, stale, foreign, "junk-" + "t0ken" * 20):
            answers += _asked(url, token)
            answers += await _knocked(url, token)
        said = log.read_text(errors="replace")

        assert "gateway." in said or "server.ready" in said
        for token in (own, good, stale, foreign, "t0ken" * 20):
            tail = token.rpartition(".")[2]  # the signature, without which the rest opens nothing
            printed = 1 if token == own else 0  # for whoever started it, on this machine alone
            assert said.count(tail) == printed
            assert all(tail not in answer for answer in answers)


def _asked(url: str, token: str) -> list[str]:
    """What plain HTTP answers to a token in a path, a query and headers."""
    answers = []
    base = url.replace("ws://", "http://")
    for place, headers in (
        (f"/?token={token}", {}),
        (f"/{token}", {}),
        ("/healthz", {"Authorization": f"Bearer {token}"}),
    ):
        request = urllib.request.Request(base + place, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                answers.append(answer.read().decode())
        except urllib.error.HTTPError as exc:
            answers.append(exc.read().decode() + str(exc.headers))
            exc.close()
    return answers


async def _knocked(url: str, token: str) -> list[str]:
    """What a WebSocket answers to a token in its address, its headers, and frames of any shape."""
    answers: list[str] = []
    for path, headers in (
        (f"/?token={token}", {}),
        ("/", {"Authorization": f"Bearer {token}"}),
        ("/", {"Authorization": f"Basic {token}"}),
        ("/", {"Authorization": token}),
        ("/", {"Cookie": f"token={token}"}),
        ("/", {"Origin": f"https://{token}.example.org"}),
    ):
        try:
            async with connect(url + path, additional_headers=headers, proxy=None) as socket:
                answers += await _heard(socket, token)
        except InvalidStatus as exc:
            answers.append(exc.response.body.decode() if exc.response.body else "")
    protocols = [Subprotocol("torpor.v1"), Subprotocol(token.replace(".", "-")[:60])]
    async with connect(url, subprotocols=protocols, proxy=None) as socket:
        answers += await _heard(socket, token)
    return answers


async def _heard(socket: ClientConnection, token: str) -> list[str]:
    frames = [
        {"frame": "hello", "token": token},
        {"frame": "hello", "token": token, "subscriptions": 7},
        {"frame": "hello", "token": [token]},
        {"frame": "hello", "token": {"is": token}},
    ]
    said = [msgspec.json.encode(frame).decode() for frame in frames] + [f'{{"token": "{token}"', token]
    answers: list[str] = []
    with anyio.fail_after(DEADLINE_S), suppress(ConnectionClosed):
        for text in reversed(said):
            await socket.send(text)
        while '"welcome"' not in "".join(answers):  # the hello that can be read was the last to be sent
            answers.append(str(await socket.recv()))
    return answers
