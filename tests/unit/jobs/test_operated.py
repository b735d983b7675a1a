"""What operators do with jobs, and what they are told."""

import pytest

from tests.support.doubles import Gate
from tests.support.job_house import House, conversation, running_house, stops_at
from torpor.errors import JobFailed, JobImpossible, JobIsRunning, UnknownJob
from torpor.jobs.operated import OperatedJobs
from torpor.store.job_contract import JobCounts, JobState, StoredJob

KEY = conversation("ann")


def operated(house: House) -> OperatedJobs:
    return OperatedJobs(house.jobs, clock=house.clock, wake=house.runner.wake, retry_after_s=2.0)


async def test_a_dead_job_that_is_redone_runs_without_waiting_for_a_look() -> None:
    errors = [JobImpossible("no such turn")]

    async def deed(job: StoredJob) -> None:
        if errors:
            raise errors.pop()

    async with running_house(deed) as house:
        await house.order("a")
        await house.until_idle()
        (dead,) = await operated(house).listed(state=JobState.DEAD, limit=9)
        assert await operated(house).counted() == JobCounts(dead=1)
        await operated(house).redo(dead.key, dead.id)
        await house.until(lambda: house.doer.runs == [("a", 1), ("a", 1)])
        await house.until_idle()
        assert await operated(house).counted() == JobCounts()


async def test_a_job_that_waits_can_be_dropped() -> None:
    async def deed(job: StoredJob) -> None:
        raise JobFailed("no answer")

    async with running_house(deed) as house:
        await house.order("a")
        await house.until_idle()
        await operated(house).drop(KEY, "a")
        await house.advance(3600)
        assert house.doer.runs == [("a", 1)]
        with pytest.raises(UnknownJob, match="no job 'acme/ann/c_1/a' here"):
            await operated(house).drop(KEY, "a")
        with pytest.raises(UnknownJob):
            await operated(house).redo(KEY, "a")


async def test_whoever_ordered_a_job_hears_that_it_was_dropped() -> None:
    heard: list[tuple[str, str]] = []

    async def hear(job: StoredJob, why: str) -> None:
        heard.append((job.id, why))

    async def deed(job: StoredJob) -> None:
        raise JobFailed("no answer")

    async with running_house(deed) as house:
        await house.order("a")
        await house.until_idle()
        await OperatedJobs(house.jobs, clock=house.clock, dropped=hear).drop(KEY, "a")
    assert heard == [("a", "an operator dropped it")]


async def test_a_job_that_runs_is_left_alone() -> None:
    gate = Gate()
    async with running_house(stops_at(gate)) as house:
        await house.order("a")
        await gate.reached.wait()
        for act in (operated(house).redo, operated(house).drop):
            with pytest.raises(JobIsRunning) as refused:
                await act(KEY, "a")
            assert refused.value.retry_after_s == 2.0
        gate.opened.set()
        await house.until_idle()
        assert house.doer.runs == [("a", 1)]
