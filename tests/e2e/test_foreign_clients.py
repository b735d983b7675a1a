"""Clients that nobody here wrote speak the frames of docs/protocol.md: what comes with ``websockets``, and Node.js."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import pytest

from tests.support.command_line import DEADLINE_S, Command, set_pace
from tests.support.node import MISSING, node

PAGE: Final = Path(__file__).parent / "clients" / "page.mjs"
TEXT: Final = "Opening hours and appointments, please"
KINDS: Final = {
    "message.received": "message_received",
    "turn.started": "turn_prepared",
    "reply.finished": "model_replied",
    "tool.started": "tool_started",
    "tool.finished": "tool_finished",
    "turn.finished": "turn_finished",
}
"""Types of events, as the journal calls the records behind them."""


class Office(NamedTuple):
    """A server, and its home."""

    command: Command
    url: str
    token: str


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    made = Command(tmp_path_factory.mktemp("office"))
    made.run("init", ".")
    set_pace(made.directory, 700)  # quick, and slow enough to be met in the middle of a sentence
    with made.serving() as server:
        yield Office(made, server.ready["url"], server.ready["token"])


def as_journaled(events: list[dict[str, Any]]) -> list[tuple[int, str, int, int]]:
    return [(event["event"], KINDS[event["type"]], event["at_us"], event.get("turn", 0)) for event in events]


def journal(office: Office, conversation: str) -> list[tuple[int, str, int, int]]:
    """The public side of its records."""
    rows = office.command.facts("inspect", conversation)
    return [(row["event"], row["kind"], row["at_us"], row["turn"]) for row in rows if row["event"]]


class Prompt:
    """``python -m websockets URI``: lines go in as frames, and what comes is shown behind ``<``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout
        self.shown: list[dict[str, Any]] = []

    def type(self, **frame: object) -> None:
        self._in.write(f"{json.dumps(frame)}\n")
        self._in.flush()

    def until(self, kind: str) -> dict[str, Any]:
        """The next frame, or event, of that kind."""
        for line in self._out:
            for found in re.findall(r"< (\{.*\})", line):
                frame: dict[str, Any] = json.loads(found)
                self.shown.append(frame)
                if kind in {frame["frame"], event_of(frame).get("type")}:
                    return frame
        raise AssertionError(f"it ended before {kind!r} came: {self.shown}")


def event_of(frame: dict[str, Any]) -> dict[str, Any]:
    event = frame.get("event")
    return event if isinstance(event, dict) else {}


@contextmanager
def prompt(url: str) -> Iterator[Prompt]:
    command = [sys.executable, "-m", "websockets", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Prompt(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(DEADLINE_S)


def test_the_client_of_websockets_has_a_conversation_and_comes_back_to_it(office: Office) -> None:
    url, token = office.url, office.token
    with prompt(url) as line:
        line.type(frame="hello", token=token, subscriptions=[{"conversation": "c1"}])
        welcome, reload = line.until("welcome"), line.until("reload")
        line.type(frame="send", ref="1", conversation="c1", message_id="m1", text=TEXT)
        line.until("turn.finished")
        line.type(frame="dance", ref="2")
        error = line.until("error")
        line.type(frame="list", ref="3")
        listed = line.until("result")
    events = [event_of(frame) for frame in line.shown if event_of(frame)]
    with prompt(url) as again:
        cursor = {"epoch": 1, "event": 1}
        subscription = {"conversation": "c1", "cursor": cursor}
        again.type(frame="hello", token=token, subscriptions=[subscription])
        resumed = again.until("resumed")
        again.until("turn.finished")
    replayed = [event_of(frame) for frame in again.shown if event_of(frame)]
    journaled = journal(office, "c1")

    assert welcome["principal"] == "developer"
    assert reload["status"]["state"] == "new"
    assert (error["code"], error["ref"]) == ("bad_frame", "2")
    assert "c1" in [row["conversation"] for row in listed["rows"]]
    assert as_journaled(events) == journaled
    assert resumed["head"] == len(journaled)
    assert replayed == events[1:]


def test_a_page_in_javascript_drops_its_connection_and_resumes_from_its_cursor(office: Office) -> None:
    if (command := node()) is None:
        pytest.skip(MISSING)
    done = subprocess.run(
        [*command, str(PAGE), office.url, office.token, "c2", TEXT],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    journaled = journal(office, "c2")
    assert (done.returncode, done.stderr) == (0, "")

    seen = json.loads(done.stdout)
    assert as_journaled(seen["events"]) == journaled
    assert [number for number, *_ in journaled] == list(range(1, len(journaled) + 1))
    assert (seen["connections"], seen["answers"]) == (2, ["reload", "resumed"])
    replies = [event["text"] for event in seen["events"] if event["type"] == "reply.finished"]
    assert seen["shown"] == replies[-1], "the deltas add up to the reply, across the dropped connection"
    assert seen["shownAtTheDrop"]
    assert {receipt["event"] for receipt in seen["receipts"]} == {1}, "the resend is the same message"
