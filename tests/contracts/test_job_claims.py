"""Claims proper: two processes over one medium, where a claim lapses, and what one of them cannot do to the other."""

from collections.abc import AsyncIterator

import pytest

from tests.support.sample_records import START_US, opening, requested
from tests.support.writing import lease_of, put
from torpor.errors import JobLost
from torpor.store.contract import Job
from torpor.store.in_memory import InMemoryStore
from torpor.store.job_contract import JobState, JobStore, StoredJob
from torpor.store.memory_data import MemoryData

UNTIL_US = START_US + 1_000
Jobs = tuple[JobStore, JobStore]


@pytest.fixture
async def both() -> AsyncIterator[Jobs]:
    """Two stores over the same data, with one job in it."""
    data = MemoryData()
    async with InMemoryStore(data) as first, InMemoryStore(data) as second:
        await put(first, await lease_of(first), opening(), jobs=[Job(id="j", kind="refresh", due_us=START_US)])
        yield first.job_store, second.job_store


async def found(jobs: JobStore, *, now_us: int) -> tuple[StoredJob, ...]:
    return await jobs.due_jobs(now_us=now_us, limit=9, kinds={"refresh"})


async def claim(jobs: JobStore, holder: str, *, now_us: int) -> StoredJob:
    (job,) = await jobs.list_jobs(limit=9)
    return await jobs.claim_job(job, holder=holder, until_us=now_us + 1_000, now_us=now_us)


async def test_a_claim_keeps_others_away_until_it_lapses(both: Jobs) -> None:
    first, second = both
    await claim(first, "s_1", now_us=START_US)
    assert await found(second, now_us=UNTIL_US - 1) == ()
    with pytest.raises(JobLost):
        await claim(second, "s_2", now_us=UNTIL_US - 1)
    assert await second.next_job_us(now_us=START_US, kinds={"refresh"}) == UNTIL_US
    assert [job.attempts for job in await found(second, now_us=UNTIL_US)] == [1]
    assert (await claim(second, "s_2", now_us=UNTIL_US)).attempts == 2


async def test_who_lost_a_claim_settles_nothing(both: Jobs) -> None:
    first, second = both
    old = await claim(first, "s_1", now_us=START_US)
    new = await claim(second, "s_2", now_us=UNTIL_US)
    for settling in (first.finish_job(old), first.put_back_job(old), first.bury_job(old, reason="x")):
        with pytest.raises(JobLost):
            await settling
    await second.finish_job(new)
    assert await first.list_jobs(limit=9) == ()


async def test_a_name_used_again_is_another_job() -> None:
    async with InMemoryStore() as store:
        jobs, order = store.job_store, [Job(id="j", kind="refresh", due_us=START_US)]
        await put(store, await lease_of(store), opening(), jobs=order)
        old = await claim(jobs, "s_1", now_us=START_US)
        await jobs.finish_job(await claim(jobs, "s_2", now_us=UNTIL_US))
        await put(store, await lease_of(store), [requested(3, at_us=UNTIL_US)], jobs=order)
        await claim(jobs, "s_2", now_us=UNTIL_US)
        with pytest.raises(JobLost):
            await jobs.finish_job(old)
        (job,) = await jobs.list_jobs(limit=9)
        assert job.state is JobState.RUNNING
