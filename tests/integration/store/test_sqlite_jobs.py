"""Jobs in a real database: what a restart makes of claims, how an older file is brought up, a disk that is full."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.store.test_sqlite_faults import EIO, Medium
from tests.support.failing_sqlite import fails_once
from tests.support.sample_records import KEY, START_US, opening
from tests.support.writing import lease_of, put
from torpor.errors import Fenced, JobLost, StoreFull, StoreUnavailable
from torpor.store.codec import number_batch
from torpor.store.contract import Job
from torpor.store.job_contract import JobCounts, JobState, JobStore, StoredJob
from torpor.store.requests import Append, ClaimJob, SettleJob
from torpor.store.sqlite.connection import DATABASE_FILE
from torpor.store.sqlite.engine import SqliteStore, open_sqlite
from torpor.store.sqlite.migrations import APPLICATION_ID, MIGRATIONS, migrate
from torpor.store.sqlite.reader import open_to_read

REFRESH = Job(id="j", kind="refresh", due_us=START_US)


async def found(jobs: JobStore) -> tuple[StoredJob, ...]:
    return await jobs.due_jobs(now_us=START_US, limit=9, kinds={"refresh"})


async def claim(store: SqliteStore) -> StoredJob:
    (job,) = await found(store.job_store)
    return await store.job_store.claim_job(job, holder="s_1", until_us=START_US + 10**9, now_us=START_US)


async def test_a_job_whose_process_ended_is_due_at_the_next_start_with_its_attempt_counted(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as store:
        await put(store, await lease_of(store), opening(), jobs=[REFRESH])
        old = await claim(store)
        assert (await store.job_store.count_jobs(now_us=START_US)).running == 1
    async with open_sqlite(tmp_path) as store:
        (again,) = await found(store.job_store)
        assert (again.state, again.attempts) == (JobState.WAITING, 1)
        assert await store.job_store.count_jobs(now_us=START_US) == JobCounts(waiting=1, due=1, oldest_due_us=START_US)
        with pytest.raises(JobLost):
            await store.job_store.finish_job(old)
        assert (await claim(store)).attempts == 2


async def test_a_file_can_be_looked_into_while_a_server_runs_its_jobs(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as store:
        await put(store, await lease_of(store), opening(), jobs=[REFRESH])
        running = await claim(store)
        with open_to_read(tmp_path) as reader:
            assert reader.every_job.find_job(KEY, "j") == running


async def test_jobs_of_a_file_of_the_first_version_are_due_as_they_were(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)) as db:
        migrate(db, path="x", migrations=MIGRATIONS[:1])
        db.execute(
            """INSERT INTO conversations
                (tenant, owner, conversation, agent, title, seq, event, batch_id, last_position, created_us, updated_us,
                due_us, quarantine)
                VALUES (?, ?, ?, 'nurse', '', 0, 0, '', 0, 0, 0, NULL, '')""",
            (KEY.tenant, KEY.owner, KEY.conversation),
        )
        db.execute("INSERT INTO jobs VALUES (1, 'j', 'refresh', ?, ?)", (START_US, '{"a":1.0}'))
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    async with open_sqlite(tmp_path) as store:
        (job,) = await found(store.job_store)
        assert (job.id, job.due_us, job.added_us, job.attempts, bytes(job.payload)) == (
            "j",
            START_US,
            START_US,
            0,
            b'{"a":1.0}',
        )
        await store.job_store.finish_job(await claim(store))
        assert await store.job_store.list_jobs(limit=9) == ()


async def test_a_job_whose_process_ended_is_due_though_the_clock_was_set_back(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as store:
        await put(store, await lease_of(store), opening(), jobs=[REFRESH])
        await claim(store)
    before_us = START_US - 3_600_000_000
    async with open_sqlite(tmp_path) as store:
        jobs = store.job_store
        assert await jobs.due_jobs(now_us=before_us, limit=9, kinds={"refresh"}) == ()
        assert await jobs.hasten_jobs(now_us=before_us, beyond_us=2 * START_US)
        (job,) = await jobs.due_jobs(now_us=before_us, limit=9, kinds={"refresh"})
        assert job.attempts == 1
        assert not await jobs.hasten_jobs(now_us=before_us, beyond_us=2 * START_US)


class TestFaults:
    @pytest.fixture
    def medium(self, tmp_path: Path) -> Iterator[Medium]:
        """A database of boot 1 with one job in it."""
        made = Medium(tmp_path)
        records = opening()
        numbers = number_batch(KEY, records, expected_seq=0)
        made.core.commit(
            [
                Append(
                    key=KEY,
                    fence=1,
                    numbers=numbers,
                    batch_id="b",
                    records=records,
                    dedupe={},
                    due_us=None,
                    jobs=[REFRESH],
                    timers=(),
                )
            ]
        )
        yield made
        made.core.close()
        made.reader.close()

    @staticmethod
    def claim_of(medium: Medium, *, fence: int = 1) -> ClaimJob:
        job = medium.reader.every_job.find_job(KEY, "j")
        assert job is not None
        return ClaimJob(key=KEY, id="j", token=job.token, fence=fence, holder="s_1", until_us=0, now_us=START_US)

    @staticmethod
    def finish(claim: ClaimJob) -> SettleJob:
        return SettleJob(key=KEY, id="j", token=claim.token + 1, fence=claim.fence, state=None)

    @staticmethod
    def shown(medium: Medium) -> tuple[JobState, int] | None:
        job = medium.reader.every_job.find_job(KEY, "j")
        return (job.state, job.attempts) if job else None

    def test_a_full_disk_refuses_a_claim_and_an_end_and_loses_neither(self, medium: Medium) -> None:
        claim = self.claim_of(medium)
        medium.db.before = fails_once("\nUPDATE jobs", sqlite3.SQLITE_FULL, "database or disk is full")
        assert [type(outcome) for outcome in medium.core.commit([claim])] == [StoreFull]
        assert self.shown(medium) == (JobState.WAITING, 0)
        assert medium.core.commit([claim]) == [None]
        medium.db.before = fails_once("DELETE", sqlite3.SQLITE_FULL, "database or disk is full")
        assert [type(outcome) for outcome in medium.core.commit([self.finish(claim)])] == [StoreFull]
        assert self.shown(medium) == (JobState.RUNNING, 1)
        assert medium.core.commit([self.finish(claim)]) == [None]
        assert self.shown(medium) is None

    def test_a_claim_whose_outcome_is_unknown_can_be_repeated(self, medium: Medium) -> None:
        claim = self.claim_of(medium)
        written = sqlite3.OperationalError("disk I/O error")
        written.sqlite_errorcode = EIO
        faults = [written]
        medium.db.after = lambda sql: faults.pop() if faults and "UPDATE jobs" in sql else None
        assert [type(outcome) for outcome in medium.core.commit([claim])] == [StoreUnavailable]
        assert self.shown(medium) == (JobState.RUNNING, 1)
        assert medium.core.commit([claim]) == [None]
        assert self.shown(medium) == (JobState.RUNNING, 1)

    def test_a_process_of_an_earlier_start_claims_and_settles_nothing(self, medium: Medium) -> None:
        claim = self.claim_of(medium)
        assert medium.core.commit([claim]) == [None]
        with closing(sqlite3.connect(medium.path)) as db:
            db.execute("UPDATE boot SET number = 2")
            db.commit()
        late = self.claim_of(medium)
        refused = medium.core.commit([late, self.finish(claim)])
        assert [type(outcome) for outcome in refused] == [Fenced, Fenced]
        assert self.shown(medium) == (JobState.WAITING, 1)
