"""All tools of a process, and a toolbox of them for each agent.

Above: the composition root, which makes one registry from what the loader found and closes it. Below: toolboxes, which
share its threads.
"""

from collections.abc import Collection, Iterable
from typing import Any

from torpor.store.contract import Blobs
from torpor.toolhost.declare import Tool
from torpor.toolhost.engine_tools import engine_tools
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.toolbox import LocalToolbox
from torpor.toolhost.workers import Workers


class ToolRegistry:
    """The home's tools and the engine's own."""

    def __init__(self, tools: Iterable[Tool[..., Any]], *, blobs: Blobs, options: ToolOptions) -> None:
        """Args: tools: of the home, under distinct names that are not the engine's; ``load_tools`` sees to that."""
        self._tools = {tool.name: tool for tool in tools}
        self._engine_tools = engine_tools(blobs, options=options)
        self._blobs = blobs
        self._options = options
        self._workers = Workers(options.worker_threads)

    def toolbox(self, allowed: Collection[str] = ()) -> LocalToolbox:
        """The tools of an agent with this allow-list, or with all of them for an empty one; the engine's are always in.

        Names that no tool has are passed over: a module that is broken today must not take the agent with it.
        """
        chosen = (tool for name, tool in self._tools.items() if not allowed or name in allowed)
        tools = (*chosen, *self._engine_tools)
        return LocalToolbox(tools, blobs=self._blobs, workers=self._workers, options=self._options)

    def missing(self, allowed: Collection[str]) -> tuple[str, ...]:
        """Names of an allow-list that no tool has, sorted: for the operator to hear of."""
        known = {*self._tools, *(tool.name for tool in self._engine_tools)}
        return tuple(sorted(set(allowed) - known))

    def names(self) -> tuple[str, ...]:
        """The home's tools, sorted."""
        return tuple(sorted(self._tools))

    def close(self) -> None:
        """Let idle threads end; calls under way go on to their end."""
        self._workers.close()

    def __repr__(self) -> str:
        return f"<ToolRegistry tools={len(self._tools)} {self._workers!r}>"
