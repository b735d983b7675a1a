"""``torpor drain``, signals and ``torpor top`` as an operator uses them, on a server in the middle of a turn."""

import os
import signal
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.support.command_line import DEADLINE_S, Command, Sending, Terminal
from torpor.gateway.close_reasons import CloseReason

REHEARSAL = """
pace_cps = {pace_cps}

[[rule]]
match = "quick"
[[rule.step]]
say = "At once."

[[rule]]
match = "for ever"
[[rule.step]]
say = "{endless}"

[[rule]]
[[rule.step]]
say = "{long}"
"""
LONG = "This takes its time. " * 20
AGENT = """
name = "slow"
default = true
system = "Speak slowly."
[model]
kind = "scripted"
rehearsal = "slow"
"""
HOLDING = """
[[rule]]
[[rule.step]]
call = [{ tool = "holds" }]
[[rule.step]]
say = "At last."
"""
HOLDS = '''
import pathlib, time

from torpor import tool


@tool(effect="read")
async def holds() -> str:
    """Hold the event loop, which is a fault of this tool."""
    pathlib.Path({held!r}).touch()
    time.sleep(600)
    return "at last"
'''


@pytest.fixture
def torpor(tmp_path: Path) -> Command:
    """In a home whose agent takes four seconds to say anything."""
    command = Command(tmp_path)
    command.run("init", ".")
    for agent in (tmp_path / "config" / "agents").glob("*.toml"):
        agent.write_text(agent.read_text().replace("default = true", "default = false"))
    (tmp_path / "config" / "agents" / "slow.toml").write_text(AGENT)
    rehearse(command, pace_cps=100)
    return command


def rehearse(torpor: Command, *, pace_cps: int) -> None:
    """What the agent says, at so many characters a second from the next start on."""
    text = REHEARSAL.format(pace_cps=pace_cps, endless=LONG * 100, long=LONG)
    (torpor.directory / "config" / "rehearsals" / "slow.toml").write_text(text)


def begun(torpor: Command, text: str = "Tell me something", *, reconnect_s: float = 60) -> Sending:
    """A message whose turn runs."""
    sending = torpor.sending(text, "--conversation", "first", "--reconnect", f"{reconnect_s}")
    until = time.monotonic() + DEADLINE_S
    while not asks_model(torpor.directory / ".torpor" / "torpor.db"):
        assert time.monotonic() < until, "no turn began"
        time.sleep(0.02)  # another process
    return sending


def asks_model(database: Path) -> bool:
    """Whether the conversation has asked its model, by its journal."""
    asked = """
        SELECT 1 FROM journal JOIN conversations USING (number)
            WHERE conversation = 'first' AND records LIKE '%"kind":"model_requested"%'"""
    with closing(sqlite3.connect(database)) as db:
        return db.execute(asked).fetchone() is not None


def ends(torpor: Command) -> list[str]:
    """How the turns of the conversation ended, by its journal."""
    kinds = [row["kind"] for row in torpor.facts("inspect", "first", "--data", ".torpor")]
    return [kind for kind in kinds if kind in {"turn_finished", "turn_cancelled", "turn_failed"}]


def test_a_drain_waits_for_the_step_that_runs_and_ends_when_the_process_has(torpor: Command) -> None:
    with torpor.serving() as server:
        sending = begun(torpor)
        told = torpor.facts("drain", "--wait", "50")
        assert told[0]["draining"]
        assert told[0]["turns"] == 1
        assert told[-1] == {"ended": True}
        assert server.stop() == 0
        assert ends(torpor) == ["turn_finished"]
        assert LONG.strip() in sending.end(code=0).stdout
        assert "is it running?" in torpor.complaint("drain")


def test_what_a_drain_cuts_off_goes_on_at_the_next_start(torpor: Command) -> None:
    rehearse(torpor, pace_cps=1)
    with torpor.serving() as server:
        sending = begun(torpor)
        said = torpor.output("drain", "--wait", "0").splitlines()
        assert said[0] == "draining, 1 turn still runs"
        assert said[-1] == "the server has ended"
        assert server.stop() == 0
        assert ends(torpor) == []
        rehearse(torpor, pace_cps=10_000)
        server.start()
        assert LONG.strip() in sending.end(code=0).stdout
        assert [row["state"] for row in torpor.facts("ps")] == ["rest"]
    assert ends(torpor) == ["turn_finished"]


def until_it_drains(torpor: Command) -> None:
    until = time.monotonic() + DEADLINE_S
    while not torpor.facts("top", "--once")[0]["rooms"]["drain"]["draining"]:
        assert time.monotonic() < until, "it does not drain"


def test_a_message_that_meets_a_drain_says_what_becomes_of_it_and_goes_to_the_next_server(torpor: Command) -> None:
    torpor.environ["TORPOR__SUPERVISOR__STOP_DEADLINE_S"] = "3600"
    with torpor.serving() as server:
        endless = begun(torpor, "Speak for ever", reconnect_s=0.1)
        server.tell(signal.SIGTERM)
        until_it_drains(torpor)
        waiting = torpor.sending("Be quick", "--conversation", "second")
        waiting.until("not accepted yet: the server is stopping, retry in 1 s; it is sent again, as one message, until")
        server.kill()
        endless.end(code=1)
        torpor.environ["TORPOR__SUPERVISOR__STOP_DEADLINE_S"] = "0"
        server.start()
        assert waiting.end(code=0).stdout == "At once.\n"


