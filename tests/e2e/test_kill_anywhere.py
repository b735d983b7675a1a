"""A server that is killed at any point loses nothing, repeats nothing and lies to nobody.

Every run goes through the same scenario and is killed a few times on the way; see ``tests.support.kill_run``. The
points come from the code, so a new kind of record, frame or job write has to be reached here before this passes again.
A sample of them is killed at whenever the tests run, all of them in the soak.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from tests.support.fault_points import fault_points
from tests.support.kill_run import KillRun
from tests.support.server_process import Fault

TOOLS = (
    "dig_out",
    "load_skill",
    "look_up",
    "pay_blindly",
    "pay_keyed",
    "pay_probed",
    "pay_slowly",
    "read_earlier",
    "scout",
    "track",
    "tracker",
)
UNREACHED = {
    "put_back_job.before": "only a stop in peace puts back what it cuts off, and it waits for the visitors",
    "put_back_job.after": "likewise; tests/e2e/test_kill_jobs.py stops a server in the middle of a job",
    "frame:status": "nobody sets a conversation aside here; tests/simulation does",
    **{
        f"append.{when}:{kind}": "the visitors of this scenario only talk; tests/simulation stops servers here"
        for when in ("lost", "after")
        for kind in (
            *("conversation_renamed", "conversation_archived", "conversation_unarchived", "conversation_forked"),
            *("message_retracted", "preamble_returned", "flags_returned"),
        )
    },
}
"""Points that this scenario cannot pass, and why."""
POINTS = tuple(point for point in fault_points(TOOLS) if point not in UNREACHED)
ONLY_AFTER = {
    "append.lost:attempt_started.call_model": Fault(point="delta.flush"),
    "append.after:attempt_started.call_model": Fault(point="delta.flush"),
    "append.lost:attempt_started.run_tools": Fault(point="tool.end:pay_keyed"),
    "append.after:attempt_started.run_tools": Fault(point="tool.end:pay_keyed"),
    "probe.start": Fault(point="tool.end:pay_probed"),
    "probe.end": Fault(point="tool.start:pay_probed"),
}
"""Points that only a recovery reaches, and where to be killed before."""
AT_ONCE = 2
"""Runs side by side."""
SHARES = 20
"""Parts among which the points are dealt out."""
SAMPLED = 1
"""Of these, those that are no matter for the soak."""


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
        """Args: passed: how often an undisturbed conversation passes each point.  kills: in one run, at most."""
        self._folder = folder
        self._passed = {point: times * conversations for point, times in passed.items()}
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
async def passed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How often a server with one conversation passes each point when nobody kills it."""
    run = KillRun(tmp_path_factory.mktemp("calm") / "run")
    await run.survive([])
    assert run.faults() == []
    return run.passed


async def test_the_scenario_passes_every_point_that_no_recovery_is_needed_for(
    passed: dict[str, int],
) -> None:
    assert set(POINTS) - set(passed) == set(ONLY_AFTER)
    assert passed.keys() <= set(POINTS), "a point is not on the list"


def dealt(share: int, *, seed: int) -> list[str]:
    """One part of the points, shuffled."""
    return random.Random(seed).sample(POINTS, len(POINTS))[share::SHARES]


@pytest.mark.parametrize(
    "share", [*range(SAMPLED), *(pytest.param(share, marks=pytest.mark.soak) for share in range(SAMPLED, SHARES))]
)
async def test_a_server_killed_at_any_point_loses_nothing_and_repeats_nothing(
    passed: dict[str, int], tmp_path: Path, share: int
) -> None:
    points = dealt(share, seed=1)
    campaign = Campaign(tmp_path, points, passed=passed, seed=share, kills=4)
    await campaign.fight()
    assert campaign.faults == []
    assert campaign.reached >= set(points)


async def test_twenty_conversations_at_once_survive_every_kill(passed: dict[str, int], tmp_path: Path) -> None:
    points = dealt(0, seed=2)[:2]
    campaign = Campaign(tmp_path, points, passed=passed, seed=2, kills=3, conversations=20)
    await campaign.fight()
    assert campaign.faults == []
    assert campaign.reached >= set(points)


# A read overlaps with its own record, so its first attempt may leave no trace; these two are on record when they act.
@pytest.mark.parametrize("point", [pytest.param("delta.flush", marks=pytest.mark.soak), "tool.start:pay_keyed"])
async def test_a_step_that_kills_its_process_three_times_ends_its_turn_and_nothing_else(
    point: str, tmp_path: Path
) -> None:
    run = KillRun(tmp_path / "run")
    plan = [Fault(point=point)] * 3
    assert await run.survive(plan) == plan
    assert run.faults() == []
    assert [turn.code for turn in run.turns() if turn.code] == ["crashed", "model_unavailable"]


async def test_a_summary_that_kills_its_process_three_times_is_given_up_and_its_turn_goes_on(tmp_path: Path) -> None:
    run = KillRun(tmp_path / "run")
    plan = [Fault(point="summary.start")] * 3
    assert await run.survive(plan) == plan
    assert run.faults() == []
    assert [turn.code for turn in run.turns() if turn.code] == ["model_unavailable"]
    assert run.fold_failures().count("crashed") == 1


@pytest.mark.soak
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("seed", range(100, 108))
@pytest.mark.parametrize("conversations", [1, 20])
async def test_every_point_is_survived_at_many_occurrences(
    passed: dict[str, int], tmp_path: Path, share: int, seed: int, conversations: int
) -> None:
    points = dealt(share, seed=seed)
    kills = 1 + seed % 4
    campaign = Campaign(tmp_path, points, passed=passed, seed=seed, kills=kills, conversations=conversations)
    await campaign.fight()
    assert campaign.faults == []
    assert campaign.reached >= set(points)
