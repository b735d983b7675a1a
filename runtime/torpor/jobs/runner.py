"""The runner: finds jobs that are due, has their handlers do them a few at a time, and tells the store how each ended.

    due ──claim, counted──▶ handler ──returned────────▶ finish
                               ├──JobFailed, deadline─▶ retry after a pause, or bury after the last attempt
                               ├──JobImpossible───────▶ bury
                               └──the process stops───▶ put back, not counted

Above: the composition root, which gives it handlers and runs it beside the supervisor; the actors' commits, which wake
it. Below: the ``JobStore``. It keeps nothing that matters: a process that is killed leaves claims that are void at the
next start, and their jobs run again. A job whose process was killed in each of its attempts is buried unrun.

Marks are moments of a clock that may be set back, also while nothing runs. So at the start, and whenever the clock
jumps back, what waits for a moment that no pause could have put is due at once.

One loop waits for all jobs: for a bell, for the moment the next job is due, or for ``poll_s``. A free place goes to the
owner with the fewest running jobs, and of several to the one whose job is due for longest.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import anyio.abc
import msgspec
import structlog

from torpor.clock import Clock
from torpor.conversation.text import clean
from torpor.errors import (
    InvariantBroken,
    JobFailed,
    JobImpossible,
    JobLost,
    StoreError,
    StoreFull,
    StoreGone,
    StoreUnavailable,
)
from torpor.jobs.backoff import longest_pause_s, pause_s
from torpor.jobs.contract import GivesUp, JobHandler
from torpor.jobs.options import JobOptions
from torpor.records.ids import ConversationKey
from torpor.store.job_contract import JobStore, Owner, StoredJob

_ERROR_CHARS: Final = 500
_CLAIM_SLACK_S: Final = 60.0
"""For how long a claim outlasts its deadline, where claims lapse."""
_PUT_BACK_S: Final = 2.0
"""Within which a job that is cut off is put back; one that is not counts as an attempt."""
_REST_MAX_S: Final = 30 * 86_400.0
"""The longest pause that a handler may ask for."""
_MICROSECONDS: Final = 1_000_000
_JUMP_US: Final = 60 * _MICROSECONDS
"""A clock that is further back than this behind the time that passed was set back."""
_LOOK_US: Final = 60 * _MICROSECONDS
"""After which nothing that was found is taken for known any more."""

_log = structlog.get_logger()
_T = TypeVar("_T")
_Place = tuple[ConversationKey, str]
_Settling = partial[Coroutine[Any, Any, None]]


class JobStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Since the start of the process."""

    running: int
    finished: int
    failed: int
    """Attempts that will be repeated."""
    buried: int
    cut_off: int


class _Nothing(msgspec.Struct, frozen=True):
    """What a look found: nobody but these owners has anything due, until then and unless jobs change."""

    owners: frozenset[Owner]
    changes: int
    until_us: int

    def covers(self, owners: frozenset[Owner], *, changes: int, now_us: int) -> bool:
        return self.owners <= owners and self.changes == changes and now_us < self.until_us


class _Kind(msgspec.Struct, frozen=True):
    handler: JobHandler
    deadline_s: float
    attempts_max: int


