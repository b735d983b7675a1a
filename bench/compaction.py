"""What folding older turns buys and costs: ``python -m bench.compaction [--json]``. Rows C2 and X2.

A thaw is measured after each of so many turns that every place between two snapshots is met; the mean of them counts.
"""

import sys
from collections.abc import Callable, Iterator
from statistics import mean
from typing import Final

from bench import command
from bench.context import Conversation, median_us
from bench.engine import running_engine
from bench.measure import Cpu, Figures, folder_in_memory, probe
from bench.report import Row
from bench.sides import taking_turns
from bench.work import InstantModel, InstantTools
from torpor.conversation.budget import PROFILES
from torpor.conversation.steps import CallModel, Folding, Lane, StepOptions, next_step
from torpor.conversation.summary import CompactionOptions
from torpor.skillbook.options import SkillOptions
from torpor.skillbook.reload import SkillBook
from torpor.turn.agents import Agent
from torpor.turn.definition import AgentDefinition

MODULE: Final = "bench.compaction"
FOLDED: Final = PROFILES["companion"]
SHORT_TURNS: Final = 20
LONG_TURNS: Final = 1_000
_PLACES: Final = 30
"""Turns after which a thaw is measured: more than lie between two snapshots."""
_THAWS: Final = 4
_CHECKS: Final = 200


async def of_thaws() -> Figures:
    """Milliseconds of CPU from a sleeping conversation that is folded to one that can answer, by turns so far."""
    figures: Figures = {}
    with folder_in_memory() as folder:
        async with running_engine(folder, profile=FOLDED) as engine:
            other = engine.talker("other")
            for turns in (SHORT_TURNS, LONG_TURNS):
                sleeper = engine.talker(f"slept_{turns}")
                await taking_turns([sleeper], turns=turns)
                places = list[float]()
                for _ in range(_PLACES):
                    await taking_turns([sleeper, other], turns=1)
                    taken = list[float]()
                    for _ in range(_THAWS):
                        await sleeper.hibernate()
                        cpu = Cpu()
                        await sleeper.thaw()
                        taken.append(cpu.seconds * 1e3)
                    places.append(min(taken))
                figures[f"{turns}"] = mean(places)
    return figures


def check_us(turns: int) -> float:
    """Microseconds of the decision before a model call, with so many turns in the view."""
    definition = AgentDefinition(name="clerk", system="You answer.", model={"kind": "instant"})
    agent = Agent(definition, model=InstantModel(), toolbox=InstantTools())
    conversation = Conversation(agent, SkillBook((), options=SkillOptions()))
    for number in range(1, turns + 1):
        conversation.take_turn(number)
    conversation.begin(turns + 1)
    state, steps, options = conversation.state, StepOptions(), CompactionOptions()

    def check() -> object:
        return next_step(state, Lane.TURN, steps, 0, folding=Folding(window=agent.window(4.0), options=options))

    assert isinstance(check(), CallModel)
    return _cheapest_us(check)


def _cheapest_us(work: Callable[[], object]) -> float:
    """CPU of one call, by the median of many together: one alone is near what a clock can tell."""

    def many() -> None:
        for _ in range(_CHECKS):
            work()

    return median_us(many) / _CHECKS


def rows() -> Iterator[Row]:
    thaws = probe(MODULE, "thaws")
    yield Row(
        id="C2",
        what=f"CPU of a thaw after {LONG_TURNS:,} turns, folded",
        unit="ms",
        torpor=thaws[f"{LONG_TURNS}"],
        base=thaws[f"{SHORT_TURNS}"],
        base_name=f"{SHORT_TURNS} turns",
        ratio_at_most=1.3,
    )
    for turns in (SHORT_TURNS, LONG_TURNS):
        what = f"decision what to fold, {turns:,} turns"
        yield Row(id="X2", what=what, unit="us", torpor=check_us(turns), at_most=10)


if __name__ == "__main__":
    sys.exit(command.run(MODULE, rows=rows, probes={"thaws": of_thaws}))
