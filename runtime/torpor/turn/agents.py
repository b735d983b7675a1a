"""An agent: a persona with its model and its tools, built once from its definition and shared by all its
conversations."""

from typing import Any

from torpor.conversation.budget import encoded_tokens
from torpor.conversation.view import Preamble, preamble_of
from torpor.model.contract import Model
from torpor.model.windows import window_of
from torpor.toolhost.contract import Toolbox
from torpor.turn.definition import AgentDefinition


class Agent:
    """A definition with its parts; immutable."""

    __slots__ = ("definition", "fixed_sections", "model", "preamble", "toolbox")

    def __init__(self, definition: AgentDefinition, *, model: Model, toolbox: Toolbox) -> None:
        self.definition = definition
        self.model = model
        self.toolbox = toolbox
        fields = _preamble_fields(definition, model, toolbox)
        self.preamble: Preamble = preamble_of(fields)
        self.fixed_sections = {
            "instructions": encoded_tokens(fields.get("system")),
            "tools": encoded_tokens(fields["tools"]),
        }

    @property
    def budget_tokens(self) -> int:
        """Of a request and its reply together: what the profile says, or else the model's window."""
        override = int(self.definition.model.get("window_tokens", 0))
        return window_of(self.model_name, override=override)

    @property
    def fallback(self) -> str:
        """The model that is asked when the first one fails; empty for none."""
        return str(self.definition.model.get("fallback", ""))

    @property
    def model_name(self) -> str:
        """The model that is asked first."""
        return self.definition.model_name

    @property
    def name(self) -> str:
        return self.definition.name

    def __repr__(self) -> str:
        return f"<Agent {self.name} preamble={self.preamble.digest[:12]}>"


def _preamble_fields(definition: AgentDefinition, model: Model, toolbox: Toolbox) -> dict[str, Any]:
    """Tools sorted by name, the static system prompt as its own block: a prefix that only a change of the home
    moves. A prompt that says nothing is left out, since the API refuses it."""
    return {
        "model": definition.model_name,
        "max_tokens": definition.max_tokens,
        **model.request_fields(),
        **({"system": [{"type": "text", "text": definition.system}]} if definition.system.strip() else {}),
        "tools": [
            {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
            for spec in toolbox.specs()
        ],
    }


class Agents:
    """The agents of a home by name."""

    def __init__(self, agents: tuple[Agent, ...]) -> None:
        self._by_name = {agent.name: agent for agent in agents}
        self._default = next((agent for agent in agents if agent.definition.default), None) or next(iter(agents), None)

    def get(self, name: str) -> Agent | None:
        """The agent of that name; the home's default for an empty one."""
        return self._by_name.get(name) if name else self._default

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._by_name))
