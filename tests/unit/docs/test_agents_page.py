"""docs/agents.md tells every key of an agent's file and its default."""

import tomllib
from typing import Any

import msgspec
import pytest

from tests.unit.docs.test_tables import DOCS, table
from torpor.conversation.budget import Profile
from torpor.model.anthropic_options import AnthropicOptions
from torpor.model.options import LocalOptions, ScriptedOptions
from torpor.subagents.definition import SubagentDefinition
from torpor.turn.definition import AgentDefinition
from torpor.turn.fold_history import DEFAULT_PROMPT, SummariserOptions
from torpor.turn.live_context import LiveModelOptions

TABLES: dict[str, type[msgspec.Struct]] = {
    "Agents": AgentDefinition,
    "kind anthropic": AnthropicOptions,
    "kind local": LocalOptions,
    "kind scripted": ScriptedOptions,
    "Profiles": Profile,
    "table summary": SummariserOptions,
    "table live_context": LiveModelOptions,
    "Sub-agents": SubagentDefinition,
}
TOO_LONG = "the engine's"


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    if field.required:
        return "needed"
    value = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    return msgspec.to_builtins(value)


def told_default(cell: str, default: Any) -> Any:
    """What the page says, as the value it stands for; what it leaves out is unset, or a table of its own."""
    if cell == TOO_LONG and isinstance(default, str) and len(default) > 100:
        return default
    if not cell:
        return default if default is None or isinstance(default, dict) else "nothing told"
    return cell if cell == "needed" else tomllib.loads(f"value = {cell.strip('`')}")["value"]


@pytest.mark.parametrize(("heading", "struct"), TABLES.items(), ids=TABLES)
def test_every_key_is_told_with_its_default(heading: str, struct: type[msgspec.Struct]) -> None:
    told = {key: cells[0] for key, cells in table("agents.md", heading).items()}
    defaults = {field.name: default_of(field) for field in msgspec.structs.fields(struct)}

    assert set(told) == set(defaults)
    shown = {key: told_default(told[key], default) for key, default in defaults.items()}
    assert {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()} == shown


def test_prompt_of_the_engine_for_summaries_is_shown() -> None:
    _, _, below = (DOCS / "agents.md").read_text().partition("### What a summariser is asked")

    assert below.split("```text\n")[1].partition("```")[0].split() == DEFAULT_PROMPT.split()
