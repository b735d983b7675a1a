"""``torpor config check``: reads a home as a start would and tells all that is wrong in it, starting nothing."""

import difflib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import msgspec

from torpor.cli.costs import agent_cost, catalogue_of, engine_tool_costs, skill_costs, tool_costs
from torpor.cli.folders import data_folder, data_option, home_option
from torpor.cli.gates import Found, flags_in, policies_in
from torpor.cli.output import json_option, print_json, print_table
from torpor.cli.subagent_check import SubagentCheck
from torpor.clock import RandomIds, SystemClock
from torpor.conversation.compaction import tight_limits
from torpor.errors import ConfigError
from torpor.flags.options import FlagOptions
from torpor.gateway.door import door_problems
from torpor.gateway.key_loaders import secret_readable_by_others
from torpor.home import missing_in
from torpor.local_files import DATA_FOLDER, data_folder_problem
from torpor.model.registry import ModelRegistry
from torpor.model.rehearsal import REHEARSALS_FOLDER, read_rehearsal
from torpor.operations.tracing import tracing_problems
from torpor.policies.options import PolicyOptions
from torpor.policies.source import read_policies
from torpor.records.context import DEFAULT_LABELS
from torpor.settings import AGENTS_FOLDER, Settings, SettingsInvalid, read_settings
from torpor.skillbook.load import Problem
from torpor.store.blobs import LocalBlobs
from torpor.store.open_blobs import blob_problems, open_blobs
from torpor.subagents.definition import SUBAGENTS_FOLDER, SubagentDefinition
from torpor.subagents.making import spawning_tools
from torpor.toolhost.engine_tools import ENGINE_TOOL_NAMES
from torpor.toolhost.load import LoadedTools, load_tools
from torpor.toolhost.mcp.loading import require_sdk
from torpor.toolhost.mcp.names import server_of
from torpor.toolhost.mcp.options import MCP_FILE
from torpor.toolhost.mcp.values import Values
from torpor.toolhost.registry import ToolRegistry
from torpor.toolhost.reserved import RESERVED_NAMES
from torpor.turn.definition import EVERY, AgentDefinition
from torpor.variables import ENVIRONMENT, SETTINGS_FILE, as_it_was_set


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a home, or one thing that is wrong in it."""

    part: str
    """``settings``, ``agent``, ``subagent``, ``rehearsal``, ``skill``, ``tool``, ``mcp``, ``flag``, ``policy``
    or ``data``."""
    name: str
    ok: bool
    detail: str
    doubtful: bool = False
    """Perhaps not as it was meant; no fault."""

    @property
    def state(self) -> str:
        return "WRONG" if not self.ok else "doubtful" if self.doubtful else "ok"


@click.group(short_help="Check the configuration of a home.")
def command() -> None:
    """Check the configuration of a home."""


@command.command(short_help="Read a home as a start would, and tell what is wrong.")
@home_option
@data_option
@json_option
def check(home: Path, *, data: Path | None, as_json: bool) -> int:
    """Read settings, agents, sub-agents, scripts, tools, skills, flags and policies; exit with 1 if anything is wrong.

    Whether a server could write its data folder is looked at as well, without writing in it.

    Each agent, sub-agent, tool and skill is told with the tokens it costs in a request; an agent over its cap is wrong.
    What is doubtful, such as a flag that gates nothing, is told and is no fault.
    """
    findings = list(findings_of(home, os.environ, data=data))
    if as_json:
        for finding in findings:
            print_json(finding)
    else:
        rows = [(found.part, found.name, found.state, found.detail) for found in findings]
        print_table(("PART", "NAME", "STATE", "DETAIL"), rows)
    return 0 if all(finding.ok for finding in findings) else 1


def findings_of(home: Path, environ: Mapping[str, str], *, data: Path | None = None) -> Iterator[Finding]:
    """Everything in ``home``, what is wrong in its place. Args: data: the data folder, instead of the home's own."""
    loaded = load_tools(home / "tools")
    settings, costs, idle = None, dict[str, int](), frozenset[str]()
    try:
        settings = read_settings(home, environ)
    except SettingsInvalid as exc:
        for problem in exc.problems:
            yield Finding(part=_part_of(problem.where), name=problem.where, ok=False, detail=_without_place(problem))
    else:
        yield from _settings(settings, home, environ=environ)
        if why := secret_readable_by_others(settings.auth, home=home.resolve()):
            yield Finding(
                part="settings", name=SETTINGS_FILE, ok=True, detail=f"auth.secret_file: {why}", doubtful=True
            )
        parts = _Parts(home, settings=settings, loaded=loaded, environ=environ)
        for agent in settings.agents:
            yield from _agent(agent, parts=parts, home=home, loaded=loaded)
        yield from map(_finding, parts.subagents.found())
        yield from _servers(settings, environ)
        costs = tool_costs({spec.name: spec for spec in parts.tools.toolbox().specs()})
        idle = _idle(settings, loaded)
        for key, detail in skill_costs(parts.catalogue):
            yield Finding(part="skill", name=key, ok=True, detail=detail)
        yield from map(_skill_problem, parts.catalogue.problems)
    for tool in loaded.tools:
        cost = f", about {costs[tool.name]:,} tokens" if tool.name in costs else ""
        doubt = "no agent may call it; " if tool.name in idle else ""
        detail = f"{doubt}{tool.effect.value}{cost}"
        yield Finding(part="tool", name=tool.name, ok=True, detail=detail, doubtful=bool(doubt))
    for name, detail in engine_tool_costs(costs) if costs else ():
        yield Finding(part="tool", name=name, ok=True, detail=detail)
    for trouble in loaded.problems:
        place = f"{trouble.file}:{trouble.line}" if trouble.line else trouble.file
        yield Finding(part="tool", name=place, ok=False, detail=trouble.message)
    yield from _gates(home, loaded, settings)
    if home.is_dir() and (unusable := data_folder_problem(data_folder(home, data).resolve())):
        yield Finding(part="data", name=unusable.where, ok=False, detail=_without_place(unusable))


