"""A server that is killed at any point loses nothing, repeats nothing and lies to nobody.

Every run goes through the same scenario and is killed a few times on the way; see ``tests.support.kill_run``. The
points come from the code, so a new kind of record or frame has to be reached here before this passes again.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from tests.support.fault_points import fault_points
from tests.support.kill_run import KillRun
from tests.support.server_process import Fault

TOOLS = ("dig_out", "look_up", "pay_blindly", "pay_keyed", "pay_probed", "pay_slowly")
POINTS = fault_points(TOOLS)
ONLY_AFTER = {
    "append.lost:attempt_started": Fault(point="delta.flush"),
    "append.after:attempt_started": Fault(point="delta.flush"),
    "probe.start": Fault(point="tool.end:pay_probed"),
    "probe.end": Fault(point="tool.start:pay_probed"),
}
"""Points that only a recovery reaches, and where to be killed before."""
AT_ONCE = 2
"""Runs side by side."""
SHARES = 6
"""Tests among which the points are dealt out."""
LONG_SHARES = 12
"""The same where each run takes long."""


class Campaign:
    """Kills at every one of ``points``, several in a run where the scenario is long enough for them."""

    def __init__(
        self,
        folder: Path,
        points: Sequence[str],
        *,
        passed: dict[str, int],
        seed: int,
        kills: int,
        conversations: int = 1,
    ) -> None:
        """Args: passed: how often an undisturbed server passes each point.  kills: in one run, at most."""
        self._folder = folder
        self._passed = dict(passed)
        self._chance = random.Random(seed)
        self._kills = kills
        self._conversations = conversations
        self._waiting = self._chance.sample(points, len(points))
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
        later = [point for point in reversed(self._waiting) if point not in ONLY_AFTER][: self._kills - 1 - len(lead)]
        for point in later:
            self._waiting.remove(point)
        # A later life passes fewer points, so what is met there is met early.
        return [*lead, self._fault(first, share=1), *(self._fault(point, share=6) for point in later)]

    def _fault(self, point: str, *, share: int) -> Fault:
        return Fault(point=point, nth=self._chance.randint(1, max(1, self._passed.get(point, 1) // share)))

    async def _run(self, plan: list[Fault]) -> None:
        self._runs += 1
        run = KillRun(self._folder / f"run-{self._runs}", conversations=self._conversations)
        command = f"python -m tests.support.kill_run --conversations {self._conversations}"
        named = f"[{command} {' '.join(map(str, plan))}]"
        try:
            reached = await run.survive(plan)
        except TimeoutError:
            self.faults += (f"{named} {fault}" for fault in (*run.faults(), "somebody waits for ever"))
            return
        self.reached.update(fault.point for fault in reached)
        self.faults += (f"{named} {fault}" for fault in run.faults())
        if not reached and plan[0].nth == 1:
            self.faults.append(f"{named} was never reached")
            return
        missed = [fault.point for fault in plan if fault not in reached]
        self._waiting[:0] = [point for point in missed if point not in self.reached]
        if not reached:
            self._passed[plan[0].point] = 1  # how often frames share a send is a matter of chance


@pytest.fixture(scope="module")
async def passed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, int]]:
    """How often a server passes each point when nobody kills it, by the number of conversations."""
    return {many: await undisturbed(tmp_path_factory, conversations=many) for many in (1, 20)}


async def undisturbed(tmp_path_factory: pytest.TempPathFactory, *, conversations: int) -> dict[str, int]:
    run = KillRun(tmp_path_factory.mktemp("calm") / "run", conversations=conversations)
    await run.survive([])
    assert run.faults() == []
    return run.passed


async def test_the_scenario_passes_every_point_that_no_recovery_is_needed_for(
    passed: dict[int, dict[str, int]],
) -> None:
    assert set(POINTS) - set(passed[1]) == set(ONLY_AFTER)


def dealt(share: int, *, of: int = SHARES, seed: int) -> list[str]:
    """One of so many parts of the points, shuffled."""
    return random.Random(seed).sample(POINTS, len(POINTS))[share::of]


@pytest.mark.parametrize("share", range(SHARES))
async def test_a_server_killed_at_any_point_loses_nothing_and_repeats_nothing(
    passed: dict[int, dict[str, int]], tmp_path: Path, share: int
) -> None:
    points = dealt(share, seed=1)
    campaign = Campaign(tmp_path, points, passed=passed[1], seed=share, kills=4)
    await campaign.fight()
    assert campaign.faults == []
    assert campaign.reached >= set(points)


@pytest.mark.parametrize("share", range(2))
async def test_twenty_conversations_at_once_survive_every_kill(
    passed: dict[int, dict[str, int]], tmp_path: Path, share: int
) -> None:
    points = dealt(share, of=LONG_SHARES, seed=2)
    campaign = Campaign(tmp_path, points, passed=passed[20], seed=share, kills=3, conversations=20)
    await campaign.fight()
    assert campaign.faults == []
    assert campaign.reached >= set(points)


# A read overlaps with its own record, so its first attempt may leave no trace; these two are on record when they act.
@pytest.mark.parametrize("point", ["delta.flush", "tool.start:pay_keyed"])
async def test_a_step_that_kills_its_process_three_times_ends_its_turn_and_nothing_else(
    point: str, tmp_path: Path
) -> None:
    run = KillRun(tmp_path / "run")
    plan = [Fault(point=point)] * 3
    assert await run.survive(plan) == plan
    assert run.faults() == []
    assert [turn.code for turn in run.turns() if turn.code] == ["crashed", "model_unavailable"]


@pytest.mark.soak
@pytest.mark.parametrize("share", range(LONG_SHARES))
@pytest.mark.parametrize("seed", range(100, 108))
@pytest.mark.parametrize("conversations", [1, 20])
async def test_every_point_is_survived_at_many_occurrences(
    passed: dict[int, dict[str, int]], tmp_path: Path, share: int, seed: int, conversations: int
) -> None:
    points = dealt(share, of=LONG_SHARES, seed=seed)
    kills = 1 + seed % 4
    campaign = Campaign(
        tmp_path, points, passed=passed[conversations], seed=seed, kills=kills, conversations=conversations
    )
    await campaign.fight()
    assert campaign.faults == []
    assert campaign.reached >= set(points)
