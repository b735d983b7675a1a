"""A real MCP server that misbehaves on request; run as a process, over stdio or as streamable HTTP.

    python tests/support/mcp_server.py LEDGER [PORT] [--legacy]

Every call, and how it ended, is a line of the file LEDGER, so that a test can tell what the server did.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ImageContent, TextContent, ToolAnnotations

LEDGER = Path(sys.argv[1])
server = MCPServer("misbehaving")


def note(what: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{os.getpid()} {what}\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def look(words: str) -> str:
    """Say the words again."""
    return f"seen {words}"


@server.tool()
async def write_down(words: str) -> str:
    """Write the words into the ledger."""
    note(f"wrote {words}")
    return "written"


@server.tool()
async def wait(words: str, seconds: float = 60.0) -> str:
    """Wait for some seconds."""
    note(f"began {words}")
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        note(f"cancelled {words}")
        raise
    note(f"ended {words}")
    return "waited"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def progress(ctx: Context, steps: int = 3) -> str:
    """Tell of steps."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
    return "done"


@server.tool()
async def die(words: str = "") -> str:
    """End the process at once."""
    note(f"dies {words}")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
async def block(seconds: float = 60.0) -> str:
    """Hear nothing for some seconds."""
    note("blocks")
    time.sleep(seconds)  # noqa: ASYNC251 - so that nothing else is heard
    return "heard nothing"


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ValueError("the reason")


@server.tool()
async def flood(size: int = 1_000_000) -> str:
    """Answer with a lot."""
    return "x" * size


@server.tool()
async def picture() -> list[Any]:
    """Answer with a picture."""
    return [
        TextContent(type="text", text="see"),
        ImageContent(type="image", mime_type="image/png", data="QUJD"),
    ]


@server.tool()
async def add_tool(name: str, ctx: Context) -> str:
    """Have one more tool."""

    async def extra(words: str = "") -> str:
        return f"{name} says {words}"

    server.add_tool(extra, name=name, description=f"Extra {name}.")
    await tell(ctx)
    return "added"


@server.tool()
async def drop_tool(name: str, ctx: Context) -> str:
    """Have one tool less."""
    server.remove_tool(name)
    await tell(ctx)
    return "dropped"


async def tell(ctx: Context) -> None:
    if "--legacy" in sys.argv:
        await ctx.session.send_tool_list_changed()
    else:
        await ctx.notify_tools_changed()


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def whoami() -> str:
    """Say whose credential this process has."""
    return os.environ.get("CREDENTIAL", "nobody")


def main() -> None:
    note("starts")
    if "--stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    numbers = [argument for argument in sys.argv[2:] if argument.isdigit()]
    if numbers:
        server.run("streamable-http", host="127.0.0.1", port=int(numbers[0]))
    else:
        server.run("stdio")
    if "--stubborn" in sys.argv:
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main()
