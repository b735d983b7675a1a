"""Tools of a folder that run in processes of their own, as a server has them."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec

from tests.support.processes import workers_of
from tests.support.tools import DictBlobs, a_context
from torpor.toolhost.contract import ToolContext, ToolResult
from torpor.toolhost.load import load_tools
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.registry import ToolRegistry


@asynccontextmanager
async def house(folder: Path, **options: Any) -> AsyncIterator[ToolRegistry]:
    """The tools of ``folder``; afterwards no process is left, and no pipe to one."""
    before = pipes()
    loaded = load_tools(folder)
    assert loaded.problems == ()
    registry = ToolRegistry(loaded.tools, blobs=DictBlobs(), options=ToolOptions(**options))
    with anyio.fail_after(60):
        async with registry.running():
            yield registry
    assert workers_of(os.getpid()) == []
    with anyio.fail_after(60):  # an event loop closes its ends at its next round
        while pipes() - before:  # noqa: ASYNC110  nothing tells
            await anyio.sleep(0.001)


def pipes() -> set[str]:
    """Those that this process holds an end of, by their numbers, which are not used again while it does."""
    found = set[str]()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor through which these are listed
            found.add(str(each.readlink()))
    return {target for target in found if target.startswith("pipe:")}


async def call(
    registry: ToolRegistry, name: str, arguments: object = None, *, context: ToolContext | None = None
) -> ToolResult:
    raw = msgspec.Raw(msgspec.json.encode(arguments or {}))
    return await registry.toolbox().call(name, raw, context or a_context())
