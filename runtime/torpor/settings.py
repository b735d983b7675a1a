"""``config/`` of a home and the environment, turned once into one frozen ``Settings``.

Above: the composition root and the command line. Below: the rooms, each of which owns its options and never sees this
module; here they only become the ``[sections]`` of ``config/torpor.toml``. A variable ``TORPOR__SECTION__KEY`` wins
over the file and takes its type from the field it sets. All that is wrong is told at once, not only the first of it.
"""

import difflib
import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from torpor.actor.options import ActorOptions
from torpor.attachments.options import AttachmentOptions
from torpor.conversation.budget import PROFILES, Profile
from torpor.conversation.live_context import LiveContextOptions
from torpor.conversation.retry import RetryOptions
from torpor.conversation.signals import ContextOptions
from torpor.conversation.steps import StepOptions
from torpor.conversation.summary import CompactionOptions
from torpor.errors import ConfigError
from torpor.flags.options import FlagOptions
from torpor.gateway.auth_options import AuthOptions
from torpor.gateway.options import GatewayOptions
from torpor.jobs.options import JobOptions
from torpor.misfits import Words, misfit_in_toml, read_toml, seen, unreadable
from torpor.model.circuit import CircuitOptions
from torpor.operations.logs import LogOptions
from torpor.operations.options import MetricsOptions, TracingOptions
from torpor.policies.options import PolicyOptions
from torpor.skillbook.options import SkillOptions
from torpor.store.options import BlobOptions, StoreOptions
from torpor.subagents.definition import SUBAGENTS_FOLDER, SubagentDefinition
from torpor.subagents.options import SubagentOptions
from torpor.supervisor.options import RetentionOptions, SupervisorOptions
from torpor.toolhost.mcp.options import MCP_FILE, McpOptions, McpServer
from torpor.toolhost.mcp.reading import McpTables
from torpor.toolhost.options import ToolOptions
from torpor.turn.definition import AgentDefinition
from torpor.turn.options import TurnOptions
from torpor.variables import ENVIRONMENT, SETTINGS_FILE, VARIABLE_PREFIX, meant_as_variable, variable_of
from torpor.watchdog.options import WatchdogOptions

AGENTS_FOLDER: Final = "config/agents"
_LISTED_MAX: Final = 30
"""Names in one error."""


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody with a model."""

    name: str
    where: str
    """Whose file it is."""
    model: Mapping[str, Any]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that configuration decides, whole and checked."""

    home: Path
    agents: tuple[AgentDefinition, ...]
    """In order of their names; at least one, and at most one of them the default."""
    subagent_definitions: tuple[SubagentDefinition, ...] = ()
    """In order of their names."""
    mcp_servers: Mapping[str, McpServer] = {}
    """By name."""
    store: StoreOptions = StoreOptions()
    blobs: BlobOptions = BlobOptions()
    attachments: AttachmentOptions = AttachmentOptions()
    tools: ToolOptions = ToolOptions()
    mcp: McpOptions = McpOptions()
    skills: SkillOptions = SkillOptions()
    flags: FlagOptions = FlagOptions()
    policies: PolicyOptions = PolicyOptions()
    context: ContextOptions = ContextOptions()
    steps: StepOptions = StepOptions()
    retry: RetryOptions = RetryOptions()
    circuit: CircuitOptions = CircuitOptions()
    profiles: dict[str, Profile] = msgspec.field(default_factory=lambda: dict(PROFILES))
    """By name: those of the engine, and what the home makes of them or adds."""
    compaction: CompactionOptions = CompactionOptions()
    live_context: LiveContextOptions = LiveContextOptions()
    turn: TurnOptions = TurnOptions()
    actor: ActorOptions = ActorOptions()
    supervisor: SupervisorOptions = SupervisorOptions()
    retention: RetentionOptions = RetentionOptions()
    jobs: JobOptions = JobOptions()
    subagents: SubagentOptions = SubagentOptions()
    auth: AuthOptions = AuthOptions()
    gateway: GatewayOptions = GatewayOptions()
    watchdog: WatchdogOptions = WatchdogOptions()
    logs: LogOptions = LogOptions()
    metrics: MetricsOptions = MetricsOptions()
    tracing: TracingOptions = TracingOptions()

    @property
    def usual_agent(self) -> AgentDefinition:
        """The default one, or else the first."""
        return next((agent for agent in self.agents if agent.default), self.agents[0])

    @property
    def asking(self) -> tuple[Asking, ...]:
        """The agents, and the sub-agents that have a model of their own."""
        agents = [
            Asking(name=each.name, where=f"{AGENTS_FOLDER}/{each.name}.toml", model=each.model) for each in self.agents
        ]
        own = (each for each in self.subagent_definitions if each.model)
        return (
            *agents,
            *(
                Asking(name=each.name, where=f"{SUBAGENTS_FOLDER}/{each.name}.toml", model=each.model_table({}))
                for each in own
            ),
        )


