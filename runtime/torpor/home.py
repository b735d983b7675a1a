"""A home as the engine uses it: its tools, skills, flags, policies and agents, read and checked.

Above: the composition root, which runs them, and the command line, which tells what they are and cost. Nothing here
runs yet: tools have no callers, files are not watched, no model is asked.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec
import structlog

from torpor.clock import Clock, IdSource, chance
from torpor.flags.contract import EVERYTHING_ON
from torpor.flags.face import Flags
from torpor.model.contract import Model
from torpor.model.registry import ModelRegistry
from torpor.model.windows import window_of
from torpor.policies.book import PolicyBook
from torpor.settings import AGENTS_FOLDER, Settings
from torpor.skillbook.catalogue import Catalogue
from torpor.skillbook.load import SkillRoot
from torpor.skillbook.reload import SkillBook
from torpor.store.contract import Blobs
from torpor.subagents.definition import SUBAGENTS_FOLDER, Subagent, SubagentDefinition
from torpor.subagents.making import make_subagents, spawning_tools
from torpor.toolhost.calls import Calls
from torpor.toolhost.contract import Toolbox
from torpor.toolhost.load import load_tools
from torpor.toolhost.mcp.asking import McpAsks
from torpor.toolhost.mcp.elsewhere import McpTools
from torpor.toolhost.mcp.loading import open_session, require_sdk
from torpor.toolhost.mcp.servers import McpServers, off_for_nobody
from torpor.toolhost.mcp.values import Values
from torpor.toolhost.registry import ToolRegistry
from torpor.turn.agents import Agent, Agents
from torpor.turn.attached import AttachedFiles
from torpor.turn.definition import EVERY, AgentDefinition
from torpor.turn.fold_history import Summariser
from torpor.turn.live_context import LiveModel
from torpor.turn.prepare import Surroundings

SKILLS_FOLDER: Final = "skills"
TOOLS_FOLDER: Final = "tools"
SKILLS_SCOPE: Final = "home"

NO_MODEL: Final = "none"
"""Kind of a model that works beside an agent, where nobody is to be asked."""
OF_TURNS_ALONE: Final = (
    "thinking",
    "effort",
    "fallback",
    "fallback_thinking",
    "fallback_effort",
    "fallback_max_tokens",
)
"""Options of an agent's model that a summary does not need."""

