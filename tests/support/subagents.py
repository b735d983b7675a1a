"""Sub-agents over doubles: what their models do is played, what they find and answer is real."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from tests.support.doubles import CountingIds, FakeTool, FakeToolbox, Ledger, Play, PlayedModel, calls, reads, use
from tests.support.engine import DEADLINE_S, KEY, Engine
from tests.support.tools import DictBlobs
from torpor.model.contract import Model
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord, SubagentFinished, SubagentStarted, ToolFinished
from torpor.subagents.definition import Subagent, SubagentDefinition
from torpor.subagents.results import ResultType
from torpor.subagents.text import Text
from torpor.toolhost.contract import Elsewhere, Finding, ToolContext, ToolResult
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.places import Places
from torpor.toolhost.subagent_tools import subagent_tool
from torpor.toolhost.toolbox import LocalToolbox
from torpor.turn.agents import Agent
from torpor.turn.definition import AgentDefinition

LATER = 1_000
"""Names that an engine after another one begins with."""


def subagent(
    name: str,
    *plays: Play,
    tools: Iterable[FakeTool] = (),
    host: Model | None = None,
    ledger: Ledger | None = None,
    result: ResultType | None = None,
    elsewhere: Elsewhere | None = None,
    **definition: Any,
) -> Subagent:
    """Args: plays: what its model does, call by call, whichever child of this name calls.  host: instead of them.
    elsewhere: where it has more tools from."""
    made = Agent(
        AgentDefinition(name=name, system=f"You are {name}.", model={"kind": "played"}),
        model=host or PlayedModel(plays),
        toolbox=FakeToolbox((reads("look"), *tools), ledger=ledger or Ledger()),
        elsewhere=elsewhere,
    )
    told = SubagentDefinition(name=name, description=f"Has {name} work.", system=f"You are {name}.", **definition)
    return Subagent(definition=told, agent=made, result=result or Text())


def spawning(name: str, *, seconds: float = 120.0) -> FakeTool:
    """The tool by which a model has the sub-agent ``name`` work: the real one, behind the real edge."""
    declared = subagent_tool(name, description=f"Has {name} work.", seconds=seconds)
    options = ToolOptions()
    toolbox = LocalToolbox([declared], blobs=DictBlobs(), places=Places(options, calls=None), options=options)
    spec = toolbox.spec(name)
    assert spec is not None

    async def run(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return await toolbox.call(name, msgspec.Raw(msgspec.json.encode(arguments)), context)

    return FakeTool(spec, run, None)


def asks(*names: str, task: str = "find out") -> Play:
    """A model that has these sub-agents work, all at once."""
    return calls(*(use(name, f"call_{number}", task=task) for number, name in enumerate(names)))


def searching(*, name: str = "search") -> FakeTool:
    """A tool of a child that finds the ``ids`` it is asked for, and collects them past the model."""

    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        assert context.collector is not None
        for id_ in arguments["ids"]:
            await context.collector.found(
                Finding(id=id_, title=f"On {id_}", locator=f"shelf {id_}", excerpt="as it is")
            )
        return f"found {len(arguments['ids'])}"

    return reads(name, run)


def selecting() -> FakeTool:
    """A tool of a child that selects ``ids`` as it goes."""

    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        assert context.collector is not None
        chosen = await context.collector.select(arguments["ids"])
        return f"selected {', '.join(chosen.counted)}; unknown {', '.join(chosen.unknown)}"

    return reads("select", run)


def later_ids() -> CountingIds:
    """Names that an engine before this one did not give."""
    ids = CountingIds()
    for _ in range(LATER):
        ids.new_id()
    return ids


def results_of(records: Sequence[JournalRecord]) -> list[ToolFinished]:
    return [record for record in records if isinstance(record, ToolFinished)]


def ended(records: Sequence[JournalRecord]) -> list[SubagentFinished]:
    return [record for record in records if isinstance(record, SubagentFinished)]


def begun(records: Sequence[JournalRecord]) -> list[SubagentStarted]:
    return [record for record in records if isinstance(record, SubagentStarted)]


def said(result: ToolFinished) -> str:
    """What the model is told."""
    block: dict[str, Any] = msgspec.json.decode(result.block)
    return str(block["content"])


async def children(engine: Engine, key: ConversationKey = KEY) -> tuple[ConversationKey, ...]:
    """Of which a journal was begun, grandchildren included."""
    return tuple(row.key for row in await engine.store.children(key, limit=100))


async def until_ended(engine: Engine, count: int = 1, key: ConversationKey = KEY) -> list[SubagentFinished]:
    """Wait until so many sub-agents are on record as ended."""
    with anyio.fail_after(DEADLINE_S):
        while len(found := ended(await engine.records(key))) < count:
            await anyio.lowlevel.checkpoint()
    return found
