"""A server that is killed at any point loses nothing, repeats nothing and lies to nobody.

Every run goes through the same scenario and is killed a few times on the way; see ``tests.support.kill_run``. The
points come from the code, so a new kind of record or frame has to be reached here before this passes again.
"""

import random
from pathlib import Path

import anyio
import pytest

from tests.support.fault_points import fault_points
from tests.support.kill_run import KillRun
from tests.support.server_process import Fault

TOOLS = ("dig_out", "look_up", "pay_blindly", "pay_keyed", "pay_probed", "pay_slowly")
POINTS = fault_points(TOOLS)
ONLY_AFTER = {
    "append.before:attempt_started": Fault(point="delta.flush"),
    "append.after:attempt_started": Fault(point="delta.flush"),
    "probe.start": Fault(point="tool.end:pay_probed"),
    "probe.end": Fault(point="tool.start:pay_probed"),
}
"""Points that only a recovery reaches, and where to be killed before."""
AT_ONCE = 3
"""Runs side by side."""


class Campaign:
    """Kills at every one of ``POINTS``, several in a run where the scenario is long enough for them."""

    def __init__(self, folder: Path, *, passed: dict[str, int], seed: int, kills: int, conversations: int = 1) -> None:
        """Args: passed: how often an undisturbed server passes each point.  kills: in one run, at most."""
        self._folder = folder
        self._passed = passed
        self._chance = random.Random(seed)
        self._kills = kills
        self._conversations = conversations
        self._waiting = self._chance.sample(POINTS, len(POINTS))
        self._runs = 0
        self.reached = set[str]()
        self.faults: list[str] = []

    async def fight(self) -> None:
        """Go on until every point has had its kill."""
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(self._fight)

    async def _fight(self) -> None:
        while self._waiting:
            await self._run(self._next_plan())

    def _next_plan(self) -> list[Fault]:
        first = self._waiting.pop()
        lead = [ONLY_AFTER[first]] if first in ONLY_AFTER else []
        nth = self._chance.randint(1, self._passed.get(first, 1))
        # A later life passes fewer points, so what follows is met the first time it is passed.
        later = [point for point in reversed(self._waiting) if point not in ONLY_AFTER][: self._kills - 1 - len(lead)]
        for point in later:
            self._waiting.remove(point)
        return [*lead, Fault(point=first, nth=nth), *(Fault(point=point) for point in later)]

    async def _run(self, plan: list[Fault]) -> None:
        self._runs += 1
        run = KillRun(self._folder / f"run-{self._runs}", conversations=self._conversations)
        reached = await run.survive(plan)
        self.reached.update(fault.point for fault in reached)
        named = " ".join(map(str, plan))
        self.faults += (f"[{named}] {fault}" for fault in run.faults())
        missed = [fault.point for fault in plan if fault not in reached]
        if missed == [fault.point for fault in plan]:
            self.faults.append(f"[{named}] was never reached")
        else:
            self._waiting[:0] = [point for point in missed if point not in self.reached]


@pytest.fixture(scope="module")
async def passed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How often a server passes each point when nobody kills it."""
    run = KillRun(tmp_path_factory.mktemp("calm") / "run")
    await run.survive([])
    assert run.faults() == []
    return run.passed


async def test_the_scenario_passes_every_point_that_no_recovery_is_needed_for(passed: dict[str, int]) -> None:
    assert set(POINTS) - set(passed) == set(ONLY_AFTER)


async def test_a_server_killed_at_any_point_loses_nothing_and_repeats_nothing(
    passed: dict[str, int], tmp_path: Path
) -> None:
    campaign = Campaign(tmp_path, passed=passed, seed=1, kills=4)
    await campaign.fight()
    assert campaign.faults == []
    assert set(POINTS) - campaign.reached == set()
