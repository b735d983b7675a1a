"""The jobs of a life: the real runner and handler over the life's store of jobs, with luck and cut around it."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio

from tests.simulation.asides import LIVE_DEADLINE_S
from tests.simulation.faults import Fault, Sight
from tests.simulation.life import Life
from tests.simulation.ports import SimClock, SimStore
from torpor.conversation.live_context import LiveContextOptions
from torpor.errors import StoreUnavailable
from torpor.jobs.options import JobOptions
from torpor.jobs.runner import JobRunner
from torpor.store.contract import Store
from torpor.store.job_contract import JobStore, StoredJob
from torpor.supervisor.registry import Supervisor
from torpor.turn.live_context import JOB_KIND, LiveContextJobs, LiveModel
from torpor.turn.places import FairPlaces

ATTEMPTS_MAX = 3


class SimJobs:
    """Stands for a ``store.job_contract.JobStore``; its writes become durable where all others do."""

    def __init__(self, jobs: JobStore, life: Life) -> None:
        self._jobs = jobs
        self._life = life

    async def claim_job(self, job: StoredJob, **named: Any) -> StoredJob:
        claimed: StoredJob = await self._gated("claim_job", self._jobs.claim_job, job, **named)
        if claimed.attempts > 1:
            self._life.world.saw(Sight.JOB_REPEATED)
        return claimed

    async def bury_job(self, claimed: StoredJob, **named: Any) -> None:
        await self._gated("bury_job", self._jobs.bury_job, claimed, **named)
        self._life.world.saw(Sight.JOB_BURIED)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._jobs, name)

        async def gated(*args: Any, **named: Any) -> Any:
            return await self._gated(name, method, *args, **named)

        return gated

    async def _gated(self, name: str, method: Callable[..., Awaitable[Any]], *args: Any, **named: Any) -> Any:
        life = self._life
        await life.gate()
        if name in {"due_jobs", "next_job_us"} and life.world.roll(Fault.STORE_READ_FAILED):
            raise StoreUnavailable(f"{name} failed")
        life.reach(f"jobs.{name}")
        await life.gate()
        try:
            answer = await method(*args, **named)
        finally:
            if life.is_dead:
                await anyio.sleep_forever()
        life.reach(f"jobs.{name}.answered")
        await life.gate()
        return answer


def live_options_of(life: Life) -> LiveContextOptions:
    """When live contexts are made anew in a run."""
    plan = life.world.plan
    return LiveContextOptions(every_messages=plan.live_every, max_age_s=plan.live_max_age_s, retry_messages=2)


def runner_of(life: Life, jobs: JobStore) -> JobRunner:
    """The runner of one life; it serves nothing yet."""
    options = JobOptions(
        deadline_s=LIVE_DEADLINE_S + 3.0,
        attempts_max=ATTEMPTS_MAX,
        backoff_s=0.3,
        backoff_max_s=2.0,
        poll_s=5.0,
        store_retry_s=0.2,
        lag_warning_s=0.0,
        stop_deadline_s=life.world.plan.stop_deadline_s,
    )
    return JobRunner(cast("JobStore", SimJobs(jobs, life)), clock=SimClock(life), options=options, holder=life.name)


def serve_live_contexts(
    runner: JobRunner,
    *,
    model: LiveModel,
    store: SimStore,
    supervisor: Supervisor,
    places: FairPlaces,
    options: LiveContextOptions,
) -> None:
    """Have the runner make live contexts."""
    handler = LiveContextJobs(
        {"clerk": model},
        store=cast("Store", store),
        tell=supervisor.deliver,
        places=places,
        options=options,
        attempts_max=ATTEMPTS_MAX,
        deadline_s=LIVE_DEADLINE_S,
    )
    runner.serve(JOB_KIND, handler)
