"""Jobs as operators see and steer them.

Above: the gateway, which knows who is an operator. Below: the store, and the runner's bell.
"""

from collections.abc import Awaitable, Callable

from torpor.clock import Clock
from torpor.errors import ClientError, JobIsRunning, JobLost, UnknownJob
from torpor.records.ids import ConversationKey
from torpor.store.job_contract import JobCounts, JobState, JobStore, StoredJob


async def unheard(job: StoredJob, why: str) -> None:
    """Nobody hears of it."""


class OperatedJobs:
    """See the module docstring.

    Args: wake: has the runner look for what is due.  retry_after_s: what is told of a job that runs.  dropped: hears of
        a job that will not be done.
    """

    def __init__(
        self,
        store: JobStore,
        *,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
        retry_after_s: float = 1.0,
        dropped: Callable[[StoredJob, str], Awaitable[None]] = unheard,
    ) -> None:
        self._store = store
        self._clock = clock
        self._wake = wake
        self._retry_after_s = retry_after_s
        self._dropped = dropped

    async def listed(
        self, *, state: JobState | None = None, limit: int, after: tuple[ConversationKey, str] | None = None
    ) -> tuple[StoredJob, ...]:
        """In order of key and id, behind ``after``."""
        return await self._store.list_jobs(state=state, limit=limit, after=after)

    async def counted(self) -> JobCounts:
        return await self._store.count_jobs(now_us=self._clock.now_us())

    async def redo(self, key: ConversationKey, job_id: str) -> None:
        """Have it run now, all its attempts before it. Raises: UnknownJob, JobIsRunning, StoreError."""
        try:
            await self._store.redo_job(key, job_id, now_us=self._clock.now_us())
        except JobLost:
            raise await self._refusal(key, job_id) from None
        self._wake()

    async def drop(self, key: ConversationKey, job_id: str) -> None:
        """Remove it, undone. Raises: as ``redo``."""
        job = await self._store.find_job(key, job_id)
        try:
            await self._store.drop_job(key, job_id, now_us=self._clock.now_us())
        except JobLost:
            raise await self._refusal(key, job_id) from None
        if job is not None:
            await self._dropped(job, "an operator dropped it")

    async def _refusal(self, key: ConversationKey, job_id: str) -> ClientError:
        path = f"{key.path}/{job_id}"
        if await self._store.find_job(key, job_id) is None:
            return UnknownJob(path)
        return JobIsRunning(path, retry_after_s=self._retry_after_s)
