"""What ``torpor config check`` tells of tokens: what each agent, tool and skill of a home costs in a request."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from torpor.conversation.budget import encoded_tokens, tokens_of_bytes
from torpor.errors import ConfigError
from torpor.flags.contract import EVERYTHING_ON
from torpor.home import SKILLS_FOLDER, SKILLS_SCOPE
from torpor.model.contract import Model
from torpor.settings import Settings
from torpor.skillbook.catalogue import Catalogue
from torpor.skillbook.index import line_tokens
from torpor.skillbook.load import Shelf, SkillRoot, load_shelf
from torpor.skillbook.parse import Skill
from torpor.toolhost.contract import ToolSpec
from torpor.toolhost.registry import ToolRegistry
from torpor.turn.agents import Agent
from torpor.turn.definition import AgentDefinition


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, estimated, or why there is no use in counting them."""

    detail: str
    is_wrong: bool = False


def catalogue_of(home: Path, settings: Settings) -> Catalogue:
    """The skills of ``home``, read once."""
    roots = [SkillRoot(path=home / SKILLS_FOLDER, scope=SKILLS_SCOPE)]
    return Catalogue(load_shelf(roots, before=Shelf(), options=settings.skills), options=settings.skills)


def agent_cost(
    definition: AgentDefinition, *, model: Model, tools: ToolRegistry, catalogue: Catalogue, settings: Settings
) -> Cost:
    """Of what stands before every conversation of the agent, all flags on; wrong when it is over a cap."""
    agent = Agent(
        definition,
        model=model,
        toolbox=tools.toolbox(definition.tools),
        profile=settings.profiles[definition.profile],
        index_budget_tokens=settings.skills.index_budget_tokens,
    )
    try:
        agent.offers.check(EVERYTHING_ON, catalogue)
    except ConfigError as exc:
        return Cost(detail=str(exc).removeprefix(f"{exc.where}: "), is_wrong=True)
    return Cost(detail=_in_words(agent.offer(EVERYTHING_ON, catalogue).sections))


def tool_costs(specs: Mapping[str, ToolSpec]) -> dict[str, int]:
    """Estimated tokens of each tool's schema."""
    return {
        name: encoded_tokens({"name": name, "description": spec.description, "input_schema": spec.input_schema})
        for name, spec in specs.items()
    }


def skill_costs(catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    """Each skill's key, and its cost in words."""
    for skill in catalogue.skills:
        yield (
            skill.key,
            f"about {line_tokens(skill):,} tokens in the index, {loaded_tokens(catalogue, skill):,} when it is loaded",
        )


def loaded_tokens(catalogue: Catalogue, skill: Skill) -> int:
    """Estimated tokens of what a model reads when it loads ``skill``, the list of its files included."""
    return tokens_of_bytes(len(catalogue.body(skill).text.encode()))


def _in_words(sections: Mapping[str, int]) -> str:
    parts = ", ".join(f"{name.replace('_', ' ')} {tokens:,}" for name, tokens in sections.items() if tokens)
    return f"about {sum(sections.values()):,} fixed tokens ({parts})"
