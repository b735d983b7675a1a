"""Every store finds, claims and settles jobs alike."""

import msgspec
import pytest

from tests.support.sample_records import KEY, START_US, opening, requested
from tests.support.writing import lease_of, put
from torpor.errors import JobLost
from torpor.records.ids import ConversationKey
from torpor.store.contract import Job
from torpor.store.in_memory import InMemoryStore
from torpor.store.job_contract import JobCounts, JobState, JobStore, Owner, StoredJob
from torpor.store.sqlite.engine import SqliteStore

Backend = InMemoryStore | SqliteStore
OTHER = ConversationKey("default", "zoe", "c_9")
LATER_US = START_US + 1_000_000


def refresh(id_: str = "j", *, due_us: int = START_US, kind: str = "refresh", payload: bytes = b"{}") -> Job:
    return Job(id=id_, kind=kind, due_us=due_us, payload=msgspec.Raw(payload))


async def ordered(store: Backend, *jobs: Job, key: ConversationKey = KEY) -> JobStore:
    """``jobs`` written by the first append of ``key``."""
    await put(store, await lease_of(store, key), opening(), jobs=jobs)
    return store.job_store


async def due(
    jobs: JobStore, *, now_us: int = START_US, limit: int = 10, passing_over: tuple[Owner, ...] = ()
) -> list[str]:
    found = await jobs.due_jobs(now_us=now_us, limit=limit, kinds={"refresh"}, passing_over=passing_over)
    return [job.id for job in found]


async def only(jobs: JobStore) -> StoredJob:
    (job,) = await jobs.list_jobs(limit=10)
    return job


async def claimed(jobs: JobStore, *, now_us: int = START_US) -> StoredJob:
    return await jobs.claim_job(await only(jobs), holder="s_1", until_us=now_us + 1000, now_us=now_us)


class TestFinding:
    async def test_a_job_is_due_from_its_moment_on_oldest_first(self, store: Backend) -> None:
        jobs = await ordered(store, refresh("b", due_us=LATER_US), refresh("a", due_us=START_US))
        assert await due(jobs, now_us=START_US - 1) == []
        assert await due(jobs, now_us=LATER_US - 1) == ["a"]
        assert await due(jobs, now_us=LATER_US) == ["a", "b"]
        assert await due(jobs, now_us=LATER_US, limit=1) == ["a"]

    async def test_it_is_found_with_all_that_its_append_said(self, store: Backend) -> None:
        jobs = await ordered(store, refresh("a", payload=b'{"turn":1.0}'))
        (found,) = await jobs.due_jobs(now_us=START_US, limit=1, kinds={"refresh"})
        assert (found.key, found.id, found.kind, found.due_us, found.added_us) == (
            KEY,
            "a",
            "refresh",
            START_US,
            opening()[-1].at_us,
        )
        assert bytes(found.payload) == b'{"turn":1.0}'
        assert (found.state, found.attempts, found.error) == (JobState.WAITING, 0, "")
        assert await jobs.find_job(KEY, "a") == found
        assert await jobs.find_job(OTHER, "a") is None

    async def test_kinds_and_owners_that_are_not_asked_for_are_passed_over(self, store: Backend) -> None:
        jobs = await ordered(store, refresh("a"), refresh("b", kind="extract"))
        await ordered(store, refresh("c", due_us=START_US + 1), key=OTHER)
        assert await due(jobs, now_us=LATER_US) == ["a", "c"]
        assert await due(jobs, now_us=LATER_US, passing_over=(Owner(KEY.tenant, KEY.owner),)) == ["c"]
        assert await due(jobs, now_us=LATER_US, passing_over=(Owner("elsewhere", KEY.owner),)) == ["a", "c"]
        assert await jobs.due_jobs(now_us=LATER_US, limit=9, kinds=set()) == ()

    async def test_the_next_moment_is_that_of_the_first_job_that_is_not_due_yet(self, store: Backend) -> None:
        jobs = await ordered(
            store, refresh("a"), refresh("b", due_us=LATER_US), refresh("c", kind="x", due_us=LATER_US - 1)
        )
        assert await jobs.next_job_us(now_us=START_US, kinds={"refresh"}) == LATER_US
        assert await jobs.next_job_us(now_us=LATER_US, kinds={"refresh"}) is None

    async def test_jobs_of_a_quarantined_conversation_wait_and_are_still_listed(self, store: Backend) -> None:
        jobs = await ordered(store, refresh("a"))
        await store.quarantine(KEY, reason="record 7 is missing")
        assert await due(jobs) == []
        assert (await jobs.count_jobs(now_us=START_US)).oldest_due_us is None
        assert (await only(jobs)).id == "a"
        await store.quarantine(KEY, reason="")
        assert await due(jobs) == ["a"]


