"""Jobs are done at least once, a few at a time, fairly, and none of them is lost or tried for ever."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import structlog

from tests.support.doubles import Gate, ManualClock
from tests.support.job_house import KIND, Doer, running_house, stops_at
from tests.support.writing import DEADLINE_S
from torpor.errors import InvariantBroken, JobFailed, JobImpossible, StoreFull, StoreUnavailable
from torpor.jobs.runner import JobStatistics, decisive
from torpor.store.in_memory import InMemoryStore
from torpor.store.job_contract import JobState, JobStore, Owner, StoredJob
from torpor.store.memory_data import MemoryCore, MemoryData
from torpor.store.requests import ClaimJob, Outcome, Request, SettleJob


def raises(*errors: Exception) -> Doer:
    """Fails with each of these in turn, then succeeds."""
    waiting = list(errors)

    async def deed(job: StoredJob) -> None:
        await anyio.lowlevel.checkpoint()
        if waiting:
            raise waiting.pop(0)

    return Doer(deed)


class TestRunning:
    async def test_a_job_is_done_once_and_gone(self) -> None:
        async with running_house() as house:
            await house.order("a")
            await house.until_idle()
            assert house.doer.runs == [("a", 1)]
            assert await house.listed() == []
            assert house.runner.statistics() == JobStatistics(running=0, finished=1, failed=0, buried=0, cut_off=0)

    async def test_jobs_that_were_due_before_the_start_are_done_without_a_ring(self) -> None:
        data = MemoryData()
        async with running_house(data=data) as house:
            await house.order("a", kind="other")
            house.runner.serve("other", other := Doer())
            await house.until(lambda: other.runs == [("a", 1)])

    async def test_a_job_that_is_not_due_waits_for_its_moment(self) -> None:
        async with running_house() as house:
            await house.order("a", in_s=60)
            await house.advance(59)
            assert house.doer.runs == []
            await house.advance(1)
            assert house.doer.runs == [("a", 1)]

    async def test_jobs_of_a_kind_that_nobody_serves_wait_and_hold_up_no_other(self) -> None:
        async with running_house() as house:
            await house.order(*(f"u_{number}" for number in range(50)), kind="unknown")
            await house.order("a", owner="zoe")
            await house.until_idle()
            assert house.doer.runs == [("a", 1)]
            assert {job.state for job in await house.listed()} == {JobState.WAITING}

    async def test_a_kind_has_one_handler(self) -> None:
        async with running_house() as house:
            with pytest.raises(InvariantBroken, match="jobs of kind 'refresh' have a handler already"):
                house.runner.serve(KIND, Doer())

    async def test_only_so_many_run_at_once(self) -> None:
        gate = Gate()
        async with running_house(stops_at(gate), concurrency=3, owner_concurrency=3) as house:
            for owner in "abcde":
                await house.order(owner, owner=owner)
            await house.until(lambda: len(house.doer.runs) == 3)
            await anyio.wait_all_tasks_blocked()
            assert len(house.doer.runs) == 3
            gate.opened.set()
            await house.until_idle()
            assert len(house.doer.runs) == 5


class TestFairness:
    async def test_one_owner_never_takes_all_places(self) -> None:
        gate = Gate()
        async with running_house(stops_at(gate), concurrency=4, owner_concurrency=2) as house:
            await house.order(*(f"ann_{number}" for number in range(100)))
            await house.until(lambda: len(house.doer.runs) == 2)
            await anyio.wait_all_tasks_blocked()
            assert len(house.doer.runs) == 2
            await house.order("zoe_1", owner="zoe")
            await house.until(lambda: ("zoe_1", 1) in house.doer.runs)
            gate.opened.set()
            await house.until_idle()
            assert len(house.doer.runs) == 101

    async def test_a_free_place_goes_to_the_owner_with_the_fewest_running(self) -> None:
        gates: dict[str, Gate] = {}

        async def deed(job: StoredJob) -> None:
            await gates.setdefault(job.id, Gate()).passed()

        async with running_house(deed, concurrency=4, owner_concurrency=2) as house:
            await house.order("ann_1", "ann_2", "ann_3", "ann_4", owner="ann")
            await house.order("bob_1", "bob_2", "bob_3", "bob_4", owner="bob", in_s=-1)
            await house.until(lambda: len(house.doer.runs) == 4)
            await house.order("zoe_1", owner="zoe", in_s=0)
            first = house.doer.runs[0][0]
            gates[first].opened.set()
            await house.until(lambda: len(house.doer.runs) == 5)
            assert house.doer.runs[-1] == ("zoe_1", 1)
            await house.until(lambda: len(gates) == 5)
            for gate in gates.values():
                gate.opened.set()
            for name in ("ann_3", "ann_4", "bob_3", "bob_4"):
                gates.setdefault(name, Gate()).opened.set()
            await house.until_idle()

    async def test_the_backlog_of_one_owner_is_gone_through_once_not_for_each_job(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with running_house(concurrency=4, owner_concurrency=2) as house:
            looks: list[frozenset[Owner]] = []
            store = type(house.jobs)
            look = store.due_jobs

            async def counted(jobs: JobStore, **asked: Any) -> tuple[StoredJob, ...]:
                looks.append(frozenset(asked.get("passing_over", ())))
                return await look(jobs, **asked)

            monkeypatch.setattr(store, "due_jobs", counted)
            await house.order(*(f"ann_{number}" for number in range(100)))
            await house.until_idle()
            assert len(house.doer.runs) == 100
            assert sum(map(bool, looks)) < 10
            await house.order("zoe_1", owner="zoe")
            await house.until_idle()
            assert house.doer.runs[-1] == ("zoe_1", 1)


class TestFailing:
    async def test_a_failure_is_repeated_after_a_pause_that_grows(self) -> None:
        doer = raises(JobFailed("no answer"), JobFailed("again none"))
        async with running_house(doer.deed, backoff_s=10.0) as house:
            await house.order("a")
            await house.until_idle()
            job = await house.only()
            assert (job.state, job.attempts, job.error) == (JobState.WAITING, 1, "no answer")
            assert 7.5 <= (job.due_us - house.clock.now_us()) / 1e6 <= 12.5
            await house.advance(12.5)
            job = await house.only()
            assert (job.attempts, job.error) == (2, "again none")
            assert 15 <= (job.due_us - house.clock.now_us()) / 1e6 <= 25
            await house.advance(25)
            assert house.doer.runs == [("a", 1), ("a", 2), ("a", 3)]
            assert await house.listed() == []

    async def test_a_failure_may_say_when_to_try_again(self) -> None:
        doer = raises(JobFailed("come back later", retry_after_s=300.0))
        async with running_house(doer.deed) as house:
            await house.order("a")
            await house.until_idle()
            await house.advance(299)
            assert house.doer.runs == [("a", 1)]
            await house.advance(1)
            assert house.doer.runs == [("a", 1), ("a", 2)]

    @pytest.mark.parametrize("odd_s", [float("inf"), float("nan"), -1.0, 1e300])
    async def test_an_odd_pause_harms_nobody(self, odd_s: float) -> None:
        doer = raises(JobFailed("odd", retry_after_s=odd_s))
        async with running_house(doer.deed) as house:
            await house.order("a")
            await house.order("b", owner="zoe")
            await house.until_idle()
            await house.advance(31 * 86_400)
            assert await house.listed() == []

    async def test_what_fails_each_time_becomes_a_dead_letter(self) -> None:
        doer = raises(*(JobFailed(f"failed {number}") for number in range(9)))
        async with running_house(doer.deed, attempts_max=3, backoff_max_s=10.0) as house:
            await house.order("a")
            await house.until_idle()
            for _ in range(5):
                await house.advance(20)
            job = await house.only()
            assert (job.state, job.attempts, job.error) == (JobState.DEAD, 3, "failed 2")
            assert len(house.doer.runs) == 3
            await house.jobs.redo_job(job.key, "a", now_us=house.clock.now_us())
            await house.advance(0)
            assert house.doer.runs[3:] == [("a", 1)]

    async def test_what_is_impossible_is_a_dead_letter_at_once(self) -> None:
        doer = raises(JobImpossible("no such turn"))
        async with running_house(doer.deed) as house:
            await house.order("a")
            await house.until_idle()
            job = await house.only()
            assert (job.state, job.attempts, job.error) == (JobState.DEAD, 1, "no such turn")

    async def test_a_bug_in_a_handler_is_a_failure_of_its_job_alone(self) -> None:
        doer = raises(ZeroDivisionError("one\x00\ud800 line\nand another " + "x" * 2000))
        async with running_house(doer.deed) as house:
            await house.order("a")
            await house.until_idle()
            job = await house.only()
            assert job.state is JobState.WAITING
            assert job.error.startswith("ZeroDivisionError: one␀� line and another x")
            assert len(job.error) == 500
            await house.order("b", owner="zoe")
            await house.until(lambda: ("b", 1) in house.doer.runs)

    async def test_of_errors_that_come_together_the_one_that_ends_it_decides(self) -> None:
        impossible, failed, bug = JobImpossible("never"), JobFailed("later"), ValueError("bug")
        assert decisive(ExceptionGroup("", [bug, failed, ExceptionGroup("", [impossible])])) is impossible
        assert decisive(ExceptionGroup("", [bug, failed])) is failed
        assert decisive(ExceptionGroup("", [bug])) is bug

    async def test_an_attempt_is_cut_off_at_its_deadline(self) -> None:
        gate = Gate()
        async with running_house(stops_at(gate)) as house:
            house.runner.serve("slow", slow := Doer(stops_at(gate)), deadline_s=0.01, attempts_max=1)
            await house.order("a", kind="slow")
            await house.until(lambda: house.runner.statistics().buried == 1 and not house.runner.statistics().running)
            job = await house.only()
            assert (job.state, job.error) == (JobState.DEAD, "it did not end within 0.01 s")
            assert slow.runs == [("a", 1)]


class TestReplacing:
    async def test_a_job_put_in_the_place_of_one_that_runs_is_done_after_it(self) -> None:
        gate = Gate()
        async with running_house(stops_at(gate), concurrency=4, owner_concurrency=4) as house:
            await house.order("a")
            await gate.reached.wait()
            await house.replace("a")
            await anyio.wait_all_tasks_blocked()
            assert house.doer.runs == [("a", 1)]
            gate.opened.set()
            await house.until_idle()
            assert house.doer.runs == [("a", 1), ("a", 1)]
            assert await house.listed() == []


class TestCrashing:
    async def test_a_job_is_run_again_when_its_process_ended_in_the_middle(self) -> None:
        gate = Gate()
        async with running_house(stops_at(gate)) as house:
            await house.order("a")
            await gate.reached.wait()
            image = copy.deepcopy(house.data)
            gate.opened.set()
        async with running_house(data=image) as house:
            await house.advance(3600)
            assert house.doer.runs == [("a", 2)]
            assert await house.listed() == []

    async def test_a_job_that_ends_its_process_each_time_is_buried_unrun(self) -> None:
        data, runs = MemoryData(), []
        async with running_house() as house:
            await house.order("a", in_s=1)
            data = house.data
        for _ in range(3):
            data, run = await killed_in_the_middle(data)
            runs.append(run)
        async with running_house(data=data, attempts_max=3) as house:
            await house.advance(100_000)
            job = await house.only()
            assert (job.state, job.attempts) == (JobState.DEAD, 3)
            assert job.error.startswith("the process ended in each of the last attempts")
            assert house.doer.runs == []
            assert house.doer.lost == ["a"]
        assert runs == [("a", 1), ("a", 2), ("a", 3)]


async def killed_in_the_middle(data: MemoryData) -> tuple[MemoryData, tuple[str, int]]:
    """What is left of a process that was killed while it ran its only job, and which attempt that was."""
    gate = Gate()
    clock = ManualClock()
    claimable_us = data.jobs.next_job_us(now_us=0, kinds={KIND})
    assert claimable_us is not None
    clock.advance((claimable_us - clock.now_us()) / 1e6)
    async with running_house(stops_at(gate), data=data, clock=clock) as house:
        await gate.reached.wait()
        left = copy.deepcopy(data)
        gate.opened.set()
        return left, house.doer.runs[0]


class TestStopping:
    async def test_a_stop_claims_no_more_and_lets_running_jobs_end(self) -> None:
        gate = Gate()
        data = MemoryData()
        async with running_house(stops_at(gate), data=data, concurrency=1, owner_concurrency=1) as house:
            await house.order("a", "b")
            await gate.reached.wait()

            async def open_later() -> None:
                await anyio.wait_all_tasks_blocked()
                gate.opened.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(open_later)
                await house.runner._stop()
            assert house.doer.runs == [("a", 1)]
            assert [(job.id, job.attempts) for job in await house.listed()] == [("b", 0)]

    async def test_a_job_cut_off_by_a_stop_is_due_as_before_and_its_attempt_does_not_count(self) -> None:
        gate, data = Gate(), MemoryData()
        async with InMemoryStore(data) as store:
            async with running_house(stops_at(gate), data=data, stop_deadline_s=0.01) as house:
                await house.order("a")
                await gate.reached.wait()
            (job,) = await store.job_store.list_jobs(limit=9)
            assert (job.state, job.attempts) == (JobState.WAITING, 0)
        async with running_house(data=data) as house:
            await house.until_idle()
            assert house.doer.runs == [("a", 1)]

    async def test_a_handler_that_fails_as_it_is_cut_off_ends_with_the_runner(self) -> None:
        reached, data = anyio.Event(), MemoryData()

        async def deed(job: StoredJob) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fails_when_cancelled)
                reached.set()
                await anyio.sleep_forever()

        async def fails_when_cancelled() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                raise ValueError("in the way")

        async with running_house(deed, data=data, stop_deadline_s=0.01) as house:
            await house.order("a")
            await reached.wait()
        async with InMemoryStore(data) as store:
            (job,) = await store.job_store.list_jobs(limit=9)
            assert job.id == "a"

    async def test_cancelling_whoever_runs_the_runner_loses_no_job(self) -> None:
        gate, data = Gate(), MemoryData()
        with anyio.fail_after(DEADLINE_S), anyio.CancelScope() as scope:
            async with running_house(stops_at(gate), data=data, stop_deadline_s=0.01) as house:
                await house.order("a")
                await gate.reached.wait()
                scope.cancel()
                await anyio.sleep_forever()
        async with running_house(data=data) as house:
            await house.advance(3600)
            assert [name for name, _ in house.doer.runs] == ["a"]
            assert await house.listed() == []


class _Failing(MemoryCore):
    """Fails what ``fault`` picks out: before it is done, or after with the answer lost."""

    def __init__(self, data: MemoryData, *, faults: dict[str, list[type[Request]]]) -> None:
        super().__init__(data)
        self._full, self._lost = faults["full"], faults["lost"]

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Outcome:
        kind = type(request)
        if kind in self._full:
            self._full.remove(kind)
            return StoreFull("no space left")
        (outcome,) = super().commit([request])
        if kind in self._lost:
            self._lost.remove(kind)
            return StoreUnavailable("disk I/O error")
        return outcome


class TestStoreFaults:
    @pytest.mark.parametrize("kind", [ClaimJob, SettleJob])
    @pytest.mark.parametrize("way", ["full", "lost"])
    async def test_a_store_that_cannot_write_is_asked_until_it_can(self, kind: type[Request], way: str) -> None:
        faults: dict[str, list[type[Request]]] = {"full": [], "lost": [], way: [kind] * 3}
        async with running_house(core=partial(_Failing, faults=faults), store_retry_s=0.001) as house:
            await house.order("a")
            await house.until(lambda: house.runner.statistics().finished == 1)
            await house.until_idle()
            assert house.doer.runs == [("a", 1)]
            assert await house.listed() == []
            assert len(faults["full"]) == 0

    async def test_a_full_disk_at_a_stop_keeps_the_job_for_the_next_start(self) -> None:
        faults: dict[str, list[type[Request]]] = {"full": [SettleJob] * 10_000, "lost": []}
        core = partial(_Failing, faults=faults)
        async with running_house(core=core, store_retry_s=0.001, stop_deadline_s=0.01) as house:
            await house.order("a")
            await house.until(lambda: house.runner.statistics().finished == 1)
        async with running_house(data=house.data) as house:
            await house.advance(3600)
            assert house.doer.runs == [("a", 2)]

    async def test_a_look_that_fails_is_not_the_last_one(self) -> None:
        async with running_house() as house:
            good = house.jobs.due_jobs
            house.jobs.due_jobs = _unreadable  # type: ignore[method-assign]  # a store that cannot be read
            await house.order("a")
            with structlog.testing.capture_logs() as logs:
                await anyio.wait_all_tasks_blocked()
                house.runner.wake()
                await anyio.wait_all_tasks_blocked()
            assert {log["event"] for log in logs} == {"jobs.look_failed"}
            house.jobs.due_jobs = good  # type: ignore[method-assign]
            house.runner.wake()
            await house.until(lambda: house.doer.runs == [("a", 1)])


async def _unreadable(**_: object) -> tuple[StoredJob, ...]:
    await anyio.lowlevel.checkpoint()
    raise StoreUnavailable("cannot be read")


class TestLag:
    async def test_a_job_that_is_due_for_long_is_told_of_once(self) -> None:
        gate = Gate()
        async with running_house(stops_at(gate), concurrency=1, lag_warning_s=300.0) as house:
            await house.order("a", "b")
            await gate.reached.wait()
            with structlog.testing.capture_logs() as logs:
                for _ in range(3):
                    house.pass_time(200)
                    await anyio.wait_all_tasks_blocked()
            (warning,) = [log for log in logs if log["event"] == "jobs.lagging"]
            assert warning["lag_s"] == 400.0
            gate.opened.set()
            await house.until_idle()


class SetBack(ManualClock):
    """Shows less than it did."""

    def __init__(self) -> None:
        super().__init__()
        self.back_us = 0

    def now_us(self) -> int:
        return super().now_us() - self.back_us


HOURS_US = 5 * 3_600_000_000


class TestClockSetBack:
    async def test_while_nothing_ran_keeps_no_job_waiting(self) -> None:
        data, clock = MemoryData(), SetBack()
        async with running_house(data=data, clock=clock, concurrency=1) as house:
            house.runner.stop_claiming()
            await house.order("a")
            await house.order("b", owner="zoe", in_s=10)
        clock.back_us = HOURS_US
        async with running_house(data=data, clock=clock) as house:
            await house.until(lambda: house.doer.runs == [("a", 1)])
            await house.advance(9)
            assert house.doer.runs == [("a", 1)]
            await house.advance(1)
            assert house.doer.runs == [("a", 1), ("b", 1)]

    async def test_while_it_runs_keeps_no_job_that_failed_waiting(self) -> None:
        clock, failures = SetBack(), [JobFailed("not now")]

        async def deed(job: StoredJob) -> None:
            if failures:
                raise failures.pop()

        async with running_house(deed, clock=clock) as house:
            await house.order("a")
            await house.until_idle()
            assert house.doer.runs == [("a", 1)]
            clock.back_us = HOURS_US
            house.runner.wake()
            await house.until(lambda: house.doer.runs == [("a", 1), ("a", 2)])

    async def test_by_a_little_cuts_no_pause_short(self) -> None:
        clock = SetBack()

        async def deed(job: StoredJob) -> None:
            raise JobFailed("not now", retry_after_s=100_000.0)

        async with running_house(deed, clock=clock) as house:
            await house.order("a")
            await house.until_idle()
            clock.back_us = 30_000_000
            await house.advance(1)
            assert house.doer.runs == [("a", 1)]
