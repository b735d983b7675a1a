"""Tools of a folder that run in processes of their own, as a server has them."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
    before = descriptors()
    loaded = load_tools(folder)
    assert loaded.problems == ()
    registry = ToolRegistry(loaded.tools, blobs=DictBlobs(), options=ToolOptions(**options))
    with anyio.fail_after(60):
        async with registry.running():
            yield registry
    assert workers_of(os.getpid()) == []
    assert descriptors() == before


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # Path.iterdir holds one of its own


async def call(
    registry: ToolRegistry, name: str, arguments: object = None, *, context: ToolContext | None = None
) -> ToolResult:
    raw = msgspec.Raw(msgspec.json.encode(arguments or {}))
    return await registry.toolbox().call(name, raw, context or a_context())