class TestClaiming:
    async def test_a_claimed_job_is_running_and_its_attempt_is_counted(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        mine = await claimed(jobs)
        assert (mine.state, mine.attempts) == (JobState.RUNNING, 1)
        assert await only(jobs) == mine
        assert await due(jobs) == []

    async def test_of_two_who_found_it_one_gets_it(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        found = await only(jobs)
        await jobs.claim_job(found, holder="s_1", until_us=LATER_US, now_us=START_US)
        finished = await only(jobs)
        await jobs.retry_job(finished, due_us=START_US, error="later")
        with pytest.raises(JobLost):
            await jobs.claim_job(found, holder="s_2", until_us=LATER_US, now_us=START_US)
        assert (await only(jobs)).attempts == 1

    async def test_a_claim_that_is_repeated_counts_once(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        found = await only(jobs)
        once = await jobs.claim_job(found, holder="s_1", until_us=LATER_US, now_us=START_US)
        again = await jobs.claim_job(found, holder="s_1", until_us=LATER_US, now_us=START_US)
        assert once == again == await only(jobs)

    async def test_nobody_claims_what_is_gone(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        found = await only(jobs)
        await jobs.finish_job(await claimed(jobs))
        with pytest.raises(JobLost, match=f"job 'j' of conversation '{KEY.path}' is not held"):
            await jobs.claim_job(found, holder="s_1", until_us=LATER_US, now_us=START_US)


class TestSettling:
    async def test_a_finished_job_is_gone(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        await jobs.finish_job(await claimed(jobs))
        assert await jobs.list_jobs(limit=10) == ()
        assert await store.jobs(KEY) == ()

    async def test_a_failed_one_is_due_again_with_its_attempts_and_its_error(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        await jobs.retry_job(await claimed(jobs), due_us=LATER_US, error="no answer")
        job = await only(jobs)
        assert (job.state, job.attempts, job.due_us, job.error) == (JobState.WAITING, 1, LATER_US, "no answer")
        assert await due(jobs, now_us=LATER_US - 1) == []
        assert (await claimed(jobs, now_us=LATER_US)).attempts == 2

    async def test_one_that_is_put_back_is_as_it_was(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        await jobs.retry_job(await claimed(jobs), due_us=START_US, error="no answer")
        before = await only(jobs)
        await jobs.put_back_job(await claimed(jobs))
        after = await only(jobs)
        assert msgspec.structs.replace(after, token=before.token) == before
        assert await due(jobs) == ["j"]

    async def test_a_dead_letter_keeps_its_reason_and_is_never_due(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        await jobs.bury_job(await claimed(jobs), reason="its turn is gone")
        job = await only(jobs)
        assert (job.state, job.attempts, job.error) == (JobState.DEAD, 1, "its turn is gone")
        assert await due(jobs, now_us=LATER_US) == []
        assert await jobs.next_job_us(now_us=0, kinds={"refresh"}) is None
        with pytest.raises(JobLost):
            await claimed(jobs, now_us=LATER_US)

    async def test_an_attempt_that_never_began_need_not_count(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        await jobs.bury_job(await claimed(jobs), reason="too often", counts=False)
        assert (await only(jobs)).attempts == 0

    async def test_whoever_settled_a_job_cannot_settle_it_again(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        first = await claimed(jobs)
        await jobs.retry_job(first, due_us=START_US, error="no answer")
        await claimed(jobs)
        with pytest.raises(JobLost):
            await jobs.finish_job(first)
        with pytest.raises(JobLost):
            await jobs.bury_job(first, reason="x")
        assert (await only(jobs)).state is JobState.RUNNING

    async def test_an_append_puts_another_job_in_the_place_of_one_that_runs(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        first = await claimed(jobs)
        await put(store, await lease_of(store), [requested(3)], jobs=[refresh(due_us=LATER_US, payload=b"[2]")])
        with pytest.raises(JobLost):
            await jobs.finish_job(first)
        job = await only(jobs)
        assert (job.state, job.attempts, job.due_us, bytes(job.payload)) == (JobState.WAITING, 0, LATER_US, b"[2]")

    async def test_a_new_job_wakes_a_dead_letter_of_its_name(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        await jobs.bury_job(await claimed(jobs), reason="its turn is gone")
        await put(store, await lease_of(store), [requested(3)], jobs=[refresh()])
        job = await only(jobs)
        assert (job.state, job.attempts, job.error) == (JobState.WAITING, 0, "")

    async def test_settling_one_job_leaves_its_neighbours(self, store: Backend) -> None:
        jobs = await ordered(store, refresh("j"), refresh("k"))
        await ordered(store, refresh("j"), key=OTHER)
        (mine,) = [job for job in await jobs.list_jobs(limit=9) if (job.key, job.id) == (KEY, "j")]
        await jobs.finish_job(await jobs.claim_job(mine, holder="s_1", until_us=LATER_US, now_us=START_US))
        assert {(job.key, job.id) for job in await jobs.list_jobs(limit=9)} == {(KEY, "k"), (OTHER, "j")}


class TestOperating:
    async def test_lists_are_in_order_paged_and_narrowed(self, store: Backend) -> None:
        jobs = await ordered(store, refresh("b"), refresh("a"))
        await ordered(store, refresh("a"), key=OTHER)

        async def places(**narrowed: object) -> list[tuple[str, str]]:
            return [(job.key.owner, job.id) for job in await jobs.list_jobs(limit=10, **narrowed)]  # type: ignore[arg-type]  # any of its filters

        every = [(KEY.owner, "a"), (KEY.owner, "b"), ("zoe", "a")]
        assert await places() == every
        assert await places(after=(KEY, "a")) == every[1:]
        assert await places(after=(KEY, "b")) == every[2:]
        assert await places(owner="zoe") == every[2:]
        assert await places(tenant="elsewhere") == []
        assert await places(conversation=KEY.conversation) == every[:2]
        assert await places(state=JobState.DEAD) == []
        assert len(await jobs.list_jobs(limit=2)) == 2

    async def test_counts_tell_the_states_and_since_when_the_oldest_is_due(self, store: Backend) -> None:
        assert await store.job_store.count_jobs(now_us=START_US) == JobCounts()
        jobs = await ordered(store, *(refresh(id_, due_us=START_US + place) for place, id_ in enumerate("abcde")))
        await jobs.bury_job(await self._claim(jobs, "a"), reason="x")
        await self._claim(jobs, "b")
        assert await jobs.count_jobs(now_us=START_US + 3) == JobCounts(
            waiting=3, due=2, running=1, dead=1, oldest_due_us=START_US + 2
        )

    async def test_a_dead_letter_that_is_redone_is_due_at_once_with_all_its_attempts(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        await jobs.bury_job(await claimed(jobs), reason="no answer")
        await jobs.redo_job(KEY, "j", now_us=LATER_US)
        job = await only(jobs)
        assert (job.state, job.attempts, job.due_us, job.error) == (JobState.WAITING, 0, LATER_US, "no answer")
        assert await due(jobs, now_us=LATER_US) == ["j"]

    async def test_a_dropped_job_is_gone(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        await jobs.drop_job(KEY, "j", now_us=START_US)
        assert await jobs.list_jobs(limit=10) == ()

    async def test_what_runs_or_is_not_there_is_neither_redone_nor_dropped(self, store: Backend) -> None:
        jobs = await ordered(store, refresh())
        mine = await claimed(jobs)
        for key, id_ in ((KEY, "j"), (KEY, "k"), (OTHER, "j")):
            with pytest.raises(JobLost):
                await jobs.redo_job(key, id_, now_us=START_US)
            with pytest.raises(JobLost):
                await jobs.drop_job(key, id_, now_us=START_US)
        assert await only(jobs) == mine

    async def _claim(self, jobs: JobStore, id_: str) -> StoredJob:
        found = await jobs.find_job(KEY, id_)
        assert found is not None
        return await jobs.claim_job(found, holder="s_1", until_us=LATER_US, now_us=START_US)


class TestClockSetBack:
    BACK_US = 5 * 3_600 * 1_000_000

    async def test_what_was_added_later_than_now_waits_as_long_as_it_was_to(self, store: Backend) -> None:
        jobs = await ordered(store, refresh("a"), refresh("b", due_us=START_US + 1_000))
        now_us = START_US - self.BACK_US
        assert await jobs.hasten_jobs(now_us=now_us, beyond_us=START_US + self.BACK_US)
        assert await due(jobs, now_us=now_us) == ["a"]
        assert await due(jobs, now_us=now_us + 999) == ["a"]
        assert await due(jobs, now_us=now_us + 1_000) == ["a", "b"]
        assert not await jobs.hasten_jobs(now_us=now_us, beyond_us=now_us + 2_000)

    async def test_a_further_attempt_is_due_that_no_pause_put_so_late_and_no_other(self, store: Backend) -> None:
        jobs = await ordered(store, refresh("a"))
        await jobs.retry_job(await claimed(jobs), due_us=LATER_US, error="x")
        assert not await jobs.hasten_jobs(now_us=START_US, beyond_us=LATER_US)
        assert await due(jobs) == []
        assert await jobs.hasten_jobs(now_us=START_US, beyond_us=LATER_US - 1)
        assert await due(jobs) == ["a"]
        (job,) = await jobs.list_jobs(limit=9)
        assert (job.attempts, job.error) == (1, "x")

    async def test_a_job_that_is_to_wait_for_long_does(self, store: Backend) -> None:
        jobs = await ordered(store, refresh("a", due_us=LATER_US))
        assert not await jobs.hasten_jobs(now_us=START_US, beyond_us=START_US)
        assert await due(jobs) == []

    async def test_what_runs_and_what_is_dead_stays(self, store: Backend) -> None:
        jobs = await ordered(store, refresh("a"))
        running = await claimed(jobs)
        assert not await jobs.hasten_jobs(now_us=START_US - self.BACK_US, beyond_us=LATER_US)
        await jobs.bury_job(running, reason="x")
        assert not await jobs.hasten_jobs(now_us=START_US - self.BACK_US, beyond_us=LATER_US)
