"""A server's tool as a tool of ours, so that a call of it is contained, cleaned, cut and told like any other."""

from collections.abc import Callable
from typing import Any, Final

import anyio
import msgspec

from torpor.errors import ToolInputInvalid
from torpor.toolhost.contract import ToolContext
from torpor.toolhost.declare import Runs, Tool
from torpor.toolhost.mcp.listing import ServedTool
from torpor.toolhost.mcp.results import told
from torpor.toolhost.mcp.servers import Link, McpServers
from torpor.toolhost.signature import Parameters, Routine

WAITING_SHARE: Final = 0.8
"""Of its deadline, that a call waits for its server at most; so what was not sent does not count as unknown."""


class _NoFields(msgspec.Struct, frozen=True):
    """Stands for parameters that a server checks itself."""


class _OpenParameters(Parameters):
    """An object of any kind: its server knows its schema best, and says what does not fit."""

    def decode(self, arguments: msgspec.Raw) -> dict[str, Any]:
        """As one argument of that name. Raises: ToolInputInvalid: it is no object."""
        try:
            return {"arguments": msgspec.json.decode(arguments, type=dict[str, Any])}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise ToolInputInvalid(f"arguments of {self._tool!r} are no object, nothing was sent: {exc}") from exc


class LentTool(Tool[..., Any]):
    """Implements ``Tool`` without a function of the home."""

    def __init__(self, tool: ServedTool, link: Link, *, servers: McpServers) -> None:
        self.function = _caller(tool, link, servers=servers)
        self.name = tool.name
        self.effect = tool.effect
        self.deadline_s = tool.deadline_s
        self.accepts_key = False
        self.result_cap_bytes = servers.options.result_cap_bytes
        self.description = tool.description
        self.parameters = _OpenParameters(tool.name, struct=_NoFields, schema=tool.input_schema)
        self.routine = Routine(self.function, names=("arguments",), context_name="context")
        self.runs = Runs.LOOP
        self.gate = servers.gate(link.server)
        self.server = link.server
        self.origin = None
        self.probe_routine = None


def _caller(tool: ServedTool, link: Link, *, servers: McpServers) -> Callable[..., Any]:
    async def call(context: ToolContext, arguments: dict[str, Any]) -> str:
        context.onset.wait()
        until_s = anyio.current_time() + tool.deadline_s * WAITING_SHARE
        connection = await servers.reached(link, wait_s=tool.deadline_s * WAITING_SHARE)
        wait_s = max(0.0, until_s - anyio.current_time())
        answer = await connection.call(tool.title, arguments, wait_s=wait_s, report=context.report, onset=context.onset)
        return told(answer, tool=tool.name, size_bytes_max=servers.options.result_bytes_max)

    return call
