"""Definitions become sub-agents that can work, and the tools by which others have them work.

Above: the home, which knows the files. What a result type needs, such as the evidence, is read only where one is owed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import structlog

from torpor.errors import ConfigError
from torpor.misfits import Words
from torpor.model.contract import Model
from torpor.records.terms import Effect
from torpor.subagents.catalogue import load_catalogue
from torpor.subagents.catalogue_tools import intervention_tools
from torpor.subagents.definition import SUBAGENTS_FOLDER, EvidenceServer, Subagent, SubagentDefinition
from torpor.subagents.evidence import EVIDENCE_FOLDER, EvidenceIndex, read_evidence
from torpor.subagents.plan import PLAN, Plans
from torpor.subagents.research import RESEARCH, Research, research_tools
from torpor.subagents.results import ResultType
from torpor.subagents.served_evidence import served_search
from torpor.subagents.text import TEXT, Text
from torpor.toolhost.contract import Asks, Elsewhere, Toolbox, ToolSpec
from torpor.toolhost.declare import Tool
from torpor.toolhost.mcp.names import server_of
from torpor.toolhost.mcp.options import MCP_FILE, Servers
from torpor.toolhost.registry import ToolRegistry
from torpor.toolhost.reserved import RESERVED_NAMES, SEARCH_EVIDENCE
from torpor.toolhost.subagent_tools import subagent_tool
from torpor.turn.agents import Agent
from torpor.turn.definition import EVERY, AgentDefinition

NO_SERVERS: Final[Servers] = {}
Lending = Callable[[Sequence[str], Toolbox], Elsewhere | None]
"""Where a sub-agent has tools from that names these servers, beside tools of its own; None for nowhere."""
_log = structlog.get_logger()


def _nowhere(names: Sequence[str], own: Toolbox) -> Elsewhere | None:
    return None


class Owed(NamedTuple):
    """A result type, and the tools that go with it."""

    result: ResultType
    tools: tuple[Tool[..., Any], ...] = ()
    read: Mapping[str, int] = {}
    """What was read of the home for it, and how many entries."""


def _research(home: Path, *, is_served: bool) -> Owed:
    """What is searched may be the home's own, by tools of its own."""
    evidence = () if is_served else read_evidence(home)
    tools = research_tools(EvidenceIndex(evidence))
    offered = tuple(tool for tool in tools if evidence or tool.name != SEARCH_EVIDENCE)
    return Owed(Research(), offered, {} if is_served else {"evidence": len(evidence)})


def _searching(owed: Owed, definition: SubagentDefinition, asks: Asks | None) -> Owed:
    """With the server that the definition names in the place of the evidence of the home."""
    if definition.evidence is None:
        return owed
    tools = (tool for tool in owed.tools if tool.name != SEARCH_EVIDENCE)
    return owed._replace(tools=(*tools, served_search(definition.evidence, asks, named=definition.name)))


def _plan(home: Path, *, is_served: bool) -> Owed:
    """Evidence is for a plan to name; whoever makes one selects nothing of it beforehand."""
    catalogue, evidence = load_catalogue(home), () if is_served else read_evidence(home)
    tools = research_tools(EvidenceIndex(evidence))
    search = [tool for tool in tools if evidence and tool.name == SEARCH_EVIDENCE]
    read = {"interventions": len(catalogue)} | ({} if is_served else {"evidence": len(evidence)})
    return Owed(Plans(catalogue), (*intervention_tools(catalogue), *search), read)


def _text(home: Path, *, is_served: bool) -> Owed:
    return Owed(Text())


class Owing(Protocol):
    """How a result type is made of the files of a home."""

    def __call__(self, home: Path, *, is_served: bool) -> Owed:
        """Args: is_served: a server searches the evidence, so that of the home is not read.

        Raises: ConfigError: a file cannot be used.
        """
        ...


RESULTS: Final[Mapping[str, Owing]] = {TEXT: _text, RESEARCH: _research, PLAN: _plan}
"""By name."""


def spawning_tools(definitions: Iterable[SubagentDefinition], allowed: Sequence[str]) -> tuple[Tool[..., Any], ...]:
    """Those of the sub-agents in an allow-list; ``*`` for all there are."""
    return tuple(
        subagent_tool(each.name, description=each.description, seconds=each.seconds_max)
        for each in definitions
        if EVERY in allowed or each.name in allowed
    )


def make_subagents(
    definitions: Sequence[SubagentDefinition],
    *,
    home: Path,
    tools: ToolRegistry,
    model_of: Callable[[SubagentDefinition], Model],
    model_table: Mapping[str, Any],
    wrap_toolbox: Callable[[Toolbox], Toolbox],
    index_budget_tokens: int,
    servers: Servers = NO_SERVERS,
    asks: Asks | None = None,
    lending: Lending = _nowhere,
) -> dict[str, Subagent]:
    """All of them by name.

    Args: model_table: what an agent's definition says of its model, for those that name none of their own.
        servers, asks, lending: the MCP servers of the home, how they are asked, and where tools of theirs come from.
    Raises: ConfigError: one may write, names what is not there, or has the name of a tool; or the files that its result
        type needs cannot be used.
    """
    for definition in definitions:
        for fault in faults_of(definition, definitions, tools=tools, servers=servers):
            raise fault
    kinds = sorted({(each.result, each.evidence is not None) for each in definitions})
    owed = {(result, is_served): RESULTS[result](home, is_served=is_served) for result, is_served in kinds}
    read = {name: entries for each in owed.values() for name, entries in each.read.items()}
    for name, entries in sorted(read.items()):
        _log.info(f"{name}.read", entries=entries)
    for definition in definitions:
        if (served := definition.evidence) is not None:
            _log.info("evidence.served", subagent=definition.name, server=served.server, tool=served.tool)
    return {
        definition.name: made_of(
            definition,
            definitions,
            owed=owed[definition.result, definition.evidence is not None],
            tools=tools,
            model=model_of(definition),
            model_table=model_table,
            wrap_toolbox=wrap_toolbox,
            index_budget_tokens=index_budget_tokens,
            asks=asks,
            lending=lending,
        )
        for definition in definitions
    }


