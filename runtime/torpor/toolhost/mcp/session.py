"""One connection to a server, as its owner and its callers see it; no SDK is seen from here.

Above: ``connection``, which owns one at a time. Below: ``sdk``, which is imported only where a server is configured.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from torpor.errors import ToolError
from torpor.toolhost.mcp.options import McpServer
from torpor.toolhost.mcp.results import Answer
from torpor.toolhost.process import NotStarted


class ConnectionLost(ToolError):
    """The connection ended, or what came was no answer, after the call had been sent."""

    code = "mcp_connection_lost"


class NotSent(NotStarted):
    """There was no connection for the call, so nothing of it was sent: it may be made over the next one."""

    code = "mcp_not_sent"

    def __init__(self, why: str) -> None:
        super().__init__(f"its server cannot be reached ({why}); nothing was done, try again later")
        self.why = why


class ServerError(ToolError):
    """The server answered a request with an error of the protocol. ``number`` is its code."""

    code = "mcp_server_error"

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.number = number


class Unreachable(Exception):
    """A connection could not be made or kept; ``why`` names the kind of the fault and nothing that is secret."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Session(Protocol):
    """A connection that is up."""

    async def tools(self) -> tuple[object, ...]:
        """What the server says of its tools, as JSON has it. Raises: ToolError."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], *, report: Callable[[str], None]) -> Answer:
        """Cancellation: the server is told, within a bound. Raises: ConnectionLost. NotSent. ServerError."""
        ...

    async def heed_changes(self) -> None:
        """Hear of changes of the list until the connection ends; returns at once where the server tells of none."""
        ...


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection is made of."""

    server: McpServer
    cwd: str
    """The home."""
    env: Mapping[str, str]
    headers: Mapping[str, str]
    changed: Callable[[], None]
    """To be called when the list of tools is another one."""
    ended: Callable[[str], None]
    """To be called with the reason when nothing more will come."""
    stale: Callable[[str], None]
    """To be called with the reason when another connection is to take its place, once its calls are over."""
    printed: Callable[[str], None]
    """To be called before with what a program wrote last, where it ended by itself; no secret is in it."""
    message_bytes_max: int
    """Of anything that comes; more of it ends the connection."""
    pages_max: int
    """Of a list of tools."""
    shows_errors: bool = False
    """Whether what a program writes to standard error is shown; then it is not heard."""

    def __repr__(self) -> str:
        return f"<Opening {self.server.told_as}>"


Open = Callable[[Opening], AbstractAsyncContextManager[Session]]
"""To be entered and left in one task. Raises: Unreachable, on the way in; on the way out whatever ended it."""