def _idle(settings: Settings, loaded: LoadedTools) -> frozenset[str]:
    """Tools of the home that nobody's list has; none of them where an agent may call all, or there is no agent."""
    agents = settings.agents
    if not agents or any(not agent.tools for agent in agents):
        return frozenset()
    lists = [*(agent.tools for agent in agents), *(each.tools for each in settings.subagent_definitions)]
    return frozenset(tool.name for tool in loaded.tools).difference(*lists)


def _gates(home: Path, loaded: LoadedTools, settings: Settings | None) -> Iterator[Finding]:
    """Flags and policies; by the default options where the settings are wrong."""
    tools = {tool.name for tool in loaded.tools} | RESERVED_NAMES
    agents = {file.stem for file in (home / AGENTS_FOLDER).glob("*.toml")}
    flags, policies = (settings.flags, settings.policies) if settings else (FlagOptions(), PolicyOptions())
    yield from map(_finding, flags_in(home, tools=tools, agents=agents, options=flags))
    yield from map(_finding, policies_in(home, policies))


def _finding(found: Found) -> Finding:
    return Finding(
        part=found.part, name=found.name, ok=not found.is_wrong, detail=found.detail, doubtful=found.is_doubtful
    )


def _part_of(where: str) -> str:
    folders = {AGENTS_FOLDER: "agent", SUBAGENTS_FOLDER: "subagent", MCP_FILE: "mcp"}
    return next((part for folder, part in folders.items() if where.startswith(folder)), "settings")


