"""``JobStore`` over any backend: changes go through its one writer, reads to whatever reads it.

Above: the runner and operators. Below: the backend's writer, so that claims and ends of jobs share the flushes of
appends; and its ``JobReads``, which never wait.
"""

from collections.abc import Collection
from typing import Protocol

import anyio.lowlevel
import msgspec

from torpor.records.ids import ConversationKey
from torpor.store.job_contract import JobCounts, JobState, Owner, StoredJob
from torpor.store.requests import ClaimJob, DropJob, HastenJobs, RedoJob, SettleJob
from torpor.store.writer import Writer


class JobReads(Protocol):
    """The reading half of ``JobStore``."""

    def due_jobs(
        self, *, now_us: int, limit: int, kinds: Collection[str], passing_over: Collection[Owner]
    ) -> tuple[StoredJob, ...]: ...

    def next_job_us(self, *, now_us: int, kinds: Collection[str]) -> int | None: ...

    def find_job(self, key: ConversationKey, job_id: str) -> StoredJob | None: ...

    def list_jobs(
        self,
        *,
        tenant: str | None,
        owner: str | None,
        conversation: str | None,
        state: JobState | None,
        limit: int,
        after: tuple[ConversationKey, str] | None,
    ) -> tuple[StoredJob, ...]: ...

    def count_jobs(self, *, now_us: int) -> JobCounts: ...


class JobPort:
    """Implements ``store.job_contract.JobStore``."""

    def __init__(self, writer: Writer, reads: JobReads, *, fence: int = 0) -> None:
        """Args: fence: the number of the process's start, where claims end with it."""
        self._writer = writer
        self._reads = reads
        self._fence = fence

    async def due_jobs(
        self, *, now_us: int, limit: int, kinds: Collection[str], passing_over: Collection[Owner] = ()
    ) -> tuple[StoredJob, ...]:
        await anyio.lowlevel.checkpoint()
        return self._reads.due_jobs(now_us=now_us, limit=limit, kinds=kinds, passing_over=passing_over)

    async def next_job_us(self, *, now_us: int, kinds: Collection[str]) -> int | None:
        await anyio.lowlevel.checkpoint()
        return self._reads.next_job_us(now_us=now_us, kinds=kinds)

    async def claim_job(self, job: StoredJob, *, holder: str, until_us: int, now_us: int) -> StoredJob:
        request = ClaimJob(
            key=job.key,
            id=job.id,
            token=job.token,
            fence=self._fence,
            holder=holder,
            until_us=until_us,
            now_us=now_us,
        )
        await self._writer.submit(request).wait()
        # The token was that of the row, so nothing of it can have changed but this.
        return msgspec.structs.replace(job, state=JobState.RUNNING, attempts=job.attempts + 1, token=job.token + 1)

    async def finish_job(self, claimed: StoredJob) -> None:
        await self._settle(claimed, state=None)

    async def retry_job(self, claimed: StoredJob, *, due_us: int, error: str) -> None:
        await self._settle(claimed, state=JobState.WAITING, due_us=due_us, error=error)

    async def put_back_job(self, claimed: StoredJob) -> None:
        await self._settle(claimed, state=JobState.WAITING, counts=False)

    async def bury_job(self, claimed: StoredJob, *, reason: str, counts: bool = True) -> None:
        await self._settle(claimed, state=JobState.DEAD, error=reason, counts=counts)

    async def find_job(self, key: ConversationKey, job_id: str) -> StoredJob | None:
        await anyio.lowlevel.checkpoint()
        return self._reads.find_job(key, job_id)

    async def list_jobs(
        self,
        *,
        tenant: str | None = None,
        owner: str | None = None,
        conversation: str | None = None,
        state: JobState | None = None,
        limit: int,
        after: tuple[ConversationKey, str] | None = None,
    ) -> tuple[StoredJob, ...]:
        await anyio.lowlevel.checkpoint()
        return self._reads.list_jobs(
            tenant=tenant, owner=owner, conversation=conversation, state=state, limit=limit, after=after
        )

    async def count_jobs(self, *, now_us: int) -> JobCounts:
        await anyio.lowlevel.checkpoint()
        return self._reads.count_jobs(now_us=now_us)

    async def hasten_jobs(self, *, now_us: int, beyond_us: int) -> bool:
        return bool(await self._writer.submit(HastenJobs(now_us=now_us, beyond_us=beyond_us)).outcome())

    async def redo_job(self, key: ConversationKey, job_id: str, *, now_us: int) -> None:
        await self._writer.submit(RedoJob(key=key, id=job_id, now_us=now_us)).wait()

    async def drop_job(self, key: ConversationKey, job_id: str, *, now_us: int) -> None:
        await self._writer.submit(DropJob(key=key, id=job_id, now_us=now_us)).wait()

    async def _settle(
        self,
        claimed: StoredJob,
        *,
        state: JobState | None,
        due_us: int | None = None,
        error: str | None = None,
        counts: bool = True,
    ) -> None:
        request = SettleJob(
            key=claimed.key,
            id=claimed.id,
            token=claimed.token,
            fence=self._fence,
            state=state,
            due_us=due_us,
            error=error,
            counts=counts,
        )
        await self._writer.submit(request).wait()

    def __repr__(self) -> str:
        return f"<JobPort {self._writer!r}>"
