"""The command line where something else answers than a server that has room and takes the token."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer, StreamRequestHandler, ThreadingTCPServer
from threading import Thread

import click
import pytest
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from tests.support.command_line import Command
from torpor.cli import remote
from torpor.gateway.handshake import refused_tls


@pytest.fixture
def torpor(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_address_of_something_else_is_told_at_once(torpor: Command) -> None:
    with plain() as port:
        for verb in ("ps", "chat"):
            complaint = torpor.complaint(verb, "--url", f"wss://127.0.0.1:{port}", "--token", "t")
            assert complaint.endswith(f"speaks no TLS, expected the address ws://127.0.0.1:{port} (refused)")
    with full() as port:
        complaint = torpor.complaint("ps", "--url", f"ws://127.0.0.1:{port}/page", "--token", "t")
    assert complaint.endswith("answered HTTP 200, expected the WebSocket of a Torpor server (refused)")


def test_server_that_is_full_until_nobody_waits_any_more_is_told_as_such(torpor: Command) -> None:
    with full() as port:
        sending = ("send", "Hello", "--reconnect", "0.5", "--url", f"ws://127.0.0.1:{port}", "--token", "t")
        complaint = torpor.complaint(*sending)
    assert complaint.startswith(
        f"torpor: no reply and no connection to ws://127.0.0.1:{port} for 0.5 s, it answered HTTP 503 (too many "
        "connections, try again later); the message was not acknowledged"
    )


def test_question_that_nobody_answers_in_time_is_told_with_what_stood_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ANSWER_DEADLINE_S", 0.5)
    with full() as port, pytest.raises(click.ClickException) as told:
        remote.ask(remote.Server(home=tmp_path, url=f"ws://127.0.0.1:{port}", token="t"), lambda asked: asked.listed())

    why = "it answered HTTP 503 (too many connections, try again later)"
    assert str(told.value) == f"ws://127.0.0.1:{port} gave no answer within 0.5 s: {why}"


class Full(BaseHTTPRequestHandler):
    """A server without room, and with a page."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        is_page = self.path == "/page"
        self.send_response(200 if is_page else 503)
        self.send_header("Content-Type", "text/html" if is_page else "text/plain")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"<p>" if is_page else b"too many connections, try again later\n")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def full() -> Iterator[int]:
    """Its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Full) as server, served(server):
        yield server.server_address[1]


class Plain(StreamRequestHandler):
    """Answers TLS as our own server does."""

    def handle(self) -> None:
        if self.request.recv(4096):
            self.request.sendall(refused_tls())


@contextmanager
def plain() -> Iterator[int]:
    with ThreadingTCPServer(("127.0.0.1", 0), Plain) as server, served(server):
        yield server.server_address[1]


@contextmanager
def served(server: BaseServer) -> Iterator[None]:
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


@contextmanager
def expiring() -> Iterator[int]:
    """A server that says hello, shows a conversation, and then that the token has expired."""

    def talk(connection: ServerConnection) -> None:
        connection.recv()
        connection.send('{"frame":"welcome","principal":"a","tenant":"t","owner":"a","scopes":["chat"]}')
        name = json.loads(connection.recv())["subscription"]["conversation"]
        state = {"conversation": name, "epoch": 1, "head": 0, "status": {"state": "new"}}
        connection.send(json.dumps({"frame": "reload", "events": [], **state}))
        connection.close(4440, "token expired")

    with serve(talk, "127.0.0.1", 0, subprotocols=[Subprotocol("torpor.v1")]) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.socket.getsockname()[1]
        finally:
            server.shutdown()
            thread.join()


def test_chat_whose_token_ends_tells_that_alone(torpor: Command) -> None:
    with expiring() as port, torpor.chat("--url", f"ws://127.0.0.1:{port}", "--token", "t") as chat:
        assert chat.ended() == 1
        told = chat.shown
    assert "(connection lost" not in told
    assert "\ntorpor: token has expired, expected a newer one (token_expired); `torpor token` signs a newer one" in told
