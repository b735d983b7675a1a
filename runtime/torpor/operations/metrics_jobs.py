"""The jobs of a store as numbers."""

import msgspec

from torpor.clock import Clock
from torpor.store.job_contract import JobStore

_MICROSECONDS = 1_000_000


class JobStoreStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs now."""

    waiting: int
    due: int
    running: int
    dead: int
    lag_s: float
    """For how long the oldest has been due."""


async def count_jobs(store: JobStore, *, clock: Clock) -> JobStoreStatistics:
    """Raises: StoreError: they cannot be read."""
    now_us = clock.now_us()
    counts = await store.count_jobs(now_us=now_us)
    lag_us = max(now_us - counts.oldest_due_us, 0) if counts.oldest_due_us is not None else 0
    return JobStoreStatistics(
        waiting=counts.waiting,
        due=counts.due,
        running=counts.running,
        dead=counts.dead,
        lag_s=lag_us / _MICROSECONDS,
    )
