"""Whatever fails, every job ends: done, or dead for a reason; never lost, never tried too often, never unfair.

Seeded runs on a virtual clock. A life ends by a kill: what the store held in that moment goes on in the next one.
"""

import copy
from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random

import anyio
import msgspec
import pytest
import structlog

from tests.simulation.deterministic import run
from tests.support.doubles import LoopClock
from tests.support.job_house import KIND, conversation
from tests.support.sample_records import opening
from tests.support.writing import lease_of, put
from torpor.errors import JobFailed, JobImpossible, StoreFull, StoreUnavailable
from torpor.jobs.options import JobOptions
from torpor.jobs.runner import JobRunner
from torpor.records.ids import ConversationKey
from torpor.store.contract import Job
from torpor.store.in_memory import InMemoryStore
from torpor.store.job_contract import JobState, StoredJob
from torpor.store.memory_data import MemoryCore, MemoryData
from torpor.store.requests import ClaimJob, Outcome, Request, SettleJob

OPTIONS = JobOptions(deadline_s=20.0, backoff_s=1.0, backoff_max_s=30.0, attempts_max=4, stop_deadline_s=0.0)
OWNERS = ("ann", "bob", "zoe")
ENDS_S = 4_000.0
"""Long after the last pause and the last claim of a process that was killed."""
SEEDS = 50
"""Of each share."""
_Place = tuple[ConversationKey, str]


class Unreliable(MemoryCore):
    """Refuses some writes, and loses the answers to some others."""

    def __init__(self, data: MemoryData, *, chance: Random) -> None:
        super().__init__(data)
        self._chance = chance

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Outcome:
        luck = self._chance.random() if isinstance(request, ClaimJob | SettleJob) else 1.0
        if luck < 0.1:
            return StoreFull("no space left")
        (outcome,) = super().commit([request])
        return StoreUnavailable("disk I/O error") if luck < 0.2 else outcome


class World:
    """Does jobs badly, and notes what it did; outlives every process."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.began: Counter[_Place] = Counter()
        self.done: set[_Place] = set()
        self.given_up: set[_Place] = set()
        self.uncounted = False
        """Whether an attempt began that was not counted first."""
        self.running: list[StoredJob] = []
        self.crowd = 0
        self.crowd_of_one = 0

    async def run(self, job: StoredJob, *, attempt: int) -> None:
        place = (job.key, job.id)
        self.began[place] += 1
        self.uncounted |= self.began[place] > attempt
        self.running.append(job)
        self.crowd = max(self.crowd, len(self.running))
        self.crowd_of_one = max(self.crowd_of_one, *Counter(other.owner for other in self.running).values())
        try:
            await anyio.sleep(self.chance.choice((0.0, 1.0, 5.0, 30.0)))
            self._end(place)
        finally:
            self.running.remove(job)

    def _end(self, place: _Place) -> None:
        luck = self.chance.random()
        if luck < 0.2:
            raise JobFailed("no answer", retry_after_s=self.chance.choice((None, 0.0, 100.0)))
        if luck < 0.25:
            self.given_up.add(place)
            raise JobImpossible("never")
        if luck < 0.3:
            raise ZeroDivisionError
        self.done.add(place)


async def ordered(data: MemoryData, chance: Random) -> set[_Place]:
    """A few jobs for each owner, most of them for one."""
    places: set[_Place] = set()
    async with InMemoryStore(data) as store:
        for owner, count in zip(OWNERS, (12, 3, 1), strict=True):
            key = conversation(owner)
            jobs = [
                Job(id=f"j_{number}", kind=KIND, due_us=LoopClock().now_us() + chance.choice((0, 10_000_000)))
                for number in range(count)
            ]
            await put(store, await lease_of(store, key), opening(), jobs=jobs)
            places |= {(key, job.id) for job in jobs}
    return places


async def live(data: MemoryData, world: World, *, name: str, lasts_s: float) -> MemoryData:
    """One process from its start to its kill; what it leaves."""
    core = Unreliable(data, chance=world.chance)
    async with InMemoryStore(data, core=core, latency=lambda: world.chance.random() * 0.01) as store:
        runner = JobRunner(store.job_store, clock=LoopClock(), options=OPTIONS, holder=name)
        runner.serve(KIND, world)
        async with runner.running():
            await anyio.sleep(lasts_s)
            return copy.deepcopy(data)


async def lives(seed: int) -> tuple[World, set[_Place], tuple[StoredJob, ...]]:
    world, data = World(seed), MemoryData()
    places = await ordered(data, world.chance)
    for number in range(world.chance.randrange(4)):
        data = await live(data, world, name=f"s_{number}", lasts_s=world.chance.uniform(0, 60))
    data = await live(data, world, name="last", lasts_s=ENDS_S)
    return (
        world,
        places,
        data.jobs.list_jobs(tenant=None, owner=None, conversation=None, state=None, limit=1000, after=None),
    )


@pytest.mark.parametrize("share", [0, *(pytest.param(share, marks=pytest.mark.soak) for share in range(1, 20))])
def test_every_job_ends_and_none_is_tried_too_often(share: int) -> None:
    ends: Counter[str] = Counter()
    for seed in range(SEEDS * share, SEEDS * share + SEEDS):
        with structlog.testing.capture_logs():
            world, places, left = run(seed, partial(lives, seed))
        dead = {(job.key, job.id) for job in left}
        assert {job.state for job in left} <= {JobState.DEAD}, f"seed {seed}: {left}"
        assert places - dead <= world.done, f"seed {seed}: gone and never done"
        assert world.given_up - world.done <= dead, f"seed {seed}: impossible, and not kept"
        exhausted = {(job.key, job.id) for job in left if job.attempts >= OPTIONS.attempts_max}
        assert dead - exhausted <= world.given_up, f"seed {seed}: dead without a reason"
        assert max(world.began.values()) <= OPTIONS.attempts_max, f"seed {seed}"
        assert not world.uncounted, f"seed {seed}"
        assert world.crowd <= OPTIONS.concurrency
        assert world.crowd_of_one <= OPTIONS.owner_concurrency, f"seed {seed}"
        ends.update(done=len(places - dead), exhausted=len(exhausted), given_up=len(dead - exhausted))
    assert min(ends.values()) > 0, ends


def test_a_run_is_the_same_again() -> None:
    first, again = (run(7, partial(lives, 7)) for _ in range(2))
    assert first[0].began == again[0].began
    assert msgspec.json.encode([job.token for job in first[2]]) == msgspec.json.encode([job.token for job in again[2]])