def _servers(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What can be told of MCP servers without starting one; `torpor mcp test` does."""
    for name, server in settings.mcp_servers.items():
        users = {each.name for each in settings.agents if EVERY in each.mcp or name in each.mcp}
        users |= {each.name for each in settings.subagent_definitions if _asks(each, name)}
        doubt = f"{'' if users else 'no agent has its tools; '}{_no_program(settings.home, server.command)}"
        whose = "one connection for each user" if server.is_users_own else "shared"
        detail = f"{doubt}{server.told_as}, {whose}"
        try:
            require_sdk()
        except ConfigError as exc:
            yield Finding(part="mcp", name=name, ok=False, detail=_without_place(exc))
        else:
            yield Finding(part="mcp", name=name, ok=True, detail=detail, doubtful=bool(doubt))
        for why in Values(settings.home.resolve(), environ).readable_by_others(server):
            yield Finding(part="mcp", name=name, ok=True, detail=why, doubtful=True)


def _asks(subagent: SubagentDefinition, server: str) -> bool:
    is_evidence = subagent.evidence is not None and subagent.evidence.server == server
    return is_evidence or EVERY in subagent.mcp or server in subagent.mcp


def _no_program(home: Path, command: str) -> str:
    """A doubt about a program that runs in the home; a running server may have another PATH."""
    is_there = shutil.which(home / command if "/" in command else command) if command else "no program"
    return "" if is_there else f"there is no program {command!r}; "


def _settings(settings: Settings, home: Path, *, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What is wrong with options that can all be read, such as variables that they name and nobody has set."""
    problems = list(door_problems(settings.gateway, settings.auth, home=home.resolve(), environ=environ))
    problems += tracing_problems(settings.tracing)
    lacking = list(blob_problems(settings.blobs, environ))
    problems += lacking
    if not lacking:
        try:
            open_blobs(settings.blobs, folder=settings.home / DATA_FOLDER / "blobs", environ=environ)  # asks nobody
        except ConfigError as exc:
            problems.append(exc)
    problems = [as_it_was_set(problem, environ) for problem in problems]
    for problem in problems:
        yield Finding(part="settings", name=problem.where, ok=False, detail=_without_place(problem))
    if not any(problem.where in {SETTINGS_FILE, ENVIRONMENT} for problem in problems):
        detail = "every option" if (home / SETTINGS_FILE).is_file() else "not there, every option has its default"
        yield Finding(part="settings", name=SETTINGS_FILE, ok=True, detail=detail)


class _Parts:
    """What agents are made of, without anything that runs."""

    def __init__(self, home: Path, *, settings: Settings, loaded: LoadedTools, environ: Mapping[str, str]) -> None:
        self.settings = settings
        self.models = ModelRegistry(
            home=settings.home, environ=environ, clock=SystemClock(), ids=RandomIds(), circuit=settings.circuit
        )
        self.tools = ToolRegistry(loaded.tools, blobs=LocalBlobs(home / DATA_FOLDER), options=settings.tools)
        self.catalogue = catalogue_of(home, settings)
        policies, _ = read_policies(home, last_good={}, file_max_bytes=settings.policies.file_max_bytes)
        self.policies = {policy.id for policy in policies.values()}
        self.subagents = SubagentCheck(
            home, settings=settings, models=self.models, tools=self.tools, catalogue=self.catalogue
        )


def _skill_problem(problem: Problem) -> Finding:
    """A skill that cannot be loaded is wrong, one that is not as its author should have written it is doubtful."""
    is_error = problem.diagnostic.severity == "error"
    name = problem.place
    return Finding(part="skill", name=name, ok=not is_error, detail=problem.diagnostic.message, doubtful=not is_error)


def _agent(agent: AgentDefinition, *, parts: _Parts, home: Path, loaded: LoadedTools) -> Iterator[Finding]:
    """The agent, and the rehearsal it plays if it plays one."""
    known = {tool.name for tool in loaded.tools}
    name = f"{AGENTS_FOLDER}/{agent.name}.toml"
    allowed = set(agent.tools) & known if agent.tools else known
    workers = {tool.name for tool in spawning_tools(parts.settings.subagent_definitions, agent.subagents)}
    doubts = list(_doubts(agent, parts))
    try:
        model = parts.models.model(agent.model, where=name)
        rehearsal = agent.model.get("rehearsal")
        servers = {each for each in parts.settings.mcp_servers if EVERY in agent.mcp or each in agent.mcp}
        played = (
            _rehearsal(str(rehearsal), home=home, allowed=allowed | workers, servers=servers) if rehearsal else None
        )
    except ConfigError as exc:
        yield Finding(part="agent", name=exc.where, ok=False, detail=_without_place(exc))
        return
    default = ", default" if agent.default else ""
    cost = agent_cost(agent, model=model, tools=parts.tools, catalogue=parts.catalogue, settings=parts.settings)
    some = f", {len(workers)} sub-agent{'s' * (len(workers) > 1)}" if workers else ""
    detail = f"{agent.model['kind']} model, {len(allowed)} of {len(known)} tools{some}, {cost.detail}{default}"
    if cost.is_wrong:
        yield Finding(part="agent", name=name, ok=False, detail=cost.detail)
    else:
        yield Finding(part="agent", name=name, ok=True, detail="; ".join([*doubts, detail]), doubtful=bool(doubts))
    if played is not None:
        yield played


def _doubts(agent: AgentDefinition, parts: "_Parts") -> Iterator[str]:
    """What the agent's lists name and the home has not: passed over at a start, with a warning. And what its profile
    limits beyond use."""
    yield from tight_limits(parts.settings.profiles[agent.profile], parts.settings.compaction)
    subagents = {each.name for each in parts.settings.subagent_definitions}
    missing = missing_in(
        agent,
        tools=parts.tools,
        skills=parts.catalogue,
        policies=parts.policies,
        subagents=subagents,
        servers=parts.settings.mcp_servers.keys(),
    )
    for kind, names in missing.items():
        yield f"{kind} names {', '.join(names)}, which this home has not"
    if misplaced := sorted(subagents & set(missing.get("tools", ()))):
        yield f"{', '.join(misplaced)} in tools: sub-agents stand in subagents"
    for label in sorted(set(agent.labels) - set(DEFAULT_LABELS)):
        if near := difflib.get_close_matches(label, DEFAULT_LABELS, n=1, cutoff=0.8):
            yield f"labels names {label!r}, perhaps {near[0]!r}"


def _rehearsal(rehearsal: str, *, home: Path, allowed: set[str], servers: set[str]) -> Finding:
    """Args: servers: whose tools the agent has, which are known once they run."""
    file = f"{REHEARSALS_FOLDER}/{rehearsal}.toml"
    called = read_rehearsal(home / file).tool_names()
    own = {name for name in called if server_of(name) not in servers}
    if missing := sorted(own - allowed - ENGINE_TOOL_NAMES):
        detail = f"calls {', '.join(missing)}, which its agent has not"
        return Finding(part="rehearsal", name=file, ok=False, detail=detail)
    return Finding(part="rehearsal", name=file, ok=True, detail=f"calls {', '.join(sorted(called)) or 'no tool'}")


def _without_place(problem: ConfigError) -> str:
    return str(problem).removeprefix(f"{problem.where}: ")
