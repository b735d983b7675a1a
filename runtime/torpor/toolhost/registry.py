"""All tools of a process, and a toolbox of them for each agent.

Above: the composition root, which makes one registry from what the loader found and closes it. Below: toolboxes, which
share its threads and processes.
"""

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any

from torpor.errors import ConfigError
from torpor.store.contract import Blobs
from torpor.toolhost.calls import Calls
from torpor.toolhost.declare import Runs, Tool
from torpor.toolhost.engine_tools import engine_tools
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.places import Places, PlacesStatistics
from torpor.toolhost.toolbox import LocalToolbox


class ToolRegistry:
    """The home's tools and the engine's own."""

    def __init__(
        self, tools: Iterable[Tool[..., Any]], *, blobs: Blobs, options: ToolOptions, calls: Calls | None = None
    ) -> None:
        """Args: tools: of the home, under distinct names that are not the engine's; ``load_tools`` sees to that.
            calls: where the tools that run are noted, for the watchdog.

        Raises: ConfigError: a tool that runs in a process was not loaded from a file.
        """
        self._tools = {tool.name: tool for tool in tools}
        for tool in self._tools.values():
            _require_origin(tool)
        self._engine_tools = engine_tools(blobs, options=options)
        self._blobs = blobs
        self._options = options
        self._places = Places(options, calls=calls)

    def toolbox(
        self, allowed: Collection[str] = (), *, more: Iterable[Tool[..., Any]] = (), is_strict: bool = False
    ) -> LocalToolbox:
        """The tools of an agent with this allow-list, or with all of them for an empty one; the engine's are always in.

        Names that no tool has are passed over: a module that is broken today must not take the agent with it.
        Args: more: beside them, such as those that stand for sub-agents.  is_strict: an empty list allows none.
        """
        chosen = (tool for name, tool in self._tools.items() if name in allowed or not (allowed or is_strict))
        tools = (*chosen, *more, *self._engine_tools)
        return LocalToolbox(tools, blobs=self._blobs, places=self._places, options=self._options, homes=self._tools)

    def lent_toolbox(self, tools: Iterable[Tool[..., Any]]) -> LocalToolbox:
        """Tools from elsewhere alone; each runs in a task of its own, since nobody knows what it heeds."""
        tools = tuple(tools)
        names = [tool.name for tool in tools]
        return LocalToolbox(tools, blobs=self._blobs, places=self._places, options=self._options, homes=names)

    def missing(self, allowed: Collection[str]) -> tuple[str, ...]:
        """Names of an allow-list that no tool has, sorted: for the operator to hear of."""
        known = {*self._tools, *(tool.name for tool in self._engine_tools)}
        return tuple(sorted(set(allowed) - known))

    def names(self) -> tuple[str, ...]:
        """The home's tools, sorted."""
        return tuple(sorted(self._tools))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look after worker processes until the block ends; then they end, and threads that are idle."""
        async with self._places.running():
            yield

    def close(self) -> None:
        """Let idle threads end; calls under way go on to their end. For those who do not use ``running``."""
        self._places.close()

    def statistics(self) -> PlacesStatistics:
        return self._places.statistics()

    def __repr__(self) -> str:
        return f"<ToolRegistry tools={len(self._tools)} {self._places!r}>"


def _require_origin(tool: Tool[..., Any]) -> None:
    if tool.runs is Runs.PROCESS and tool.origin is None:
        expected = "a tool that was loaded from a file, which its process loads as well"
        raise ConfigError(f"tool {tool.name!r}", key="runs", found=tool.runs.value, expected=expected)
