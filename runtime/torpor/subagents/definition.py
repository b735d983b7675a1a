"""What ``config/subagents/<name>.toml`` says of a sub-agent, and what it becomes."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from torpor.records.bounds import Amount, Count
from torpor.records.told import ToldAs
from torpor.records.work_budget import WorkBudget
from torpor.subagents.research import RESEARCH
from torpor.subagents.results import ResultType
from torpor.turn.agents import Agent

SUBAGENTS_FOLDER: Final = "config/subagents"
REHEARSED_KINDS: Final = ("anthropic", "scripted")
"""Of models that may play a rehearsal."""
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
Said = Annotated[str, msgspec.Meta(pattern=r"\S")]
RehearsalName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{0,64}$")]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3_600)]


class EvidenceServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MCP server that searches evidence."""

    server: str
    tool: str = "search_evidence"
    """As the server calls it. It takes ``query`` and ``limit``, and answers with a list of entries."""


class SubagentDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``config/subagents/<name>.toml``."""

    name: Name
    """Of the tool by which an agent has it work."""
    description: Said
    """Tells an agent when to."""
    system: str
    """The system prompt; what its result must look like is added."""
    model: dict[str, Any] = {}
    """As in an agent's file; the default agent's, if left out."""
    rehearsal: RehearsalName = ""
    """Played instead of the model's own while there is no key; a file of ``config/rehearsals``, without ``.toml``."""
    tools: tuple[str, ...] = ()
    """Tools of the home that it may call, none of which may write; those of its result type are always there."""
    mcp: tuple[str, ...] = ()
    """MCP servers of the home whose tools it may call, those alone that only read; ``*`` for all servers."""
    evidence: EvidenceServer | None = None
    """Searched instead of the evidence of the home."""
    subagents: tuple[str, ...] = ()
    """Sub-agents that it may have work for it."""
    skills: tuple[str, ...] = ()
    """Skills of the home that it may load."""
    result: str = "text"
    """The name of a result type."""
    max_tokens: Count = 2_048
    """Of one reply."""
    steps_max: Count = 12
    """Model calls."""
    tokens_max: Amount = 100_000
    """Of all its requests and replies, those of its own sub-agents included; 0 for no limit."""
    seconds_max: Seconds = 120.0

    @property
    def budget(self) -> WorkBudget:
        return WorkBudget(steps=self.steps_max, tokens=self.tokens_max, seconds=self.seconds_max)

    def model_table(self, usual: Mapping[str, Any]) -> dict[str, Any]:
        """What says which model it asks. Args: usual: the same of the agent whose model it asks if it names none."""
        table = {**(self.model or usual)}
        table.pop("pace_cps", None)  # nobody reads along
        if self.rehearsal and table.get("kind") in REHEARSED_KINDS:
            table["rehearsal"] = self.rehearsal
        return table


class Subagent(msgspec.Struct, frozen=True, kw_only=True):
    """A definition with its parts."""

    definition: SubagentDefinition
    agent: Agent
    result: ResultType

    @property
    def told_as(self) -> ToldAs:
        """By which word clients hear of it."""
        return ToldAs.RESEARCH if self.result.name == RESEARCH else ToldAs.SUBAGENT
