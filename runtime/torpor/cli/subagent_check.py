"""What ``torpor config check`` finds in the sub-agents of a home: their faults, and what each of them costs."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from torpor.cli.costs import fixed_in_words, tool_costs
from torpor.cli.gates import Found
from torpor.errors import ConfigError
from torpor.flags.contract import EVERYTHING_ON
from torpor.model.registry import ModelRegistry
from torpor.model.rehearsal import REHEARSALS_FOLDER, read_rehearsal
from torpor.settings import Settings
from torpor.skillbook.catalogue import Catalogue
from torpor.subagents.definition import SUBAGENTS_FOLDER, Subagent, SubagentDefinition
from torpor.subagents.making import RESULTS, Owed, faults_of, made_of, spawning_tools
from torpor.toolhost.mcp.names import server_of
from torpor.toolhost.registry import ToolRegistry
from torpor.turn.definition import EVERY

_PART: Final = "subagent"


class SubagentCheck:
    """Over one home."""

    def __init__(
        self, home: Path, *, settings: Settings, models: ModelRegistry, tools: ToolRegistry, catalogue: Catalogue
    ) -> None:
        self._home = home
        self._settings = settings
        self._definitions = settings.subagent_definitions
        self._models = models
        self._tools = tools
        self._servers = settings.mcp_servers
        self._catalogue = catalogue
        self._owed: dict[tuple[str, bool], Owed | ConfigError] = {}

    def found(self) -> Iterator[Found]:
        """Each sub-agent with its cost, or everything that is wrong with it; then the files behind their results."""
        for definition in self._definitions:
            yield from self._judged(definition)
        faults = (owed for owed in self._owed.values() if isinstance(owed, ConfigError))
        for where, detail in dict.fromkeys((fault.where, _without_place(fault)) for fault in faults):
            yield Found(part=_PART, name=where, detail=detail, is_wrong=True)

    def _judged(self, definition: SubagentDefinition) -> Iterator[Found]:
        where = f"{SUBAGENTS_FOLDER}/{definition.name}.toml"
        wrong = functools.partial(Found, part=_PART, name=where, is_wrong=True)
        faults = list(faults_of(definition, self._definitions, tools=self._tools, servers=self._servers))
        for fault in faults:
            yield wrong(detail=_without_place(fault))
        owed = self._owed_by(definition.result, is_served=definition.evidence is not None)
        if faults or owed is None:
            return
        if isinstance(owed, ConfigError):
            yield wrong(detail=f"result {definition.result!r} cannot be made, {owed.where} is at fault")
            return
        try:
            subagent = self._made(definition, owed, where=where)
            yield self._told(subagent, where=where)
            yield from self._rehearsal(subagent)
        except ConfigError as exc:
            place = "" if exc.where == where else f"{exc.where}: "
            yield wrong(detail=f"{place}{_without_place(exc)}")

    def _owed_by(self, result: str, *, is_served: bool) -> Owed | ConfigError | None:
        """None for a type that there is not."""
        kind = (result, is_served)
        if kind not in self._owed and result in RESULTS:
            try:
                self._owed[kind] = RESULTS[result](self._home, is_served=is_served)
            except ConfigError as exc:
                self._owed[kind] = exc
        return self._owed.get(kind)

    def _made(self, definition: SubagentDefinition, owed: Owed, *, where: str) -> Subagent:
        usual = self._settings.usual_agent.model
        return made_of(
            definition,
            self._definitions,
            owed=owed,
            tools=self._tools,
            model=self._models.model(definition.model_table(usual), where=where),
            model_table=usual,
            wrap_toolbox=lambda toolbox: toolbox,
            index_budget_tokens=self._settings.skills.index_budget_tokens,
        )

    def _told(self, subagent: Subagent, *, where: str) -> Found:
        definition, agent = subagent.definition, subagent.agent
        agent.offers.check(EVERYTHING_ON, self._catalogue)
        sections = agent.offer(EVERYTHING_ON, self._catalogue).sections
        toolbox = self._tools.toolbox(more=spawning_tools([definition], [EVERY]), is_strict=True)
        as_tool = tool_costs({spec.name: spec for spec in toolbox.specs()})[definition.name]
        doubts = list(self._doubts(definition, fixed_tokens=sum(sections.values())))
        tokens = f"{definition.tokens_max:,} tokens, " if definition.tokens_max else ""
        detail = (
            f"result {definition.result}, {agent.definition.model['kind']} model, {fixed_in_words(sections)}, "
            f"at most {definition.steps_max} steps, {tokens}{definition.seconds_max:g} s; "
            f"about {as_tool:,} tokens to each agent that may have it work"
        )
        return Found(part=_PART, name=where, detail="; ".join([*doubts, detail]), is_doubtful=bool(doubts))

    def _doubts(self, definition: SubagentDefinition, *, fixed_tokens: int) -> Iterator[str]:
        depths = [depth for depth, names in enumerate(self._levels(), start=1) if definition.name in names]
        depth_max = self._settings.subagents.depth_max
        if not depths:
            yield "no agent may have it work"
        elif depths[0] > depth_max:
            yield f"it would stand at depth {depths[0]}, where it is refused, since subagents.depth_max is {depth_max}"
        if any(definition.name in names for names in self._below(definition.subagents)):
            yield f"it may have itself work, which only subagents.depth_max ends, {depth_max} levels deep"
        known = {EVERY, *(skill.key for skill in self._catalogue.skills)}
        if missing := sorted(set(definition.skills) - known):
            yield f"skills names {', '.join(missing)}, which this home has not"
        if 0 < definition.tokens_max < 2 * fixed_tokens:
            yield f"tokens_max is {definition.tokens_max:,}, not enough for two requests"

    def _levels(self) -> Iterator[set[str]]:
        """Of all that an agent may have work in the end."""
        return self._below({name for agent in self._settings.agents for name in agent.subagents})

    def _below(self, allowed: Iterable[str]) -> Iterator[set[str]]:
        """Names that an allow-list lets work, then those that these may have work and that were not there before."""
        every = {each.name: each.subagents for each in self._definitions}
        seen: set[str] = set()
        while fresh := (set(every) if EVERY in set(allowed) else set(allowed) & set(every)) - seen:
            yield fresh
            seen |= fresh
            allowed = {name for each in fresh for name in every[each]}

    def _rehearsal(self, subagent: Subagent) -> Iterator[Found]:
        if not (name := subagent.agent.definition.model.get("rehearsal")):
            return
        file = f"{REHEARSALS_FOLDER}/{name}.toml"
        called = read_rehearsal(self._home / file).tool_names()
        lent = {name for name in called if self._is_lent(name, subagent.definition.mcp)}
        if missing := sorted(called - lent - {spec.name for spec in subagent.agent.toolbox.specs()}):
            detail = f"calls {', '.join(missing)}, which sub-agent {subagent.definition.name} has not"
            if not subagent.definition.rehearsal:
                detail += ", and plays it for want of its own: name one by `rehearsal` in its file"
            yield Found(part="rehearsal", name=file, detail=detail, is_wrong=True)
        else:
            yield Found(part="rehearsal", name=file, detail=f"calls {', '.join(sorted(called)) or 'no tool'}")

    def _is_lent(self, name: str, servers: Sequence[str]) -> bool:
        """Whether it may be a tool of one of these, which are known once they run."""
        server = server_of(name)
        return server in self._servers and (server in servers or EVERY in servers)


def _without_place(fault: ConfigError) -> str:
    return str(fault).removeprefix(f"{fault.where}: ")
