"""Rows P1 and P2: what a call of an MCP server's tool costs beside the same call of a bare ``mcp.Client``.

``python -m bench.mcp [--json]``. One real server over standard input and output, one over HTTP, each called one call at
a time, by the client alone and through an agent's toolbox: connection, deadline, result and all. Calls of both kinds
take turns, so that a noisy neighbour hits both; medians count. CPU is of this process alone.
"""

import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import msgspec
from mcp import Client, StdioServerParameters

from bench.command import run
from bench.report import Row
from torpor.records.ids import CallId, ConversationKey
from torpor.records.terms import Outcome
from torpor.store.blobs import MemoryBlobs
from torpor.toolhost.contract import Toolbox, ToolContext
from torpor.toolhost.mcp.elsewhere import McpTools
from torpor.toolhost.mcp.loading import open_session
from torpor.toolhost.mcp.options import McpOptions, McpServer
from torpor.toolhost.mcp.servers import McpServers
from torpor.toolhost.mcp.values import Values
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.registry import ToolRegistry

SERVER: Final = """
import sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("bench")

@server.tool()
def look(words: str) -> str:
    "Say the words again."
    return words

server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1])) if sys.argv[1:] else server.run("stdio")
"""
CALLS: Final = 200
"""That are timed, of each kind."""
WARM: Final = 20
WORDS: Final = "what there is of Ada Lovelace"
Call = Callable[[], Awaitable[None]]


class Taken(msgspec.Struct, frozen=True):
    """Medians of one kind of call."""

    wall_us: float
    cpu_us: float


async def medians(*calls: Call) -> list[Taken]:
    """Of each kind, one call of each after the other."""
    wall: list[list[float]] = [[] for _ in calls]
    cpu: list[list[float]] = [[] for _ in calls]
    for number in range(WARM + CALLS):
        for kind, call in enumerate(calls):
            began, began_cpu = time.perf_counter_ns(), time.process_time_ns()
            await call()
            if number >= WARM:
                cpu[kind].append((time.process_time_ns() - began_cpu) / 1_000)
                wall[kind].append((time.perf_counter_ns() - began) / 1_000)
    return [Taken(statistics.median(walls), statistics.median(cpus)) for walls, cpus in zip(wall, cpu, strict=True)]


def bare(client: Client) -> Call:
    async def call() -> None:
        result = await client.call_tool("look", {"words": WORDS}, read_timeout_seconds=30)
        assert not result.is_error

    return call


def ours(toolbox: Toolbox, context: ToolContext) -> Call:
    arguments = msgspec.Raw(msgspec.json.encode({"words": WORDS}))

    async def call() -> None:
        result = await toolbox.call("bench__look", arguments, context)
        assert (result.outcome, result.text) == (Outcome.SUCCEEDED, WORDS)

    return call


@asynccontextmanager
async def lent(server: McpServer, home: Path) -> AsyncIterator[tuple[Toolbox, ToolContext]]:
    """The server's tools as an agent has them."""
    servers = McpServers(
        {"bench": server},
        home=home,
        values=Values(home, {}),
        open_=open_session,
        options=McpOptions(turn_wait_s=60.0),
        chance=lambda: 0.5,
    )
    registry = ToolRegistry((), blobs=MemoryBlobs(), options=ToolOptions())
    tools = McpTools(servers, names=["bench"], taken=[], toolbox_of=registry.lent_toolbox)
    key = ConversationKey("acme", "ann", "c1")
    async with registry.running(), servers.running():
        await tools.known(key, "ann")
        found = tools.lent(key, "ann")
        assert found is not None, "the server did not start"
        yield (
            found.toolbox,
            ToolContext(
                key=key, principal="ann", turn=1, call_id=CallId("c"), idempotency_key="k", report=lambda _: None
            ),
        )


async def compared(target: Any, server: McpServer, home: Path) -> tuple[Taken, Taken]:
    """Of a bare client, and of ours."""
    client: AbstractAsyncContextManager[Client] = Client(target)
    async with client as connected, lent(server, home) as (toolbox, context):
        floor, torpor = await medians(bare(connected), ours(toolbox, context))
    return floor, torpor


@contextmanager
def listening(script: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(script), str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while True:
                with socket.socket() as asked:
                    if asked.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def rows() -> Iterable[Row]:
    with TemporaryDirectory(prefix="torpor-bench-") as folder:
        home = Path(folder)
        script = home / "server.py"
        script.write_text(SERVER)
        program = StdioServerParameters(command=sys.executable, args=[str(script)])
        table = McpServer(command=sys.executable, args=(str(script),))
        yield from _rows("P1", "a program", *anyio.run(compared, program, table, home))
        with listening(script) as url:
            yield from _rows("P2", "HTTP", *anyio.run(compared, url, McpServer(url=url), home))


def _rows(name: str, over: str, floor: Taken, torpor: Taken) -> Iterable[Row]:
    yield Row(
        id=f"{name} time",
        what=f"a call over {over}",
        unit="us",
        torpor=torpor.wall_us,
        base=floor.wall_us,
        base_name="a bare mcp.Client",
        ratio_at_most=1.25,
    )
    yield Row(
        id=f"{name} CPU",
        what=f"the same, CPU of this process, over {over}",
        unit="us",
        torpor=torpor.cpu_us,
        base=floor.cpu_us,
        base_name="a bare mcp.Client",
        ratio_at_most=1.5,
    )


if __name__ == "__main__":
    sys.exit(run("bench.mcp", rows=rows, probes={}))
