"""Evidence that an MCP server searches, in the place of the evidence of the home.

The tool is the same to the sub-agent's model. What the server finds goes into the collector, each entry by itself: one
that is no entry is left out and counted, and the others are there. A search that fails is never one that found nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
import structlog

from torpor.errors import ToolError, ToolFailed, ToolRefused, ToolTimedOut
from torpor.subagents.definition import EvidenceServer
from torpor.subagents.findings import SEARCH_FAILED
from torpor.subagents.research import collector_of, glance
from torpor.toolhost.contract import Asks, Finding, ToolContext
from torpor.toolhost.declare import Tool, tool
from torpor.toolhost.mcp.session import ConnectionLost
from torpor.toolhost.process import NotStarted
from torpor.toolhost.reserved import SEARCH_EVIDENCE

ENTRIES_MAX: Final = 10
_GRACE_S: Final = 5.0
"""Beyond the server's own deadline, within which what came of it is told."""
_UNUSABLE: Final = "without an id, or with one that nobody can write"
_log = structlog.get_logger()
_LISTS: Final = ("entries", "results", "items", "sources")
"""Fields of an answer that may hold the list."""
_OTHER_NAMES: Final = {"locator": ("url", "uri", "path"), "excerpt": ("text", "snippet", "abstract", "summary")}


class _Unusable(ToolFailed):
    """What a server answered has no entries that can be used."""


def served_search(where: EvidenceServer, asks: Asks | None, *, named: str) -> Tool[..., Any]:
    """``search_evidence``, which needs a collector in its context.

    Args: asks: None where nothing runs.  named: the sub-agent that searches, for the log.
    """

    def failed(exc: ToolError, context: ToolContext) -> ToolError:
        _log.warning(
            "evidence.search_failed",
            conversation=context.key.path,
            subagent=named,
            server=where.server,
            tool=where.tool,
            why=_why_of(exc),
        )
        # A refusal stays one.
        kind = ToolRefused if isinstance(exc, ToolRefused) else ToolFailed
        return kind(f"{str(exc).rstrip('.')}{SEARCH_FAILED}")

    @tool(name=SEARCH_EVIDENCE, effect="read")
    async def search_evidence(
        context: ToolContext, query: str, limit: Annotated[int, msgspec.Meta(ge=1, le=ENTRIES_MAX)] = 5
    ) -> str:
        """Find entries of the evidence that fit a query, the best first.

        Args:
            query: A few words of what to look for.
            limit: How many to show at most.
        """
        if asks is None:
            raise ToolRefused("no server can be asked here")
        collector = collector_of(context)
        try:
            answer = await asks.ask(where.server, where.tool, {"query": query, "limit": limit}, context)
            entries, left_out = entries_in(answer, limit=limit)
        except ToolError as exc:
            raise failed(exc, context) from exc
        shown = []
        for entry in entries:
            try:
                await collector.found(entry)
            except ToolFailed:
                left_out += 1
            else:
                shown.append(glance(entry))
        if left_out and not shown:
            why = f"none of the {left_out} entries that {where.server} found can be used: {_UNUSABLE}"
            raise failed(_Unusable(why), context)
        if left_out:
            shown.append(f"({left_out} more cannot be used: {_UNUSABLE}.)")
        return "\n".join(shown) or "Nothing was found; try other words."

    search_evidence.gate = f"mcp.{where.server}"
    if asks is not None:
        search_evidence.gate = asks.gate(where.server)
        search_evidence.deadline_s = asks.deadline_s(where.server, where.tool) + _GRACE_S
    return search_evidence


def _why_of(exc: ToolError) -> str:
    """For the log, which must not hold what a server says: that may be what people said to it."""
    is_ours = isinstance(exc, _Unusable | NotStarted | ConnectionLost | ToolTimedOut | ToolRefused)
    return str(exc) if is_ours else "the server answered with an error of its own"


def entries_in(answer: Any, *, limit: int) -> tuple[tuple[Finding, ...], int]:
    """The entries of an answer, at most ``limit``, and how many are none. One entry alone is a list of it.

    Raises: ToolFailed: it is no list of entries.
    """
    if isinstance(answer, Mapping):
        alone = [answer] if _text(answer, ("id",)) else None
        answer = next((answer[name] for name in _LISTS if isinstance(answer.get(name), list)), alone)
    if not isinstance(answer, list):
        raise _Unusable("the server's answer is no list of entries; whoever looks after it must look at it")
    found = [_finding(entry) for entry in answer[:limit]]
    entries = tuple(entry for entry in found if entry is not None)
    return entries, len(found) - len(entries)


def _finding(entry: Any) -> Finding | None:
    if not isinstance(entry, Mapping) or not (id_ := _text(entry, ("id",))):
        return None
    year = entry.get("year", 0)
    return Finding(
        id=id_,
        title=_text(entry, ("title", "name")) or id_,
        locator=_text(entry, ("locator", *_OTHER_NAMES["locator"])) or id_,
        excerpt=_text(entry, ("excerpt", *_OTHER_NAMES["excerpt"])),
        year=year if isinstance(year, int) else 0,
        kind=_text(entry, ("kind", "type")),
        strength=_text(entry, ("strength",)),
    )


def _text(entry: Mapping[str, Any], names: Iterable[str]) -> str:
    return next((value for name in names if isinstance(value := entry.get(name), str) and value), "")