PROFILES_SECTION: Final = "profiles"
SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    field.name: field.type
    for field in msgspec.structs.fields(Settings)
    if field.name not in {"home", "agents", "subagent_definitions", "mcp_servers", PROFILES_SECTION}
}
"""The tables of ``config/torpor.toml`` and the options that each becomes."""


class SettingsInvalid(ConfigError):
    """One or more values are not usable; its text has a line for each."""

    def __init__(self, problems: tuple[ConfigError, ...]) -> None:
        first = problems[0]
        super().__init__(first.where, key=first.key, found=first.found, expected=first.expected)
        self.args = ("\n".join(str(problem) for problem in problems),)
        self.problems = problems


def read_settings(home: Path, environ: Mapping[str, str]) -> Settings:
    """Read the files of ``home`` and the variables of ``environ``; a home without a settings file lives on the
    defaults.

    Raises: SettingsInvalid: with every problem of every file and variable.
    """
    reader = _Reader(home)
    sections = reader.sections()
    reader.override(sections, environ)
    profiles = reader.profiles()
    agents = reader.agents(profiles)
    subagents = reader.subagents()
    servers = reader.mcp_servers(environ)
    if reader.problems:
        raise SettingsInvalid(tuple(reader.problems))
    options: dict[str, Any] = {name: SECTIONS[name](**values) for name, values in sections.items()}
    return Settings(
        home=home,
        agents=agents,
        subagent_definitions=subagents,
        mcp_servers=servers,
        profiles=profiles,
        **options,
    )


def read_section(home: Path, environ: Mapping[str, str], *, name: str) -> Any:
    """The options of one section, whatever is wrong elsewhere; the defaults where there is no settings file.

    Raises: SettingsInvalid: with every problem of this section, or of the file as a whole.
    """
    reader = _Reader(home)
    sections = reader.sections()
    reader.override(sections, environ)
    ours = (f"{name}.", variable_of(name, ""))
    problems = tuple(problem for problem in reader.problems if problem.key.startswith(ours) or problem.key == "content")
    if problems:
        raise SettingsInvalid(problems)
    return SECTIONS[name](**sections.get(name, {}))


_MISSING: Final = Words("missing")


