"""Jobs of a store as numbers."""

from typing import Any, cast

import pytest

from tests.support.doubles import ManualClock
from torpor.operations.metrics_jobs import JobStoreStatistics, count_jobs
from torpor.store.job_contract import JobCounts, JobStore


class Counted:
    """Of a ``JobStore``, its counts."""

    def __init__(self, counts: JobCounts) -> None:
        self.counts = counts

    async def count_jobs(self, *, now_us: int) -> JobCounts:
        return self.counts


@pytest.mark.parametrize(("ago_us", "lag_s"), [(None, 0.0), (2_500_000, 2.5), (-1_000_000, 0.0)])
async def test_lag_is_how_long_the_oldest_job_has_been_due(ago_us: int | None, lag_s: float) -> None:
    clock: Any = ManualClock()
    oldest_us = None if ago_us is None else clock.now_us() - ago_us
    counts = JobCounts(waiting=4, due=3, running=2, dead=1, oldest_due_us=oldest_us)

    told = await count_jobs(cast("JobStore", Counted(counts)), clock=clock)

    assert told == JobStoreStatistics(waiting=4, due=3, running=2, dead=1, lag_s=lag_s)
