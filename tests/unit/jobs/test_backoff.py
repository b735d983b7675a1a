"""Pauses grow, spread, and are the same for the same job."""

import msgspec

from tests.support.sample_records import KEY
from torpor.jobs.backoff import pause_s
from torpor.jobs.options import JobOptions
from torpor.store.job_contract import StoredJob

OPTIONS = JobOptions(backoff_s=10.0, backoff_max_s=100.0)


def job(name: str = "j", *, attempts: int = 1) -> StoredJob:
    return StoredJob(key=KEY, id=name, kind="refresh", due_us=0, added_us=0, attempts=attempts)


def test_a_pause_doubles_up_to_the_longest_within_a_quarter_of_it() -> None:
    for attempts, about_s in ((0, 10), (1, 10), (2, 20), (3, 40), (4, 80), (5, 100), (1000, 100)):
        assert 0.75 * about_s <= pause_s(job(attempts=attempts), OPTIONS) <= 1.25 * about_s


def test_pauses_of_jobs_that_failed_together_are_apart() -> None:
    pauses = [pause_s(job(f"j_{number}"), OPTIONS) for number in range(200)]
    assert max(pauses) - min(pauses) > 4
    assert len(set(pauses)) == 200


def test_the_same_attempt_of_the_same_job_rests_as_long() -> None:
    assert pause_s(job(), OPTIONS) == pause_s(msgspec.structs.replace(job(), error="x"), OPTIONS)


def test_a_name_that_is_no_text_has_a_pause_too() -> None:
    assert pause_s(job("\ud800"), OPTIONS) > 0
