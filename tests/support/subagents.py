"""Sub-agents over doubles: what their models do is played, what they find and answer is real."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.doubles import FakeTool, FakeToolbox, Ledger, Play, PlayedModel, reads
from torpor.subagents.definition import Subagent, SubagentDefinition
from torpor.subagents.results import ResultType
from torpor.subagents.text import Text
from torpor.toolhost.contract import ToolContext
from torpor.turn.agents import Agent
from torpor.turn.definition import AgentDefinition


def subagent(
    name: str,
    *plays: Play,
    tools: Iterable[FakeTool] = (),
    host: PlayedModel | None = None,
    ledger: Ledger | None = None,
    result: ResultType | None = None,
    **definition: Any,
) -> Subagent:
    """Args: plays: what its model does, call by call, whichever child of this name calls.  host: instead of them."""
    host = host or PlayedModel(plays)
    made = Agent(
        AgentDefinition(name=name, system=f"You are {name}.", model={"kind": "played"}),
        model=host,
        toolbox=FakeToolbox((reads("look"), *tools), ledger=ledger or Ledger()),
    )
    told = SubagentDefinition(name=name, description=f"Has {name} work.", system=f"You are {name}.", **definition)
    return Subagent(definition=told, agent=made, result=result or Text())


def spawning(name: str) -> FakeTool:
    """The tool by which a model has the sub-agent ``name`` work."""

    async def run(arguments: Mapping[str, Any], context: ToolContext) -> str:
        assert context.spawner is not None
        return await context.spawner.spawn(name, arguments["task"])

    return reads(name, run)
