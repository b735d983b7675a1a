"""A tool of ours asks a server for an answer of its own; implements ``contract.Asks``."""

from typing import Any

import msgspec

from torpor.errors import ToolRefused
from torpor.toolhost.contract import ToolContext
from torpor.toolhost.mcp.results import Answer, told
from torpor.toolhost.mcp.servers import McpServers
from torpor.toolhost.mcp.tools import WAITING_SHARE


class McpAsks:
    """Of one process."""

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    def gate(self, server: str) -> str:
        return self._servers.servers[server].flag or f"mcp.{server}"

    def deadline_s(self, server: str, tool: str) -> float:
        """Of one call."""
        known = self._servers.servers[server]
        return known.deadlines_s.get(tool) or known.deadline_s or self._servers.options.call_deadline_s

    async def ask(self, server: str, tool: str, arguments: dict[str, Any], context: ToolContext) -> Any:
        """See ``contract.Asks``."""
        links = self._servers.links([server], tenant=context.tenant, principal=context.principal)
        if not links:
            raise ToolRefused(f"there is no credential for the server {server}; nothing was asked")
        connection = self._servers.connection(links[0])
        wait_s = self.deadline_s(server, tool) * WAITING_SHARE
        answer = await connection.call(tool, arguments, wait_s=wait_s, report=context.report)
        text = told(answer, tool=tool, size_bytes_max=self._servers.options.result_bytes_max)
        return _value(answer, text)


def _value(answer: Answer, text: str) -> Any:
    """What is structured; else what a text says that is JSON, else the text."""
    value = answer.structured
    if value is None:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return text
    return value["result"] if isinstance(value, dict) and value.keys() == {"result"} else value
