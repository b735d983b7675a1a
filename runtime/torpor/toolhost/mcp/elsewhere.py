"""The tools that one agent has from servers, as they are now for one principal; implements ``contract.Elsewhere``.

Equal tools are made into a toolbox once, so a turn costs a look-up. Where a name is one of the agent's own tools, that
one counts.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import anyio
import structlog

from torpor.flags.contract import EVERYTHING_ON, Decided
from torpor.records.ids import ConversationKey
from torpor.records.terms import Effect
from torpor.toolhost.contract import Lent, Toolbox
from torpor.toolhost.declare import Tool
from torpor.toolhost.mcp.listing import Listing
from torpor.toolhost.mcp.servers import Link, McpServers
from torpor.toolhost.mcp.tools import LentTool
from torpor.toolhost.process import NotStarted

_READY_MAX: Final = 128
"""Toolboxes that are kept; the one made first goes first."""
_log = structlog.get_logger()


class McpTools:
    """See the module docstring."""

    def __init__(
        self,
        servers: McpServers,
        *,
        names: Collection[str],
        taken: Collection[str],
        toolbox_of: Callable[[Iterable[Tool[..., Any]]], Toolbox],
        reads_only: bool = False,
    ) -> None:
        """Args: names: of servers.  taken: names of the agent's own tools.  reads_only: whether writes are left out."""
        self._servers = servers
        self._names = tuple(names)
        self._taken = frozenset(taken)
        self._toolbox_of = toolbox_of
        self._reads_only = reads_only
        self._ready: dict[tuple[tuple[Link, str], ...], Lent] = {}

    def is_known(self, key: ConversationKey, principal: str, *, decided: Decided = EVERYTHING_ON) -> bool:
        """See ``contract.Elsewhere``."""
        is_known = True
        for link in self._links(key, principal, decided=decided):
            if not self._servers.has_room(link):
                is_known = False
                continue
            try:
                connection = self._servers.connection(link)
            except NotStarted:
                continue
            if not connection.is_known:
                connection.want()
                is_known = False
        return is_known

    async def known(self, key: ConversationKey, principal: str, *, decided: Decided = EVERYTHING_ON) -> None:
        """See ``contract.Elsewhere``."""
        if self.is_known(key, principal, decided=decided):  # which has all of them started that are not
            return
        wait_s = self._servers.options.turn_wait_s
        with anyio.move_on_after(wait_s):
            for link in self._links(key, principal, decided=decided):
                try:
                    await (await self._servers.reached(link, wait_s=wait_s)).known()
                except NotStarted:
                    continue

    def lent(self, key: ConversationKey, principal: str) -> Lent | None:
        """See ``contract.Elsewhere``."""
        listings = self._servers.listings(self._links(key, principal))
        named = tuple((link, listing.digest) for link, listing in listings if listing.tools)
        if not named:
            return None
        lent = self._ready.get(named)
        if lent is None:
            if len(self._ready) >= _READY_MAX:
                self._ready.pop(next(iter(self._ready)))
            self._tell_writes(listings)
            tools = [
                LentTool(tool, link, servers=self._servers)
                for link, listing in listings
                for tool in listing.tools
                if self._is_lent(tool.name, tool.effect)
            ]
            digest = "-".join(digest for _, digest in named)
            lent = self._ready[named] = Lent(toolbox=self._toolbox_of(tools), digest=digest)
        return lent

    def _links(self, key: ConversationKey, principal: str, *, decided: Decided = EVERYTHING_ON) -> tuple[Link, ...]:
        names = self._names
        if decided.off:
            names = tuple(name for name in names if decided.is_on(self._servers.gate(name)))
        return self._servers.links(names, tenant=key.tenant, principal=principal)

    def _is_lent(self, name: str, effect: Effect) -> bool:
        if name in self._taken:
            _log.warning("mcp.name_taken", tool=name)
            return False
        return effect is Effect.READ or not self._reads_only

    def _tell_writes(self, listings: Iterable[tuple[Link, Listing]]) -> None:
        """Which tools are not lent to whoever may only read."""
        for link, listing in listings if self._reads_only else ():
            if writes := [tool.title for tool in listing.tools if tool.effect is not Effect.READ]:
                _log.info("mcp.writes_left_out", server=link.server, tools=writes)

    def __repr__(self) -> str:
        return f"<McpTools servers={list(self._names)} ready={len(self._ready)}>"