def test_a_second_signal_ends_the_process_at_once_and_loses_nothing(torpor: Command) -> None:
    torpor.environ["TORPOR__SUPERVISOR__STOP_DEADLINE_S"] = "50"
    rehearse(torpor, pace_cps=1)
    with torpor.serving() as server:
        sending = begun(torpor)
        server.tell(signal.SIGTERM)
        until_it_drains(torpor)
        assert server.stop() == 137
        assert ends(torpor) == []
        rehearse(torpor, pace_cps=10_000)
        server.start()
        assert LONG.strip() in sending.end(code=0).stdout
    assert ends(torpor) == ["turn_finished"]


def test_a_second_signal_also_ends_a_process_whose_event_loop_is_held(torpor: Command) -> None:
    held = torpor.directory / "held"
    (torpor.directory / "tools" / "holds.py").write_text(HOLDS.format(held=str(held)))
    (torpor.directory / "config" / "rehearsals" / "slow.toml").write_text(HOLDING)
    with torpor.serving() as server:
        sending = torpor.sending("Hold everybody", "--conversation", "first", "--reconnect", "0.1")
        until = time.monotonic() + DEADLINE_S
        while not held.exists():
            assert time.monotonic() < until, "the tool did not begin"
            time.sleep(0.02)  # another process
        server.tell(signal.SIGINT)  # of one kind, two that nobody took yet would be one
        assert server.stop() == 137
        sending.end(code=1)


def test_a_log_that_nobody_reads_holds_up_neither_the_server_nor_its_end(torpor: Command) -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writes, b"x" * 4_096)
    os.set_blocking(writes, True)
    try:
        with torpor.serving("--log-level", "debug", log=writes) as server:
            assert torpor.output("send", "quick", "--conversation", "first").strip() == "At once."
            assert server.stop() == 0
    finally:
        os.close(reads)
        os.close(writes)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGTERM, CloseReason.RESTARTING),
        (signal.SIGINT, CloseReason.GOING_AWAY),
        (signal.SIGHUP, CloseReason.GOING_AWAY),
    ],
)
def test_clients_are_told_whether_the_server_comes_again(
    torpor: Command, number: signal.Signals, reason: CloseReason
) -> None:
    with torpor.serving() as server:
        token = {"Authorization": f"Bearer {server.ready['token']}"}
        with connect(
            server.ready["url"], additional_headers=token, subprotocols=[Subprotocol("torpor.v1")], proxy=None
        ) as line:
            server.tell(number)
            with pytest.raises(ConnectionClosed) as closed:
                line.recv(DEADLINE_S)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (reason.code, reason.text)
        assert server.ended() == 0


def test_operators_alone_may_look_or_drain(torpor: Command) -> None:
    with torpor.serving() as server:
        eve = torpor.output("token", "--subject", "eve", "--ttl", "5m").strip()
        assert "statistics needs the scope 'operator'" in torpor.complaint("top", "--token", eve)
        assert "drain needs the scope 'operator'" in torpor.complaint("drain", "--token", eve)
        assert server.stop() == 0


def test_top_prints_one_view_where_there_is_no_terminal(torpor: Command) -> None:
    with torpor.serving() as server:
        torpor.run("send", "quick", "--conversation", "second")
        shown = torpor.output("top")
        assert shown.startswith(server.ready["url"])
        assert "actors 0 running, 1 idle" in shown
        assert shown.endswith("no turn runs\n")
        assert "\x1b" not in shown
        sending = begun(torpor, "Speak for ever", reconnect_s=0.1)
        head, turn = torpor.output("top", "--once").splitlines()[-2:]
        assert head.split() == ["ID", "AGENT", "TURN", "AGE", "STEP", "OF", "FOR", "WAITING"]
        assert turn.startswith("developer/first")
        assert "call_model" in turn
        server.kill()
        sending.end(code=1)


def test_top_draws_anew_until_it_is_left(torpor: Command) -> None:
    with torpor.serving(), top(torpor) as terminal:
        terminal.expect("no turn runs")
        sending = begun(torpor)
        terminal.expect("developer/first")
        terminal.expect("call_model")
        sending.end(code=0)
        terminal.expect("no turn runs")
        terminal.type("q")
        assert terminal.ended() == 0


@pytest.mark.parametrize("leaves", ["q", "\x03"], ids=["q", "ctrl-c"])
def test_top_leaves_the_terminal_as_it_was(torpor: Command, leaves: str) -> None:
    with torpor.serving(), top(torpor) as terminal:
        before = terminal.modes()
        terminal.expect("\x1b[?1049h")
        terminal.expect("no turn runs")
        terminal.type(leaves)
        assert terminal.ended() == 0
        assert terminal.shown.endswith("\x1b[?25h\x1b[?1049l")
        assert terminal.modes() == before


def test_top_says_that_the_server_is_gone_and_goes_on_with_the_next(torpor: Command) -> None:
    with torpor.serving() as server, top(torpor) as terminal:
        terminal.expect("no turn runs")
        server.kill()
        terminal.expect("connection lost, trying again")
        server.start()
        terminal.expect("no turn runs")
        terminal.expect(f"\x1b[H{server.ready['url']}   memory")
        terminal.type("q")
        assert terminal.ended() == 0


def top(torpor: Command) -> Terminal:
    """A live view on a terminal of its own."""
    return Terminal(["top"], cwd=torpor.directory, env=torpor.environ)
