"""How long a drain takes, on a virtual clock."""

import anyio
import pytest
from trio.testing import MockClock

from tests.support.doubles import Gate, LoopClock, says, waits
from tests.support.engine import KEY, Engine, running_engine
from tests.support.job_house import running_house
from torpor.jobs.options import JobOptions
from torpor.jobs.runner import JobRunner
from torpor.records.journal import TurnFinished
from torpor.store.job_contract import StoredJob
from torpor.supervisor.drain import Drain
from torpor.supervisor.options import SupervisorOptions

DEFAULTS = SupervisorOptions()
STOP_S = DEFAULTS.stop_deadline_s


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, MockClock]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def drain_of(engine: Engine, jobs: JobRunner | None = None) -> Drain:
    jobs = jobs or JobRunner(engine.store.job_store, clock=engine.clock, options=JobOptions(), holder="s_1")
    return Drain(actors=engine.supervisor, jobs=jobs, clock=engine.clock, deadline_s=STOP_S)


async def test_a_step_that_outlasts_the_deadline_is_cut_off_and_done_again_in_the_next_life() -> None:
    async with running_engine(waits(Gate(), says("never")), clock=LoopClock(), options=DEFAULTS) as engine:
        await engine.send("hi")
        await anyio.wait_all_tasks_blocked()
        drain, began_s = drain_of(engine), anyio.current_time()
        assert drain.statistics().draining == 0
        told = drain.begin()
        assert (told.draining, told.turns, told.jobs) == (True, 1, 0)
        assert told.ends_us == engine.clock.now_us() + STOP_S * 1_000_000
        assert drain.statistics().turns_left == 1
        await drain.finish()
        assert anyio.current_time() - began_s == pytest.approx(STOP_S)
        assert drain.statistics().cut_off == 1
    assert anyio.current_time() - began_s == pytest.approx(STOP_S), "the deadline passes once"
    async with running_engine(data=engine.store.data, clock=LoopClock(), options=DEFAULTS) as successor:
        await successor.rested()
        assert len(await successor.records_of(TurnFinished)) == 1
        assert successor.supervisor.live_status(KEY) is not None


async def test_a_drain_can_be_given_less_time_and_not_more() -> None:
    async with running_engine(waits(Gate(), says("never")), clock=LoopClock(), options=DEFAULTS) as engine:
        await engine.send("hi")
        await anyio.wait_all_tasks_blocked()
        drain, began_s = drain_of(engine), anyio.current_time()
        async with anyio.create_task_group() as tasks:
            drain.begin(deadline_s=100.0)
            tasks.start_soon(drain.finish)
            await anyio.sleep(1.0)
            assert drain.left_s() == pytest.approx(99.0)
            drain.begin(deadline_s=2.0)
            drain.begin(deadline_s=50.0)
        assert anyio.current_time() - began_s == pytest.approx(3.0)


async def test_a_server_at_rest_is_drained_at_once() -> None:
    async with running_engine(clock=LoopClock(), options=DEFAULTS) as engine:
        await engine.ask("hi")
        drain, began_s = drain_of(engine), anyio.current_time()
        await drain.finish()
        assert anyio.current_time() == began_s
        assert drain.statistics().cut_off == 0


@pytest.mark.parametrize(("runs_s", "waits_s", "ended"), [(3.0, 3.0, 1), (50.0, 5.0, 0)])
async def test_a_job_that_runs_has_its_time_and_no_other_begins(runs_s: float, waits_s: float, ended: int) -> None:
    async def deed(job: StoredJob) -> None:
        await anyio.sleep(runs_s)

    clock = LoopClock()
    async with (
        running_engine(clock=clock, options=DEFAULTS) as engine,
        running_house(deed, clock=clock, stop_deadline_s=5.0) as house,
    ):
        await house.order("one")
        await anyio.wait_all_tasks_blocked()
        drain, began_s = drain_of(engine, house.runner), anyio.current_time()
        assert drain.begin().jobs == 1
        await house.order("two", owner="bob")
        await drain.finish()
        assert anyio.current_time() - began_s == pytest.approx(waits_s)
        assert [name for name, _ in house.doer.runs] == ["one"]
        assert house.runner.statistics().finished == ended
    assert anyio.current_time() - began_s == pytest.approx(waits_s)
    assert house.runner.statistics().cut_off == 1 - ended
