"""What the runner does with time, on a virtual clock and without a ring."""

from itertools import pairwise

import anyio
import pytest
from trio.testing import MockClock

from tests.support.doubles import LoopClock
from tests.support.job_house import running_house
from torpor.errors import JobFailed
from torpor.store.job_contract import StoredJob


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, MockClock]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


async def test_a_job_runs_at_its_moment_though_nobody_rings() -> None:
    clock, times = LoopClock(), []

    async def deed(job: StoredJob) -> None:
        times.append(clock.monotonic_s())

    async with running_house(deed, clock=clock, poll_s=3600.0) as house:
        await house.order("a", in_s=100.5)
        await anyio.sleep(200)
    assert times == [pytest.approx(100.5)]


async def test_failures_are_repeated_at_growing_pauses_until_the_longest() -> None:
    clock, times = LoopClock(), []

    async def deed(job: StoredJob) -> None:
        times.append(clock.monotonic_s())
        raise JobFailed("no answer")

    async with running_house(deed, clock=clock, backoff_s=10.0, backoff_max_s=40.0, attempts_max=5) as house:
        await house.order("a")
        await anyio.sleep(1000)
        pauses = [later - earlier for earlier, later in pairwise(times)]
        for pause_s, about_s in zip(pauses, (10, 20, 40, 40), strict=True):
            assert 0.75 * about_s <= pause_s <= 1.25 * about_s
        assert (await house.only()).error == "no answer"


async def test_an_idle_runner_looks_no_more_often_than_it_is_told() -> None:
    looks = 0
    async with running_house(clock=LoopClock(), poll_s=30.0) as house:
        look = house.jobs.next_job_us

        async def counted(**arguments: object) -> int | None:
            nonlocal looks
            looks += 1
            return await look(**arguments)  # type: ignore[arg-type]  # as it was asked

        house.jobs.next_job_us = counted  # type: ignore[method-assign]  # to see how often it is asked
        await house.order("later", in_s=100_000)
        await anyio.sleep(3000)
        assert looks <= 3000 / 30 + 2


async def test_a_job_longer_than_the_stop_deadline_is_cut_off_then() -> None:
    clock, cut_at = LoopClock(), []

    async def deed(job: StoredJob) -> None:
        try:
            await anyio.sleep(1000)
        finally:
            cut_at.append(clock.monotonic_s())

    async with running_house(deed, clock=clock, stop_deadline_s=5.0) as house:
        await house.order("a")
        await anyio.sleep(10)
    assert cut_at == [pytest.approx(15.0)]