class _Reader:
    """Reads what it can and keeps word of what it cannot."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.problems: list[ConfigError] = []

    @functools.cached_property
    def _settings(self) -> dict[str, Any]:
        """Read once, so that what is wrong with the file itself is told once."""
        return self._toml(SETTINGS_FILE)

    def sections(self) -> dict[str, dict[str, Any]]:
        """The typed values that the settings file gives, by section."""
        sections: dict[str, dict[str, Any]] = {}
        for name, table in self._settings.items():
            if name == PROFILES_SECTION:
                continue
            if name not in SECTIONS:
                known = (*SECTIONS, PROFILES_SECTION)
                self._report(SETTINGS_FILE, name, found=Words("unknown"), expected=_one_of(name, known))
            elif not isinstance(table, dict):
                self._report(SETTINGS_FILE, name, found=table, expected=f"a table [{name}]")
            else:
                sections[name] = self._typed(SECTIONS[name], table, where=SETTINGS_FILE, prefix=f"{name}.")
        return sections

    def override(self, sections: dict[str, dict[str, Any]], environ: Mapping[str, str]) -> None:
        """Let the variables that are ours win over ``sections``."""
        fields = {variable_of(name, key): (name, key) for name in SECTIONS for key in _types_of(SECTIONS[name])}
        for variable in sorted(environ):
            if meant := meant_as_variable(variable):
                expected = f"perhaps {meant!r}" if meant in fields else _meant(meant, fields)
                self._report(ENVIRONMENT, variable, found=Words("unknown"), expected=expected)
            if not variable.startswith(VARIABLE_PREFIX):
                continue
            if variable not in fields:
                self._report(ENVIRONMENT, variable, found=Words("unknown"), expected=_meant(variable, fields))
                continue
            section, key = fields[variable]
            type_ = _types_of(SECTIONS[section])[key]
            try:
                sections.setdefault(section, {})[key] = _from_text(environ[variable], type_)
            except msgspec.ValidationError as exc:
                expected = _in_json(misfit_in_toml(exc, type_).expected, environ[variable])
                self._report(ENVIRONMENT, variable, found=environ[variable], expected=expected)

    def profiles(self) -> dict[str, Profile]:
        """Those of the engine, with what the settings file changes in them, and those that it adds."""
        told = self._settings.get(PROFILES_SECTION, {})
        profiles = dict(PROFILES)
        if not isinstance(told, dict):
            self._report(SETTINGS_FILE, PROFILES_SECTION, found=told, expected="tables [profiles.NAME]")
            return profiles
        for name, table in told.items():
            where = f"{PROFILES_SECTION}.{name}"
            if not isinstance(table, dict):
                self._report(SETTINGS_FILE, where, found=table, expected=f"a table [{where}]")
                continue
            values = self._typed(Profile, table, where=SETTINGS_FILE, prefix=f"{where}.")
            profile = msgspec.structs.replace(profiles.get(name, Profile()), **values)
            if profile.budget_tokens and profile.granted_tokens > profile.budget_tokens:
                found = Words(f"{profile.granted_tokens:,} tokens in its allotments together")
                expected = f"at most its budget_tokens of {profile.budget_tokens:,}"
                self._report(SETTINGS_FILE, where, found=found, expected=expected)
            profiles[name] = profile
        return profiles

    def agents(self, profiles: Mapping[str, Profile]) -> tuple[AgentDefinition, ...]:
        """The agents whose files are flawless."""
        agents: list[AgentDefinition] = []
        for name in self._agent_files():
            known = len(self.problems)
            where = f"{AGENTS_FOLDER}/{name}"
            values = self._typed(AgentDefinition, self._toml(where, is_needed=True), where=where)
            self._miss_required(AgentDefinition, values, where=where, known=known)
            if len(self.problems) == known:
                agents.append(AgentDefinition(**values))
                self._contradict(agents, where=where, stem=name.removesuffix(".toml"))
                if agents[-1].profile not in profiles:
                    expected = _one_of(agents[-1].profile, profiles)
                    self._report(where, "profile", found=agents[-1].profile, expected=expected)
        return tuple(agents)

    def subagents(self) -> tuple[SubagentDefinition, ...]:
        """The sub-agents whose files are flawless."""
        definitions: list[SubagentDefinition] = []
        for name in self._files_in(SUBAGENTS_FOLDER):
            known = len(self.problems)
            where, stem = f"{SUBAGENTS_FOLDER}/{name}", name.removesuffix(".toml")
            values = self._typed(SubagentDefinition, self._toml(where, is_needed=True), where=where)
            self._miss_required(SubagentDefinition, values, where=where, known=known)
            if values.get("name", stem) != stem:
                self._report(where, "name", found=values["name"], expected=f"the name of its file, {stem!r}")
            if len(self.problems) == known:
                definitions.append(SubagentDefinition(**values))
        return tuple(definitions)

    def mcp_servers(self, environ: Mapping[str, str]) -> Mapping[str, McpServer]:
        """The MCP servers without a fault; none where there is no such file."""
        tables = McpTables(self._toml(MCP_FILE), home=self._home, environ=environ)
        self.problems += tables.problems
        return tables.servers

    def _contradict(self, agents: list[AgentDefinition], *, where: str, stem: str) -> None:
        """What the types of the last one allow and the others, or its file, do not."""
        *others, agent = agents
        if agent.name != stem:
            self._report(where, "name", found=agent.name, expected=f"the name of its file, {stem!r}")
        kind = agent.model.get("kind", _MISSING)
        if not isinstance(kind, str):
            self._report(where, "model.kind", found=kind, expected="the name of a model adapter")
        default = next((other.name for other in others if other.default), None)
        if agent.default and default is not None:
            self._report(where, "default", found=True, expected=f"one default agent, which {default!r} is already")

    def _typed(
        self, type_: type[msgspec.Struct], table: dict[str, Any], *, where: str, prefix: str = ""
    ) -> dict[str, Any]:
        """The usable values of ``table`` as ``type_`` has them; each key is judged on its own."""
        types, values = _types_of(type_), {}
        for key, value in table.items():
            if key not in types:
                self._report(where, prefix + key, found=Words("unknown"), expected=_one_of(key, types))
                continue
            try:
                values[key] = msgspec.convert(value, types[key])
            except msgspec.ValidationError as exc:
                why = misfit_in_toml(exc, types[key], key=prefix + key, value=value)
                self._report(where, prefix + key + why.path, found=seen(why, value), expected=why.expected)
        return values

    def _miss_required(self, type_: type[msgspec.Struct], values: dict[str, Any], *, where: str, known: int) -> None:
        reported = {problem.key for problem in self.problems[known:]}
        for field in msgspec.structs.fields(type_):
            if field.required and field.name not in values and not reported & {field.name, "file", "content"}:
                below = next((key for key, told in values.items() if isinstance(told, dict) and field.name in told), "")
                expected = f"it above [{below}], below which it stands" if below else "a value, since it has no default"
                self._report(where, field.name, found=_MISSING, expected=expected)

    def _toml(self, name: str, *, is_needed: bool = False) -> dict[str, Any]:
        """The file's tables; empty when there is no such file, or none that can be read."""
        try:
            return read_toml(self._home / name, where=name)
        except FileNotFoundError as exc:
            if is_needed:
                self.problems.append(unreadable(exc, where=name))
        except ConfigError as exc:
            self.problems.append(exc)
        return {}

    def _agent_files(self) -> list[str]:
        """Their names in order, readable or not. Reports a home without any."""
        known = len(self.problems)
        names = self._files_in(AGENTS_FOLDER)
        if len(self.problems) > known:
            return names
        if not self._home.is_dir():
            expected = "a directory; `torpor init DIR` makes one"
            self._report(str(self._home), "home", found=_MISSING, expected=expected)
        elif not names:
            expected = "at least one agent; `torpor init DIR` makes a home with one"
            self._report(str(self._home), f"{AGENTS_FOLDER}/*.toml", found=_MISSING, expected=expected)
        return names

    def _files_in(self, folder: str) -> list[str]:
        """Names of the definitions in ``folder``, in order, readable or not; none where there is no such folder.
        Reports one that cannot be listed."""
        try:
            entries = sorted((self._home / folder).iterdir())
        except FileNotFoundError:
            return []
        except OSError as exc:
            self.problems.append(unreadable(exc, where=folder, expected="a folder that this user may read"))
            return []
        return [entry.name for entry in entries if entry.suffix == ".toml" and not entry.name.startswith(".")]

    def _report(self, where: str, key: str, *, found: object, expected: str) -> None:
        self.problems.append(ConfigError(where, key=key, found=found, expected=expected))


