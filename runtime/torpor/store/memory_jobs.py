"""The jobs of the in-memory store, with claims that lapse: several processes over one data claim from each other.

Above: ``in_memory``, whose core changes them and whose store reads them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import assert_never

import msgspec

from torpor.errors import JobLost
from torpor.records.ids import ConversationKey
from torpor.store.contract import Job
from torpor.store.job_contract import JobCounts, JobState, Owner, StoredJob
from torpor.store.requests import ClaimJob, DropJob, HastenJobs, JobRequest, RedoJob, SettleJob


class _Held:
    """A job, and the claim on it."""

    __slots__ = ("holder", "job", "until_us")

    def __init__(self, job: StoredJob) -> None:
        self.job = job
        self.holder = ""
        self.until_us = 0

    def free_us(self) -> int | None:
        """From when it may be claimed; None for a dead one."""
        match self.job.state:
            case JobState.WAITING:
                return self.job.due_us
            case JobState.RUNNING:
                return self.until_us
            case JobState.DEAD:
                return None
            case _:
                assert_never(self.job.state)

    def runs(self, now_us: int) -> bool:
        return self.job.state is JobState.RUNNING and now_us < self.until_us


class MemoryJobs:
    """Implements ``store.job_port.JobReads``, and carries out what a core is asked.

    Args: sleeps: whether a conversation is quarantined.
    """

    def __init__(self, *, sleeps: Callable[[ConversationKey], bool]) -> None:
        self._held: dict[tuple[ConversationKey, str], _Held] = {}
        self._sleeps = sleeps

    def add(self, key: ConversationKey, jobs: Sequence[Job], *, at_us: int) -> None:
        """Each in place of what stands under its id."""
        for job in jobs:
            before = self._held.get((key, job.id))
            stored = StoredJob(
                key=key,
                id=job.id,
                kind=job.kind,
                payload=msgspec.Raw(bytes(job.payload)),
                due_us=job.due_us,
                added_us=at_us,
                token=before.job.token + 1 if before else at_us,
            )
            self._held[key, job.id] = _Held(stored)

    def forget(self, key: ConversationKey) -> None:
        """It has none any more."""
        for place in [place for place in self._held if place[0] == key]:
            del self._held[place]

    def of(self, key: ConversationKey) -> tuple[Job, ...]:
        """By id."""
        return tuple(
            Job(id=held.job.id, kind=held.job.kind, due_us=held.job.due_us, payload=held.job.payload)
            for (owner_key, _), held in sorted(self._held.items())
            if owner_key == key
        )

    def carry_out(self, request: JobRequest) -> None:
        """Raises: JobLost."""
        held = self._held.get((request.key, request.id))
        if held is None:
            raise JobLost(request.key.path, job=request.id)
        match request:
            case ClaimJob():
                _claim(held, request)
            case SettleJob():
                self._settle(held, request)
            case RedoJob():
                _must_rest(held, request)
                _change(held, state=JobState.WAITING, due_us=request.now_us, attempts=0)
            case DropJob():
                _must_rest(held, request)
                del self._held[request.key, request.id]
            case _:
                assert_never(request)

    def hasten(self, request: HastenJobs) -> bool:
        """Whether any was."""
        return sum(_hasten(held, request) for held in self._held.values()) > 0

    def due_jobs(
        self, *, now_us: int, limit: int, kinds: Collection[str], passing_over: Collection[Owner]
    ) -> tuple[StoredJob, ...]:
        due = sorted(
            (free_us, held.job.key, held.job.id)
            for free_us, held in self._claimable(kinds)
            if free_us <= now_us and held.job.owner not in passing_over
        )
        return tuple(self._held[key, id_].job for _, key, id_ in due[:limit])

    def next_job_us(self, *, now_us: int, kinds: Collection[str]) -> int | None:
        return min((free_us for free_us, _ in self._claimable(kinds) if free_us > now_us), default=None)

    def find_job(self, key: ConversationKey, job_id: str) -> StoredJob | None:
        held = self._held.get((key, job_id))
        return held.job if held else None

    def list_jobs(
        self,
        *,
        tenant: str | None,
        owner: str | None,
        conversation: str | None,
        state: JobState | None,
        limit: int,
        after: tuple[ConversationKey, str] | None,
    ) -> tuple[StoredJob, ...]:
        found = [
            held.job
            for place, held in sorted(self._held.items(), key=lambda item: item[0])
            if (after is None or place > after)
            and tenant in {None, held.job.key.tenant}
            and owner in {None, held.job.key.owner}
            and conversation in {None, held.job.key.conversation}
            and state in {None, held.job.state}
        ]
        return tuple(found[:limit])

    def count_jobs(self, *, now_us: int) -> JobCounts:
        states = [held.job.state for held in self._held.values()]
        due = [held.job.due_us for held in self._held.values() if self._is_due(held, now_us)]
        return JobCounts(
            waiting=states.count(JobState.WAITING),
            due=len(due),
            running=states.count(JobState.RUNNING),
            dead=states.count(JobState.DEAD),
            oldest_due_us=min(due, default=None),
        )

    def _is_due(self, held: _Held, now_us: int) -> bool:
        return held.job.state is JobState.WAITING and held.job.due_us <= now_us and not self._sleeps(held.job.key)

    def _claimable(self, kinds: Collection[str]) -> Iterator[tuple[int, _Held]]:
        for held in self._held.values():
            free_us = held.free_us()
            if free_us is not None and held.job.kind in kinds and not self._sleeps(held.job.key):
                yield free_us, held

    def _settle(self, held: _Held, request: SettleJob) -> None:
        if held.job.state is not JobState.RUNNING or held.job.token != request.token:
            raise JobLost(request.key.path, job=request.id)
        if request.state is None:
            del self._held[request.key, request.id]
            return
        job = held.job
        _change(
            held,
            state=request.state,
            due_us=job.due_us if request.due_us is None else request.due_us,
            error=job.error if request.error is None else request.error,
            attempts=job.attempts if request.counts else job.attempts - 1,
        )


def _claim(held: _Held, request: ClaimJob) -> None:
    job = held.job
    if job.state is JobState.RUNNING and job.token == request.token + 1 and held.holder == request.holder:
        return  # its answer was lost, and it is asked for again
    is_free = job.state is not JobState.DEAD and not held.runs(request.now_us)
    if not is_free or job.token != request.token:
        raise JobLost(request.key.path, job=request.id)
    _change(held, state=JobState.RUNNING, attempts=job.attempts + 1)
    held.holder, held.until_us = request.holder, request.until_us


def _hasten(held: _Held, request: HastenJobs) -> bool:
    job, now_us = held.job, request.now_us
    match job.state:
        case JobState.RUNNING if held.until_us > request.beyond_us:
            held.until_us = now_us
        case JobState.WAITING if job.due_us > now_us and (
            job.added_us > now_us or (job.attempts and job.due_us > request.beyond_us)
        ):
            waits_us = 0 if job.attempts else max(0, job.due_us - job.added_us)
            held.job = msgspec.structs.replace(job, due_us=now_us + waits_us, added_us=min(job.added_us, now_us))
        case _:
            return False
    return True


def _must_rest(held: _Held, request: RedoJob | DropJob) -> None:
    if held.runs(request.now_us):
        raise JobLost(request.key.path, job=request.id)


def _change(held: _Held, **fields: object) -> None:
    held.job = msgspec.structs.replace(held.job, token=held.job.token + 1, **fields)
