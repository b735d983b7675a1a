"""A runner over an in-memory store, with a handler that the test drives."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import msgspec

from tests.support.doubles import Gate, LoopClock, ManualClock
from tests.support.sample_records import created, message, requested
from tests.support.writing import DEADLINE_S, lease_of, put
from torpor.jobs.options import JobOptions
from torpor.jobs.runner import JobRunner
from torpor.records.ids import ConversationKey
from torpor.store.contract import Job
from torpor.store.in_memory import InMemoryStore
from torpor.store.job_contract import JobStore, StoredJob
from torpor.store.memory_data import MemoryData
from torpor.store.requests import CommitCore

OPTIONS = JobOptions(backoff_s=10.0, poll_s=3600.0, store_retry_s=0.01, stop_deadline_s=5.0)
KIND = "refresh"

Deed = Callable[[StoredJob], Awaitable[None]]


def conversation(owner: str, place: int = 1) -> ConversationKey:
    return ConversationKey("acme", owner, f"c_{place}")


async def nothing(job: StoredJob) -> None:
    await anyio.lowlevel.checkpoint()


def stops_at(gate: Gate) -> Deed:
    """Waits at the gate."""

    async def deed(job: StoredJob) -> None:
        await gate.passed()

    return deed


class Doer:
    """Implements ``jobs.contract.JobHandler``: does what the test says, and remembers what it was given."""

    def __init__(self, deed: Deed = nothing) -> None:
        self.deed = deed
        self.runs: list[tuple[str, int]] = []
        """Job and attempt, in the order in which they began."""
        self.lost: list[str] = []
        """Jobs that were given up."""

    async def run(self, job: StoredJob, *, attempt: int) -> None:
        self.runs.append((job.id, attempt))
        await self.deed(job)

    async def given_up(self, job: StoredJob, why: str) -> None:
        self.lost.append(job.id)


class House:
    """What a test looks at and steers."""

    def __init__(
        self, store: InMemoryStore, runner: JobRunner, doer: Doer, *, data: MemoryData, clock: ManualClock | LoopClock
    ) -> None:
        self.store = store
        self.data = data
        self.runner = runner
        self.doer = doer
        self.clock = clock

    @property
    def jobs(self) -> JobStore:
        return self.store.job_store

    async def order(self, *names: str, owner: str = "ann", kind: str = KIND, in_s: float = 0.0, place: int = 1) -> None:
        """Write jobs by the append of a conversation of their own, and ring."""
        key = conversation(owner, place)
        now_us = self.clock.now_us()
        due_us = now_us + round(in_s * 1_000_000)
        records = (created(at_us=now_us), message(2, event=1, at_us=now_us))
        jobs = [Job(id=name, kind=kind, due_us=due_us) for name in names]
        await put(self.store, await lease_of(self.store, key), records, jobs=jobs)
        self.runner.wake()

    async def replace(self, name: str, *, owner: str = "ann") -> None:
        """Order the job anew, by a later append of the same conversation."""
        lease = await lease_of(self.store, conversation(owner))
        job = Job(id=name, kind=KIND, due_us=self.clock.now_us())
        await put(self.store, lease, [requested(3)], jobs=[job])
        self.runner.wake()

    async def listed(self) -> list[StoredJob]:
        return list(await self.jobs.list_jobs(limit=1000))

    async def only(self) -> StoredJob:
        (job,) = await self.listed()
        return job

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Let everybody run until ``is_so``."""
        with anyio.fail_after(DEADLINE_S):
            while not is_so():
                await anyio.lowlevel.checkpoint()

    async def until_idle(self) -> None:
        """Let everybody run until nothing runs and nothing is due."""
        with anyio.fail_after(DEADLINE_S):
            while self.runner.statistics().running or (await self._due()):
                await anyio.lowlevel.checkpoint()

    def pass_time(self, seconds: float) -> None:
        """Advance the clock and have the runner look."""
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(seconds)
        self.runner.wake()

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due then."""
        self.pass_time(seconds)
        await self.until_idle()

    async def _due(self) -> tuple[StoredJob, ...]:
        return await self.jobs.due_jobs(now_us=self.clock.now_us(), limit=1, kinds={KIND})


@asynccontextmanager
async def running_house(
    deed: Deed = nothing,
    *,
    data: MemoryData | None = None,
    core: Callable[[MemoryData], CommitCore] | None = None,
    clock: ManualClock | LoopClock | None = None,
    **options: float,
) -> AsyncIterator[House]:
    """A runner that serves ``KIND`` by ``deed``.

    Args: core: what carries out the store's writes.  options: in place of those of ``OPTIONS``.
    """
    clock = clock or ManualClock()
    data = data or MemoryData()
    doer = Doer(deed)
    async with InMemoryStore(data, core=core(data) if core else None) as store:
        runner = JobRunner(
            store.job_store, clock=clock, options=msgspec.structs.replace(OPTIONS, **options), holder="s_1"
        )
        runner.serve(KIND, doer)
        async with runner.running():
            yield House(store, runner, doer, data=data, clock=clock)