class JobRunner:
    """See the module docstring; ``async with runner.running()``.

    Args: holder: names this process in claims, where several share a store.
    """

    def __init__(self, store: JobStore, *, clock: Clock, options: JobOptions, holder: str) -> None:
        self._store = store
        self._clock = clock
        self._options = options
        self._holder = holder
        self._kinds: dict[str, _Kind] = {}
        self._running: dict[_Place, StoredJob] = {}
        self._unusable: set[_Place] = set()
        """Jobs whose claim failed for good; left alone until the next start."""
        self._changes = 0
        """Grows with all that may make a job due, as far as it is heard of."""
        self._nothing: _Nothing | None = None
        self._counts: Counter[str] = Counter()
        self._bell: anyio.Event | None = None
        self._ended: anyio.Event | None = None
        self._is_stopping = False
        self._was_waited_for = False
        """Whether running jobs had their time to end."""
        self._is_lagging = False
        self._offset_us: int | None = None
        """How far the clock was ahead of the time that passed, at most; None before the first look."""
        self._tasks: anyio.abc.TaskGroup | None = None

    def serve(
        self, kind: str, handler: JobHandler, *, deadline_s: float | None = None, attempts_max: int | None = None
    ) -> None:
        """Have ``handler`` do the jobs of ``kind``; those of a kind that nobody serves wait, and are not lost.

        Args: deadline_s, attempts_max: instead of the configured ones.
        """
        if kind in self._kinds:
            raise InvariantBroken(f"jobs of kind {kind!r} have a handler already, expected one")
        self._kinds[kind] = _Kind(
            handler,
            self._options.deadline_s if deadline_s is None else deadline_s,
            self._options.attempts_max if attempts_max is None else attempts_max,
        )
        self.wake()

    def wake(self) -> None:
        """Look for what is due; to be called when a job was added, from the runner's own event loop."""
        self._changes += 1
        self._ring()

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.set()

    def statistics(self) -> JobStatistics:
        counts = self._counts
        return JobStatistics(
            running=len(self._running),
            finished=counts["finished"],
            failed=counts["failed"],
            buried=counts["buried"],
            cut_off=counts["cut_off"],
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["JobRunner"]:
        """Run what is due; at the end claim no more, and let running jobs end within the stop deadline, unless they had
        that time before."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._watch, name="jobs:watch")
            try:
                yield self
            finally:
                await self._stop()
                tasks.cancel_scope.cancel()

    def stop_claiming(self) -> None:
        """No further job begins. Again is once."""
        self._is_stopping = True
        self.wake()

    async def emptied(self) -> None:
        """Return once no job runs, or after the stop deadline; to be waited for by one task."""
        self._was_waited_for = True
        with anyio.move_on_after(self._options.stop_deadline_s):
            while self._running:
                self._ended = anyio.Event()
                await self._ended.wait()

    async def _stop(self) -> None:
        self.stop_claiming()
        if not self._was_waited_for:
            with anyio.CancelScope(shield=True):
                await self.emptied()

    async def _watch(self) -> None:
        while not self._is_stopping:
            self._bell = anyio.Event()  # before the look, so that nothing rung during it is missed
            wait_s = self._options.poll_s
            try:
                await self._mind_clock()
                await self._fill_places()
                await self._warn_of_lag()
                wait_s = min(wait_s, await self._until_next_s())
            except StoreError as exc:
                _log.warning("jobs.look_failed", why=str(exc))
            except Exception as exc:  # noqa: BLE001  a background sweep's edge: a bug in one look is not the last look
                _log.error("jobs.look_failed", why=repr(exc), exc_info=exc)
            with anyio.move_on_after(wait_s) as scope:
                await self._bell.wait()
            self._changes += scope.cancelled_caught  # what others did to a store that is shared is not heard of

    async def _mind_clock(self) -> None:
        now_us = self._clock.now_us()
        offset_us = now_us - round(self._clock.monotonic_s() * _MICROSECONDS)
        if self._offset_us is not None and offset_us > self._offset_us - _JUMP_US:
            self._offset_us = max(offset_us, self._offset_us)
            return
        longest_s = max(
            longest_pause_s(self._options), *(kind.deadline_s + _CLAIM_SLACK_S for kind in self._kinds.values()), 0.0
        )
        beyond_us = now_us + round(longest_s * _MICROSECONDS) + _JUMP_US
        if await self._store.hasten_jobs(now_us=now_us, beyond_us=beyond_us):
            _log.warning("jobs.clock_set_back")
            self._changes += 1
        self._offset_us = offset_us

    async def _fill_places(self) -> None:
        while len(self._running) < self._options.concurrency and not self._is_stopping:
            job = await self._next()
            if job is None or self._is_stopping:
                return
            assert self._tasks is not None, "the runner is not running"
            self._running[job.key, job.id] = job
            self._tasks.start_soon(self._carry_out, job, name=f"job:{job.kind}:{job.id}")

    async def _next(self) -> StoredJob | None:
        """The job that a free place goes to: its owner has the fewest running, and fewer than one owner may have."""
        owners = Counter(job.owner for job in self._running.values())
        for level in range(min(self._options.owner_concurrency, max(owners.values(), default=0) + 1)):
            now_us, busy = self._clock.now_us(), frozenset(owner for owner, count in owners.items() if count > level)
            if self._nothing is not None and self._nothing.covers(busy, changes=self._changes, now_us=now_us):
                continue  # the backlog of a busy owner is gone through once, not for each place that becomes free
            changes = self._changes
            found = await self._store.due_jobs(
                now_us=now_us,
                limit=1 + len(self._running) + len(self._unusable),
                kinds=self._kinds,
                passing_over=busy,
            )
            if busy and not found:
                next_us = await self._store.next_job_us(now_us=now_us, kinds=self._kinds)
                self._nothing = _Nothing(busy, changes, now_us + _LOOK_US if next_us is None else next_us)
            for job in found:
                # One that runs is due again when another was put in its place; it waits for the end of this one.
                if (job.key, job.id) not in self._running and (job.key, job.id) not in self._unusable:
                    return job
        return None

    async def _until_next_s(self) -> float:
        """From now until the first job that is not due yet; all that is due waits for a place, which rings."""
        now_us = self._clock.now_us()
        next_us = await self._store.next_job_us(now_us=now_us, kinds=self._kinds)
        return self._options.poll_s if next_us is None else (next_us - now_us) / _MICROSECONDS

    async def _warn_of_lag(self) -> None:
        if not self._options.lag_warning_s:
            return
        now_us = self._clock.now_us()
        oldest = await self._store.due_jobs(now_us=now_us, limit=1, kinds=self._kinds)
        lag_s = (now_us - oldest[0].due_us) / _MICROSECONDS if oldest else 0.0
        was_lagging, self._is_lagging = self._is_lagging, lag_s > self._options.lag_warning_s
        if self._is_lagging and not was_lagging:
            _log.warning("jobs.lagging", lag_s=lag_s, running=len(self._running))

    async def _carry_out(self, job: StoredJob) -> None:
        """One attempt from claim to end; holds a place."""
        place, is_finished = (job.key, job.id), False
        try:
            claimed = await self._claimed(job)
            if claimed is not None:
                settling = await self._attempt(claimed)
                await self._settle(claimed, settling)
                is_finished = settling.func == self._store.finish_job
        except JobLost:
            _log.info("job.lost", conversation=job.key.path, job=job.id, kind=job.kind)
        except Exception as exc:  # noqa: BLE001  the same edge: damage under one job, or a bug, harms no other
            self._unusable.add(place)
            _log.error("job.unusable", conversation=job.key.path, job=job.id, why=repr(exc), exc_info=exc)
        finally:
            del self._running[place]
            self._changes += not is_finished
            self._ring()
            if self._ended is not None:
                self._ended.set()

    async def _claimed(self, job: StoredJob) -> StoredJob | None:
        """None when the process stops before the store could write it."""
        now_us = self._clock.now_us()
        lasts_s = self._kinds[job.kind].deadline_s + _CLAIM_SLACK_S
        until_us = now_us + round(lasts_s * _MICROSECONDS)
        claim = partial(self._store.claim_job, job, holder=self._holder, until_us=until_us, now_us=now_us)
        return await self._insist(claim, gives_up=True)

    async def _attempt(self, job: StoredJob) -> _Settling:
        """Have the handler do it once; what to tell the store."""
        kind = self._kinds[job.kind]
        if job.attempts > kind.attempts_max:
            why = f"the process ended in each of the last attempts; {job.error}"
            if job.attempts == self._kinds[job.kind].attempts_max + 1:
                await self._told_of_end(job, why)  # once at most: it may be what the process died of
            return self._buried(job, why, counts=False)
        try:
            with anyio.move_on_after(kind.deadline_s) as scope:
                await kind.handler.run(job, attempt=job.attempts)
            if scope.cancelled_caught:
                return self._failed(job, JobFailed(f"it did not end within {kind.deadline_s:g} s"))
        except anyio.get_cancelled_exc_class():
            await self._cut_off(job)
            raise
        except Exception as exc:  # noqa: BLE001  a background sweep's edge: one job's failure stays its own
            return self._failed(job, decisive(exc))
        except BaseExceptionGroup as exc:
            # It failed and was cut off at once, as trio tells them: its failure ends here, the cut goes on.
            await self._cut_off(job)
            cut, _ = exc.split(lambda inner: not isinstance(inner, Exception | BaseExceptionGroup))
            raise cut or exc from None
        self._counts["finished"] += 1
        _log.debug("job.finished", conversation=job.key.path, job=job.id, kind=job.kind, attempt=job.attempts)
        return partial(self._store.finish_job, job)

    async def give_up(self, job: StoredJob, why: str) -> None:
        """Tell its handler, where it wants to know, that ``job`` will never be run."""
        kind = self._kinds.get(job.kind)
        if kind is None or not isinstance(kind.handler, GivesUp):
            return
        try:
            with anyio.move_on_after(kind.deadline_s):
                await kind.handler.given_up(job, _shown(why))
        except Exception as exc:  # noqa: BLE001  a background sweep's edge, as where jobs are run
            _log.warning("job.not_given_up", **_facts(job), why=repr(exc))

    async def _told_of_end(self, job: StoredJob, why: str) -> None:
        try:
            await self.give_up(job, why)
        except anyio.get_cancelled_exc_class():
            await self._cut_off(job)
            raise

    def _failed(self, job: StoredJob, exc: Exception) -> _Settling:
        is_foreseen = isinstance(exc, JobFailed | JobImpossible)
        why = str(exc) if is_foreseen else f"{type(exc).__name__}: {exc}"
        if not is_foreseen:
            _log.error("job.crashed", conversation=job.key.path, job=job.id, kind=job.kind, exc_info=exc)
        if isinstance(exc, JobImpossible) or job.attempts >= self._kinds[job.kind].attempts_max:
            return self._buried(job, why)
        named_s = exc.retry_after_s if isinstance(exc, JobFailed) else None
        rests_s = pause_s(job, self._options) if named_s is None else min(max(0.0, named_s), _REST_MAX_S)
        self._counts["failed"] += 1
        _log.warning("job.failed", **_facts(job), why=_shown(why), again_in_s=round(rests_s, 3))
        due_us = self._clock.now_us() + round(rests_s * _MICROSECONDS)
        return partial(self._store.retry_job, job, due_us=due_us, error=_shown(why))

    def _buried(self, job: StoredJob, why: str, *, counts: bool = True) -> _Settling:
        self._counts["buried"] += 1
        _log.error("job.buried", **_facts(job), why=_shown(why))
        return partial(self._store.bury_job, job, reason=_shown(why), counts=counts)

    async def _cut_off(self, job: StoredJob) -> None:
        self._counts["cut_off"] += 1
        _log.info("job.cut_off", **_facts(job))
        with anyio.move_on_after(_PUT_BACK_S, shield=True):
            try:
                await self._store.put_back_job(job)
            except StoreError as exc:
                _log.warning("job.not_put_back", **_facts(job), why=str(exc))

    async def _settle(self, job: StoredJob, settling: _Settling) -> None:
        """Tell the store until it has heard; until then the job keeps its place, so that nothing piles up."""
        try:
            await self._insist(settling)
        except JobLost:
            # Replaced meanwhile; or told before, and the answer was lost.
            _log.debug("job.settled_before", **_facts(job))

    async def _insist(self, action: Callable[[], Awaitable[_T]], *, gives_up: bool = False) -> _T | None:
        """Repeat ``action`` while the store cannot write, and with ``gives_up`` only until the process stops."""
        pause_s = self._options.store_retry_s
        while True:
            try:
                return await action()
            except (StoreFull, StoreGone, StoreUnavailable) as exc:
                _log.warning("jobs.store_failed", why=str(exc), again_in_s=pause_s)
            if gives_up and self._is_stopping:
                return None
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, max(self._options.poll_s, self._options.store_retry_s))

    def __repr__(self) -> str:
        return f"<JobRunner kinds={len(self._kinds)} running={len(self._running)} stopping={self._is_stopping}>"


def decisive(exc: Exception) -> Exception:
    """Of errors that ended a handler's tasks together, the one that says what comes next."""
    if not isinstance(exc, ExceptionGroup):
        return exc
    leaves = [decisive(inner) for inner in exc.exceptions]
    for kind in (JobImpossible, JobFailed):
        if (found := next((leaf for leaf in leaves if isinstance(leaf, kind)), None)) is not None:
            return found
    return leaves[0]


def _facts(job: StoredJob) -> dict[str, object]:
    return {"conversation": job.key.path, "job": job.id, "kind": job.kind, "attempt": job.attempts}


def _shown(why: str) -> str:
    """As it can be stored and shown on a line."""
    return " ".join(clean(why).text.split())[:_ERROR_CHARS]
