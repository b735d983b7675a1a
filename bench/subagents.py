"""Row S1: what a sub-agent costs beside its model calls, its whole life long.

``python -m bench.subagents [--json]``. Turns in which one of the tools has a sub-agent do the usual work of a turn, and
turns in which it answers at once; the difference is the sub-agent: its record, its journal, its own turn, its answer.
It is compared with a turn of a conversation that does the same work.
"""

import statistics
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import msgspec

from bench.command import run
from bench.engine import running_engine
from bench.report import Row
from bench.work import SYSTEM_PROMPT, TOOL_NAMES, TURN, InstantModel, InstantTools
from torpor.records.terms import Outcome
from torpor.subagents.definition import Subagent, SubagentDefinition
from torpor.subagents.text import Text
from torpor.toolhost.contract import ToolContext, ToolResult
from torpor.turn.agents import Agent
from torpor.turn.definition import AgentDefinition

TURNS: Final = 300
"""That are timed, in each of the kinds; the median counts."""
WARM: Final = 30
SCOUT: Final = "scout"


class Delegating(InstantTools):
    """The first of the two tools has a sub-agent work."""

    async def call(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult:
        if name != TOOL_NAMES[0] or context.spawner is None:
            return await super().call(name, arguments, context)
        said = await context.spawner.spawn(SCOUT, "look up what there is of Ada Lovelace")
        return ToolResult(outcome=Outcome.SUCCEEDED, text=said)


def scout() -> Mapping[str, Subagent]:
    """One that does the work of a usual turn."""
    definition = SubagentDefinition(name=SCOUT, description="Looks things up.", system=SYSTEM_PROMPT)
    agent = Agent(
        AgentDefinition(name=SCOUT, system=SYSTEM_PROMPT, model={"kind": "instant"}),
        model=InstantModel(TURN),
        toolbox=InstantTools(TURN),
    )
    return {SCOUT: Subagent(definition=definition, agent=agent, result=Text())}


async def turn_us(data: Path, *, is_delegating: bool) -> float:
    """CPU of one turn of this process, the store's thread included."""
    taken = []
    toolbox = Delegating(TURN) if is_delegating else InstantTools(TURN)
    async with running_engine(data, toolbox=toolbox, subagents=scout()) as engine:
        talker = engine.talker("c1")
        for number in range(WARM + TURNS):
            began = time.process_time_ns()
            await talker.turn()
            if number >= WARM:
                taken.append((time.process_time_ns() - began) / 1_000)
    return statistics.median(taken)


def rows() -> Iterable[Row]:
    """Measured in this process, one kind after the other."""
    with TemporaryDirectory(prefix="torpor-bench-") as folder:
        plain = anyio.run(lambda: turn_us(Path(folder, "plain"), is_delegating=False))
        delegating = anyio.run(lambda: turn_us(Path(folder, "delegating"), is_delegating=True))
    yield Row(
        id="S1",
        what="CPU of a sub-agent from its start to its answer",
        unit="us",
        torpor=delegating - plain,
        base=plain,
        base_name="a turn of the same work",
        ratio_at_most=2.0,
    )


if __name__ == "__main__":
    sys.exit(run("bench.subagents", rows=rows, probes={}))
