"""What ``torpor config check`` tells of tokens: what each agent, tool and skill of a home costs in a request."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from torpor.conversation.budget import encoded_tokens, tokens_of_bytes
from torpor.conversation.earlier import READ_EARLIER
from torpor.errors import ConfigError
from torpor.flags.contract import EVERYTHING_ON
from torpor.home import SKILLS_FOLDER, SKILLS_SCOPE
from torpor.local_files import DATA_FOLDER
from torpor.model.contract import Model
from torpor.settings import Settings
from torpor.skillbook.catalogue import Catalogue
from torpor.skillbook.index import line_tokens
from torpor.skillbook.load import Shelf, SkillRoot, load_shelf
from torpor.skillbook.parse import Skill
from torpor.store.blobs import LocalBlobs
from torpor.subagents.making import spawning_tools
from torpor.toolhost.contract import ToolSpec
from torpor.toolhost.engine_tools import READ_RESULT
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.registry import ToolRegistry
from torpor.toolhost.skill_tools import LOAD_SKILL, READ_SKILL_FILE, SEARCH_SKILLS
from torpor.turn.agents import Agent
from torpor.turn.definition import AgentDefinition

_ENGINE_TOOLS: Final = {
    READ_RESULT: "in every request",
    READ_EARLIER: "from the first fold on",
    LOAD_SKILL: "where the agent has skills",
    READ_SKILL_FILE: "where the agent has skills",
    SEARCH_SKILLS: "where the index leaves some of them out",
}


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
        toolbox=tools.toolbox(
            definition.tools, more=spawning_tools(settings.subagent_definitions, definition.subagents)
        ),
        profile=settings.profiles[definition.profile],
        index_budget_tokens=settings.skills.index_budget_tokens,
    )
    try:
        agent.offers.check(EVERYTHING_ON, catalogue)
    except ConfigError as exc:
        return Cost(detail=str(exc).removeprefix(f"{exc.where}: "), is_wrong=True)
    later = sum(agent.offer(EVERYTHING_ON, catalogue, has_earlier=True).sections.values())
    words = fixed_in_words(agent.offer(EVERYTHING_ON, catalogue).sections)
    return Cost(detail=f"{words}, {later:,} from the first fold on, by which caps are judged")


def skill_tool_costs(home: Path) -> tuple[int, int]:
    """Estimated tokens of the engine's tools that go with any skill, and of the one that finds what is in no index."""
    registry = ToolRegistry((), blobs=LocalBlobs(home / DATA_FOLDER), options=ToolOptions())
    costs = tool_costs({spec.name: spec for spec in registry.toolbox().specs()})
    return costs[LOAD_SKILL] + costs[READ_SKILL_FILE], costs[SEARCH_SKILLS]


def engine_tool_costs(costs: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Each tool of the engine, and when it costs what. Args: costs: of all tools."""
    for name, when in _ENGINE_TOOLS.items():
        yield name, f"the engine's, about {costs[name]:,} tokens {when}"


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


def fixed_in_words(sections: Mapping[str, int]) -> str:
    """Args: sections: estimated tokens of the fixed parts."""
    parts = ", ".join(f"{name.replace('_', ' ')} {tokens:,}" for name, tokens in sections.items() if tokens)
    return f"about {sum(sections.values()):,} fixed tokens ({parts})"
