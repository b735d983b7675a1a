"""Tools that block, hold the interpreter or never end, in a server that many people are connected to."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.protocol import State
from websockets.typing import Subprotocol

from tests.support.processes import workers_of
from torpor.client.items import EventItem
from torpor.client.torpor_client import TorporClient
from torpor.records.events import ReplyFinishedEvent, ToolStartedEvent, TurnFinishedEvent
from torpor.records.frames import Cursor, Hello

IDLE_SOCKETS = 50
PING_S = 0.5
AGENT = """
name = "tests"
default = true
system = "Speak."
[model]
kind = "scripted"
rehearsal = "tests"
"""
REHEARSAL = """
pace_cps = 10000

[[rule]]
match = '^call naps$'
[[rule.step]]
call = [{ tool = "naps" }]
[[rule.step]]
say = "{result.naps}"

[[rule]]
match = '^call grinds$'
[[rule.step]]
call = [{ tool = "grinds" }]
[[rule.step]]
say = "{result.grinds}"

[[rule]]
match = '^call runs_away$'
[[rule.step]]
call = [{ tool = "runs_away" }]
[[rule.step]]
say = "{result.runs_away}"

[[rule]]
[[rule.step]]
say = "Here."
"""
TOOLS = '''
import pathlib, re, time

from torpor import tool


@tool(effect="read")
def naps() -> str:
    """Wait for something slow."""
    until = time.monotonic() + 60
    while not pathlib.Path({let_go!r}).exists() and time.monotonic() < until:
        time.sleep(0.02)
    return "slept"


@tool(effect="read", deadline_s=300)
def grinds() -> str:
    """Hold the interpreter from a thread."""
    re.match("(a+)+$", "a" * 25 + "b")
    return "ground"


@tool(effect="read", runs="process", deadline_s=5)
def runs_away() -> str:
    """Never end."""
    re.match("(a+)+$", "a" * 64 + "b")
    return "ended"
'''


class Server:
    """A ``torpor serve`` and what it logged."""

    def __init__(self, process: anyio.abc.Process, *, ready: dict[str, str], log: Path, let_go: Path) -> None:
        """Args: let_go: the tool that naps ends once there is such a file."""
        self.let_go = let_go
        self.pid = process.pid
        self.url, self.token = ready["url"], ready["token"]
        self._log = log

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == event]

    def client(self) -> TorporClient:
        return TorporClient(self.url, self.token)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    files = {"config/agents": AGENT, "config/rehearsals": REHEARSAL}
    for folder, text in files.items():
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "tests.toml").write_text(text)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "slow.py").write_text(TOOLS.replace("{let_go!r}", repr(str(tmp_path / "let_go"))))
    environ = {
        **os.environ,
        "TORPOR__LOGS__FORMAT": "json",
        "TORPOR__WATCHDOG__LAG_WARN_S": "0.5",
        "TORPOR__GATEWAY__PING_INTERVAL_S": str(PING_S),
    }
    command = [sys.executable, "-m", "torpor.cli.main", "serve", "--json", "--port", "0", "--home", str(tmp_path)]
    log = tmp_path / "log"
    with log.open("w") as stderr:
        async with await anyio.open_process(command, env=environ, stderr=stderr) as process:
            assert process.stdout is not None
            with anyio.fail_after(60):
                ready = msgspec.json.decode(await process.stdout.receive())
            yield Server(process, ready=ready, log=log, let_go=tmp_path / "let_go")
            process.terminate()
            with anyio.fail_after(60):
                assert await process.wait() == 0
    assert workers_of(process.pid) == []


@asynccontextmanager
async def idle_sockets(server: Server) -> AsyncIterator[None]:
    """People who are connected and say nothing; afterwards they still are, and the server answers them."""
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(idle(server)) for _ in range(IDLE_SOCKETS)]
        yield
        assert {connection.state for connection in connections} == {State.OPEN}
        for connection in connections:
            await (await connection.ping())


@asynccontextmanager
async def idle(server: Server) -> AsyncIterator[ClientConnection]:
    protocol = [Subprotocol("torpor.v1")]
    async with connect(server.url, subprotocols=protocol, ping_interval=PING_S, proxy=None) as connection:
        await connection.send(msgspec.json.encode(Hello(token=server.token)).decode())
        assert "welcome" in str(await connection.recv())
        yield connection


async def replied(client: TorporClient, conversation: str, text: str, *, begun: anyio.Event | None = None) -> str:
    """The last words of the turn that answers ``text``; ``begun`` is set once a tool runs in it."""
    said = ""
    async with client.watch(conversation, Cursor(event=0)) as watch:
        await client.send(conversation, text)
        async for item in watch:
            match item:
                case EventItem(event=ToolStartedEvent()) if begun is not None:
                    begun.set()
                case EventItem(event=ReplyFinishedEvent() as reply):
                    said = reply.text
                case EventItem(event=TurnFinishedEvent()):
                    break
    return said


async def test_others_are_answered_while_one_tool_blocks_and_another_runs_away(server: Server) -> None:
    ends: list[tuple[str, str]] = []

    async def one(conversation: str, text: str, begun: anyio.Event | None = None) -> None:
        ends.append((conversation, await replied(client, conversation, text, begun=begun)))

    with anyio.fail_after(120):
        async with idle_sockets(server), server.client() as client, anyio.create_task_group() as tasks:
            for conversation, tool in (("blocks", "naps"), ("runs_away", "runs_away")):
                begun = anyio.Event()
                tasks.start_soon(one, conversation, f"call {tool}", begun)
                await begun.wait()
            await one("quick", "Are you there?")
            server.let_go.touch()
    told = "tool 'runs_away' did not finish within 5 s; it only reads, so nothing was changed"
    assert ends[0] == ("quick", "Here.")
    assert set(ends[1:]) == {("blocks", "slept"), ("runs_away", told)}


async def test_tool_that_holds_the_interpreter_is_named_and_costs_nobody_a_connection(server: Server) -> None:
    with anyio.fail_after(120):
        async with idle_sockets(server), server.client() as client:
            assert await replied(client, "slow", "call grinds") == "ground"
            assert await replied(client, "quick", "Are you there?") == "Here."
    held = [line for line in server.logged("loop.blocked") if line["cause"] == "interpreter_held"]
    assert ["grinds"] in [line["tools"] for line in held]
