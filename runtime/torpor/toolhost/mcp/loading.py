"""The SDK is found when a server is configured, and imported when one is first needed, beside the event loop."""

import importlib
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio.to_thread

from torpor.errors import ConfigError
from torpor.misfits import Words
from torpor.toolhost.mcp.options import MCP_FILE
from torpor.toolhost.mcp.session import Open, Opening, Session

_SDK: Final = "torpor.toolhost.mcp.sdk"


def require_sdk() -> None:
    """Raises: ConfigError: it is not installed."""
    if importlib.util.find_spec("mcp") is None:
        found, expected = Words("without its library"), "the extra 'mcp', in a checkout: make .venv/.mcp"
        raise ConfigError(MCP_FILE, key="mcp", found=found, expected=expected)


@asynccontextmanager
async def open_session(opening: Opening) -> AsyncIterator[Session]:
    """See ``session.Open``. Takes seconds the first time."""
    module = await anyio.to_thread.run_sync(importlib.import_module, _SDK)
    open_: Open = module.open_session
    async with open_(opening) as session:
        yield session
