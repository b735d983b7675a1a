"""What ``config/agents/<name>.toml`` says of an agent."""

from typing import Any, Final, Literal

import msgspec

from torpor.records.bounds import Amount, Count
from torpor.records.context import DEFAULT_LABELS, Label
from torpor.turn.fold_history import SummariserOptions
from torpor.turn.live_context import LiveModelOptions

EVERY: Final = "*"
"""In an allow-list: all there are."""


class AgentDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``config/agents/<name>.toml``."""

    name: str
    system: str
    """The system prompt."""
    model: dict[str, Any]
    """``kind`` names the adapter; the rest is the adapter's."""
    description: str = ""
    max_tokens: Count = 4096
    """Of one reply."""
    tools: tuple[str, ...] = ()
    """Allow-list; empty for every tool of the home."""
    mcp: tuple[str, ...] = ()
    """MCP servers of the home whose tools it has; ``*`` for all."""
    subagents: tuple[str, ...] = ()
    """Sub-agents of the home that it may have work for it; ``*`` for all."""
    skills: tuple[str, ...] = ("*",)
    """Allow-list by key; ``*`` for every skill of the home."""
    skill_tools: Literal["advice", "restriction"] = "advice"
    """What the ``allowed-tools`` of a loaded skill mean: as a restriction, the agent may call nothing but those of the
    skills in its window and the engine's own tools."""
    policies: tuple[str, ...] = ()
    """Ids of policies that are searched for each message; ``*`` for all of the home."""
    labels: tuple[Label, ...] = DEFAULT_LABELS
    """Sensitivity labels of the context parts that the agent may see."""
    fixed_tokens_max: Amount = 0
    """Prompt, tools and index of skills together may not grow beyond it, nor beyond what the profile grants; 0 leaves
    it to the profile."""
    profile: str = "clinical"
    """How it may spend its window; one of ``[profiles]``."""
    summary: SummariserOptions = SummariserOptions()
    """Who folds older turns into a summary, and how it is asked."""
    live_context: LiveModelOptions | None = None
    """Who keeps the live context, and how it is asked; without it the agent has none."""
    default: bool = False
    """Takes conversations whose first message names no agent."""

    @property
    def model_name(self) -> str:
        """The model that is asked first."""
        return str(self.model.get("model", self.model["kind"]))