def _types_of(type_: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(type_)}


def _from_text(text: str, type_: Any) -> Any:
    """A variable's text as the field's type: as it stands, as a number or a truth value, else as JSON."""
    try:
        return msgspec.convert(text, type_, strict=False)
    except msgspec.ValidationError:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            value = text
        return msgspec.convert(value, type_)


def _in_json(expected: str, text: str) -> str:
    """With how a variable holds the list or the table that ``text`` is none of."""
    if expected.startswith("a list"):
        items = (item.strip(" '\"") for item in text.strip("[] ").split(","))
        return f"{expected} as JSON, like {json.dumps([item for item in items if item])}"
    return f'{expected} as JSON, like {{"NAME": "..."}}' if expected.startswith("a table") else expected


def _meant(variable: str, known: Iterable[str]) -> str:
    """What whoever set ``variable`` may have had in mind: its section with another key, or its key in another one."""
    before, _, key = variable.rpartition("__")
    section = f"{before}__" if f"{before}__" != VARIABLE_PREFIX else f"{variable}__"
    names = sorted(known)
    within = [name for name in names if name.startswith(section)]
    elsewhere = [name for name in names if name.endswith(f"__{key}")]
    if within and (len(elsewhere) != 1 or _near(variable, within, prefix=section)):
        return _one_of(variable, within, prefix=section)
    return _one_of(variable, elsewhere or names, prefix=VARIABLE_PREFIX)


def _near(found: str, names: Iterable[str], *, prefix: str, most: int = 1, likeness: float = 0.6) -> list[str]:
    """Those of ``names`` that are spelt alike. Args: prefix: of all, which makes none of them nearer."""
    ends = [name.removeprefix(prefix) for name in names]
    near = difflib.get_close_matches(found.removeprefix(prefix), ends, n=most, cutoff=likeness)
    return [prefix + end for end in near]


def _one_of(found: str, known: Iterable[str], *, prefix: str = "") -> str:
    """The nearest of ``known``, or all of them, or where those are many some. Args: prefix: as for ``_near``."""
    names = sorted(known)
    if near := names if len(names) == 1 else _near(found, names, prefix=prefix):
        return f"perhaps {near[0]!r}"
    if len(names) <= _LISTED_MAX:
        return f"one of {', '.join(names)}"
    some = _near(found, names, prefix=prefix, most=3, likeness=0.0)
    return f"one of {len(names)} names, the nearest are {', '.join(some)}"