_log = structlog.get_logger()


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    tools: ToolRegistry
    mcp: McpServers
    models: ModelRegistry
    flags: Flags
    skills: SkillBook
    policies: PolicyBook
    agents: Agents
    subagents: Mapping[str, Subagent]
    """By name."""
    surroundings: Surroundings

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the files until the block ends, load what the models need, and close what was opened."""
        async with (
            self.tools.running(),
            self.mcp.running(),
            self.flags.running(),
            self.policies.watching(),
            self.models.opened(),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self.skills.watching, name="skills:watch")
            yield
            tasks.cancel_scope.cancel()


def load_home(
    settings: Settings,
    *,
    blobs: Blobs,
    clock: Clock,
    ids: IdSource,
    environ: Mapping[str, str],
    wrap_model: Callable[[Model], Model],
    wrap_toolbox: Callable[[Toolbox], Toolbox],
    calls: Calls | None = None,
    chance: Callable[[], float] = chance,
) -> Home:
    """Read the files of the home. Takes time: to be called before the event loop has much to do, or in a thread.

    What is broken among tools, skills and policies is logged and left out.
    Args: calls: where tools that run are noted, for the watchdog.  chance: from 0 up to 1, drawn anew each time.
    Raises: ConfigError: an agent or a flag cannot be used, or an agent's fixed parts are more than its profile grants.
    """
    tools = _tools(settings, blobs, calls)
    models = ModelRegistry(home=settings.home, environ=environ, clock=clock, ids=ids, circuit=settings.circuit)
    flags = Flags(settings.home, clock=clock, options=settings.flags)
    flags.load()
    servers = mcp_servers(settings, environ=environ, chance=chance, off=flags.off_in_words)
    skills = SkillBook([SkillRoot(path=settings.home / SKILLS_FOLDER, scope=SKILLS_SCOPE)], options=settings.skills)
    skills.load()
    policies = PolicyBook(settings.home, options=settings.policies)
    policies.load()
    subagents = _subagents(
        settings, tools=tools, servers=servers, models=models, wrap_model=wrap_model, wrap=wrap_toolbox
    )
    agents = [
        _agent(
            definition,
            settings=settings,
            tools=tools,
            servers=servers,
            models=models,
            wrap_model=wrap_model,
            wrap=wrap_toolbox,
        )
        for definition in settings.agents
    ]
    policy_ids = {policy.id for policy in policies.policies}
    for agent in agents:
        missing = missing_in(
            agent.definition,
            tools=tools,
            skills=skills.current,
            policies=policy_ids,
            subagents=subagents.keys(),
            servers=settings.mcp_servers.keys(),
        )
        for kind, names in missing.items():
            _log.warning(f"agent.{kind}_missing", agent=agent.name, **{kind: names})
        agent.offers.check(EVERYTHING_ON, skills.current)
    for subagent in subagents.values():
        subagent.agent.offers.check(EVERYTHING_ON, skills.current)
    surroundings = Surroundings(
        flags=flags,
        skills=skills,
        policies=policies,
        context=settings.context,
        live=settings.live_context,
        attached=AttachedFiles(blobs, settings.attachments),
        excerpts_max=settings.policies.excerpts_max,
        excerpts_tokens=settings.policies.budget_tokens,
    )
    return Home(
        tools=tools,
        mcp=servers,
        models=models,
        flags=flags,
        skills=skills,
        policies=policies,
        agents=Agents(tuple(agents)),
        subagents=subagents,
        surroundings=surroundings,
    )


def missing_in(
    definition: AgentDefinition,
    *,
    tools: ToolRegistry,
    skills: Catalogue,
    policies: Set[str],
    subagents: Set[str],
    servers: Set[str],
) -> dict[str, tuple[str, ...]]:
    """Names in the allow-lists of an agent that stand for nothing now, by the key of the list.

    They are passed over, since a file that is broken today must not take the agent with it. Args: policies: ids.
    """
    known = {
        "skills": {EVERY, *(skill.key for skill in skills.skills)},
        "policies": {EVERY, *policies},
        "subagents": {EVERY, *subagents},
        "mcp": {EVERY, *servers},
    }
    missing = {kind: tuple(sorted(set(getattr(definition, kind)) - names)) for kind, names in known.items()}
    return {kind: names for kind, names in {"tools": tools.missing(definition.tools), **missing}.items() if names}


def _tools(settings: Settings, blobs: Blobs, calls: Calls | None) -> ToolRegistry:
    loaded = load_tools(settings.home / TOOLS_FOLDER)
    for problem in loaded.problems:
        _log.error("tool.not_loaded", file=problem.file, line=problem.line, why=problem.message)
    return ToolRegistry(loaded.tools, blobs=blobs, options=settings.tools, calls=calls)


def mcp_servers(
    settings: Settings,
    *,
    environ: Mapping[str, str],
    chance: Callable[[], float],
    off: Callable[[str], str] = off_for_nobody,
    shows_errors: bool = False,
) -> McpServers:
    """Those of the home, none of which is started.

    Args: off: as ``McpServers`` has it.  shows_errors: as ``Opening`` has it.
    Raises: ConfigError: there is one, and the library for it is missing.
    """
    values = Values(settings.home, environ)
    if settings.mcp_servers:
        require_sdk()
    for name, server in settings.mcp_servers.items():
        for why in values.readable_by_others(server):
            _log.warning("mcp.secret_readable", server=name, why=why)
    return McpServers(
        settings.mcp_servers,
        home=settings.home,
        values=values,
        open_=open_session,
        options=settings.mcp,
        chance=chance,
        shows_errors=shows_errors,
        asked=_asked(settings.subagent_definitions),
        off=off,
    )


def _asked(definitions: Sequence[SubagentDefinition]) -> dict[str, dict[str, str]]:
    """By server and tool, whose evidence they are."""
    whose: dict[str, dict[str, list[str]]] = {}
    for each in definitions:
        if each.evidence is not None:
            whose.setdefault(each.evidence.server, {}).setdefault(each.evidence.tool, []).append(each.name)
    return {
        server: {tool: f"evidence of {', '.join(names)}" for tool, names in tools.items()}
        for server, tools in whose.items()
    }


def _elsewhere(
    names: Sequence[str],
    own: Toolbox,
    *,
    tools: ToolRegistry,
    servers: McpServers,
    wrap: Callable[[Toolbox], Toolbox],
    reads_only: bool = False,
) -> McpTools | None:
    """Where an agent has tools from beside ``own``; None for an agent without servers."""
    named = [name for name in servers.servers if EVERY in names or name in names]
    if not named:
        return None
    return McpTools(
        servers,
        names=named,
        taken=[spec.name for spec in own.specs()],
        toolbox_of=lambda lent: wrap(tools.lent_toolbox(lent)),
        reads_only=reads_only,
    )


def _agent(
    definition: AgentDefinition,
    *,
    settings: Settings,
    tools: ToolRegistry,
    servers: McpServers,
    models: ModelRegistry,
    wrap_model: Callable[[Model], Model],
    wrap: Callable[[Toolbox], Toolbox],
) -> Agent:
    where = f"{AGENTS_FOLDER}/{definition.name}.toml"
    own = tools.toolbox(definition.tools, more=spawning_tools(settings.subagent_definitions, definition.subagents))
    return Agent(
        definition,
        model=wrap_model(models.model(definition.model, where=where)),
        summariser=_summariser(definition, models=models, wrap_model=wrap_model, where=where),
        live=_live_model(definition, models=models, wrap_model=wrap_model, where=where),
        toolbox=wrap(own),
        elsewhere=_elsewhere(definition.mcp, own, tools=tools, servers=servers, wrap=wrap),
        profile=settings.profiles[definition.profile],
        index_budget_tokens=settings.skills.index_budget_tokens,
    )


def _subagents(
    settings: Settings,
    *,
    tools: ToolRegistry,
    servers: McpServers,
    models: ModelRegistry,
    wrap_model: Callable[[Model], Model],
    wrap: Callable[[Toolbox], Toolbox],
) -> dict[str, Subagent]:
    """Those without a model of their own ask the usual agent's."""
    usual = settings.usual_agent

    def model_of(definition: SubagentDefinition) -> Model:
        where = f"{SUBAGENTS_FOLDER}/{definition.name}.toml"
        return wrap_model(models.model(definition.model_table(usual.model), where=where))

    def lending(names: Sequence[str], own: Toolbox) -> McpTools | None:
        named = servers.servers if EVERY in names else names
        reading = [name for name in named if servers.servers[name].may_read]
        return _elsewhere(reading, own, tools=tools, servers=servers, wrap=wrap, reads_only=True)

    return make_subagents(
        settings.subagent_definitions,
        home=settings.home,
        tools=tools,
        model_of=model_of,
        model_table=usual.model,
        wrap_toolbox=wrap,
        index_budget_tokens=settings.skills.index_budget_tokens,
        servers=servers.servers,
        asks=McpAsks(servers),
        lending=lending,
    )


