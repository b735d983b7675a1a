"""A tool of ours asks a server for an answer of its own; implements ``contract.Asks``."""

from typing import Any

import anyio
import msgspec

from torpor.errors import ToolFailed, ToolRefused, ToolTimedOut
from torpor.toolhost.contract import ToolContext
from torpor.toolhost.mcp.results import Answer, told
from torpor.toolhost.mcp.servers import McpServers
from torpor.toolhost.mcp.session import ServerError
from torpor.toolhost.mcp.tools import WAITING_SHARE


class McpAsks:
    """Of one process."""

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    def gate(self, server: str) -> str:
        return self._servers.gate(server)

    def deadline_s(self, server: str, tool: str) -> float:
        """See ``contract.Asks``."""
        known = self._servers.servers[server]
        return known.deadlines_s.get(tool) or known.deadline_s or self._servers.options.call_deadline_s

    async def ask(self, server: str, tool: str, arguments: dict[str, Any], context: ToolContext) -> Any:
        """See ``contract.Asks``."""
        links = self._servers.links([server], tenant=context.tenant, principal=context.principal)
        if not links:
            raise ToolRefused(f"there is no credential for the server {server}; nothing was asked")
        context.onset.wait()
        deadline_s = self.deadline_s(server, tool)
        until_s = anyio.current_time() + deadline_s
        connection = await self._servers.reached(links[0], wait_s=deadline_s * WAITING_SHARE)
        try:
            with anyio.fail_after(until_s - anyio.current_time()):
                answer = await connection.call(
                    tool,
                    arguments,
                    wait_s=deadline_s * WAITING_SHARE,
                    report=context.report,
                    onset=context.onset,
                )
            text = told(answer, tool=tool, size_bytes_max=self._servers.options.result_bytes_max)
        except TimeoutError:
            raise ToolTimedOut(tool, deadline_s=deadline_s) from None
        except (ToolFailed, ServerError):
            if connection.generation and tool not in connection.listing.titles:
                raise ToolFailed(f"the server {server} has no tool {tool!r}; its operator must look at it") from None
            raise
        return _value(answer, text)


def _value(answer: Answer, text: str) -> Any:
    """What is structured; else what a text says that is JSON, or a list of what several say; else the text."""
    value = answer.structured
    if value is None:
        texts = [str(block.get("text")) for block in answer.content if block.get("type") == "text"]
        try:
            value = [msgspec.json.decode(each) for each in texts] if len(texts) > 1 else msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return text
    return value["result"] if isinstance(value, dict) and value.keys() == {"result"} else value
