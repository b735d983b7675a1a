"""Played servers as the tools of an engine's agent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.mcp_played import PlayedServer
from torpor.store.blobs import MemoryBlobs
from torpor.toolhost.mcp.elsewhere import McpTools
from torpor.toolhost.mcp.options import McpOptions, McpServer
from torpor.toolhost.mcp.servers import McpServers
from torpor.toolhost.mcp.values import Values
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.registry import ToolRegistry

QUICK = McpOptions(
    start_deadline_s=30.0, backoff_s=0.001, backoff_max_s=0.002, relist_pause_s=0.0, idle_stop_s=0.0, turn_wait_s=30.0
)


@asynccontextmanager
async def lending(
    played: PlayedServer, *, options: McpOptions = QUICK, reads: tuple[str, ...] = (), reads_only: bool = False
) -> AsyncIterator[McpTools]:
    """The tools of one server, called ``lib``. Args: reads: those that only read.  reads_only: they alone."""
    home = Path("/nowhere")
    servers = McpServers(
        {"lib": McpServer(command="x", reads=reads)},
        home=home,
        values=Values(home, {}),
        open_=played.open,
        options=options,
        chance=lambda: 0.5,
    )
    registry = ToolRegistry((), blobs=MemoryBlobs(), options=ToolOptions())
    async with registry.running(), servers.running():
        yield McpTools(servers, names=["lib"], taken=["look"], toolbox_of=registry.lent_toolbox, reads_only=reads_only)