def _summariser(
    definition: AgentDefinition, *, models: ModelRegistry, wrap_model: Callable[[Model], Model], where: str
) -> Summariser | None:
    """What folds the agent's older turns; None where no model is asked."""
    side = _side_model(definition, definition.summary.model, models=models, where=where)
    if side is None:
        return None
    name, window_tokens, model = side
    return Summariser(definition.summary, model=wrap_model(model), name=name, window_tokens=window_tokens)


def _live_model(
    definition: AgentDefinition, *, models: ModelRegistry, wrap_model: Callable[[Model], Model], where: str
) -> LiveModel | None:
    """What keeps the agent's live contexts; None for an agent without, and where no model is asked."""
    if definition.live_context is None:
        return None
    side = _side_model(definition, definition.live_context.model, models=models, where=where)
    if side is None:
        return None
    name, _, model = side
    return LiveModel(definition.live_context, model=wrap_model(model), name=name)


def _side_model(
    definition: AgentDefinition, named: Mapping[str, Any], *, models: ModelRegistry, where: str
) -> tuple[str, int, Model] | None:
    """The name, window and adapter of a model that works beside an agent's own: the one that is named for it, or the
    agent's own unless that is rehearsed."""
    table = {**(named or definition.model)}
    if table.get("kind") == NO_MODEL or (not named and models.is_rehearsed(table, where=where)):
        return None
    for option in OF_TURNS_ALONE:
        table.pop(option, None)
    name = str(table.get("model", table["kind"]))
    return name, window_of(name, override=int(table.get("window_tokens", 0))), models.model(table, where=where)