def made_of(
    definition: SubagentDefinition,
    definitions: Sequence[SubagentDefinition],
    *,
    owed: Owed,
    tools: ToolRegistry,
    model: Model,
    model_table: Mapping[str, Any],
    wrap_toolbox: Callable[[Toolbox], Toolbox],
    index_budget_tokens: int,
    asks: Asks | None = None,
    lending: Lending = _nowhere,
) -> Subagent:
    """One, of a definition without faults.

    Args: definitions: of all, among them those that work for this one.
    Raises: ConfigError: there is nothing that it could search.
    """
    owed = _searching(owed, definition, asks)
    if definition.result == RESEARCH and not definition.tools and SEARCH_EVIDENCE not in {t.name for t in owed.tools}:
        expected = f"entries in *.jsonl files, which {definition.name} searches, or tools of the home in its file"
        raise ConfigError(EVIDENCE_FOLDER, key="folder", found=Words("without an entry"), expected=expected)
    more = (*owed.tools, *spawning_tools(definitions, definition.subagents))
    own = tools.toolbox(definition.tools, more=more, is_strict=True)
    agent = Agent(
        AgentDefinition(
            name=definition.name,
            system=f"{definition.system.strip()}\n\n{owed.result.instructions()}",
            model=definition.model_table(model_table),
            tools=definition.tools,
            mcp=definition.mcp,
            skills=definition.skills,
            max_tokens=definition.max_tokens,
        ),
        model=model,
        toolbox=wrap_toolbox(own),
        elsewhere=lending(definition.mcp, own) if definition.mcp else None,
        index_budget_tokens=index_budget_tokens,
    )
    return Subagent(definition=definition, agent=agent, result=owed.result)


def faults_of(
    definition: SubagentDefinition,
    definitions: Sequence[SubagentDefinition],
    *,
    tools: ToolRegistry,
    servers: Servers = NO_SERVERS,
) -> Iterator[ConfigError]:
    """What its type allows and the rest of the home does not. Args: definitions: of all."""
    where = f"{SUBAGENTS_FOLDER}/{definition.name}.toml"
    if definition.result not in RESULTS:
        yield ConfigError(where, key="result", found=definition.result, expected=f"one of {', '.join(RESULTS)}")
    if definition.name in RESERVED_NAMES or definition.name in tools.names():
        expected = "a name that no tool has, since it becomes one"
        yield ConfigError(where, key="name", found=definition.name, expected=expected)
    reading = [spec.name for name in tools.names() if (spec := _spec(tools, name)) and spec.effect is Effect.READ]
    for name in definition.tools:
        spec = _spec(tools, name)
        if spec is None and server_of(name) in servers:
            yield ConfigError(where, key="tools", found=name, expected="tools of the home; `mcp` names MCP servers")
        elif spec is None:
            expected = f"tools among {', '.join(reading)}" if reading else "none, since no tool of this home only reads"
            yield ConfigError(where, key="tools", found=name, expected=expected)
        elif spec.effect is not Effect.READ:
            expected = (
                'tools that only read, and say so (effect="read"): a sub-agent runs again after a crash, and nobody'
                " confirms what it does"
            )
            yield ConfigError(where, key="tools", found=name, expected=expected)
    if definition.evidence is not None:
        if definition.result not in {RESEARCH, PLAN}:
            expected = f"nothing, since a result {definition.result!r} searches no evidence"
            yield ConfigError(where, key="evidence", found=Words("a server"), expected=expected)
        yield from _unserved(definition.evidence, servers, where=where)
    for name in definition.mcp:
        if name != EVERY and (expected := _not_lent(name, servers)):
            yield ConfigError(where, key="mcp", found=name, expected=expected)
    known = {each.name for each in definitions}
    for name in definition.subagents:
        if name not in {EVERY, *known}:
            expected = f"sub-agents among {', '.join(sorted(known))}"
            yield ConfigError(where, key="subagents", found=name, expected=expected)


def _unserved(evidence: EvidenceServer, servers: Servers, *, where: str) -> Iterator[ConfigError]:
    server = servers.get(evidence.server)
    if server is None:
        yield ConfigError(where, key="evidence.server", found=evidence.server, expected=_one_of(servers))
    elif server.tools and evidence.tool not in server.tools:
        expected = f"one of {', '.join(server.tools)}, which `tools` of {evidence.server} in {MCP_FILE} allows"
        yield ConfigError(where, key="evidence.tool", found=evidence.tool, expected=expected)


def _not_lent(name: str, servers: Servers) -> str:
    """What is expected in the place of a server that can lend nothing; empty where it can."""
    server = servers.get(name)
    if server is None and server_of(name) in servers:
        return f"a server and no tool: {server_of(name)}, of which `tools` in {MCP_FILE} says which may be used"
    if server is None:
        return _one_of(servers)
    if not server.may_read:
        return (
            f"a server with tools that only read, for which `reads` or trust_read_only in {MCP_FILE} vouches: a"
            " sub-agent runs again after a crash, and nobody confirms what it does"
        )
    return ""


def _one_of(servers: Servers) -> str:
    named = f"MCP servers among {', '.join(sorted(servers))}"
    return named if servers else f"none, since {MCP_FILE} names no server"


def _spec(tools: ToolRegistry, name: str) -> ToolSpec | None:
    return tools.toolbox((name,)).spec(name)
