"""What operators may ask about background work, frame by frame."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.support.gateway_line import Line, principal
from tests.support.gateway_world import World
from torpor.gateway.options import GatewayOptions
from torpor.records.frames import CountJobs, Done, DropJob, ErrorFrame, ListJobs, Result, RetryJob
from torpor.records.ids import ConversationKey
from torpor.store.job_contract import JobCounts, JobState

KEY = ConversationKey("default", "alice", "c1")
Opened = Callable[..., AbstractAsyncContextManager[Line]]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def opened(world: World) -> Opened:
    """A line of an operator for the length of a block."""

    @asynccontextmanager
    async def open_line(**options: Any) -> Any:
        async with anyio.create_task_group() as tasks:
            who = principal("ops", scopes=("operator",))
            line = Line(world, tasks, options=GatewayOptions(**options), principal=who)
            yield line
            line.session.end()
            tasks.cancel_scope.cancel()

    return open_line


async def test_operators_page_through_jobs_and_narrow_them(world: World, opened: Opened) -> None:
    for number in range(5):
        state = JobState.DEAD if number == 3 else JobState.WAITING
        world.jobs.file(KEY, f"j_{number}", state=state, attempts=number, error="no answer" if number else "")
    async with opened(list_rows_max=2) as line:
        rows: list[dict[str, Any]] = []
        more = True
        while more:
            line.say(ListJobs(after=rows[-1]["path"] if rows else ""))
            result = await line.hear_a(Result)
            rows += result.rows
            more = result.more
        line.say(ListJobs(state="dead"))
        dead = await line.hear_a(Result)

    assert [row["path"] for row in rows] == [f"default/alice/c1/j_{number}" for number in range(5)]
    assert dead.rows == (
        {
            "path": "default/alice/c1/j_3",
            "conversation": "default/alice/c1",
            "id": "j_3",
            "kind": "refresh",
            "state": "dead",
            "attempts": 3,
            "added_us": 1_000,
            "due_us": 2_000,
            "error": "no answer",
        },
    )


async def test_operators_are_told_how_many_jobs_there_are(world: World, opened: Opened) -> None:
    world.jobs.counts = JobCounts(waiting=3, due=2, running=1, dead=4, oldest_due_us=7)
    async with opened() as line:
        line.say(CountJobs(ref="r1"))
        counted = await line.hear_a(Result)
    assert counted.rows == ({"waiting": 3, "due": 2, "running": 1, "dead": 4, "oldest_due_us": 7},)


async def test_operators_retry_and_drop_jobs_that_do_not_run(world: World, opened: Opened) -> None:
    world.jobs.file(KEY, "j_1", state=JobState.DEAD)
    world.jobs.file(KEY, "j_2", state=JobState.RUNNING)
    async with opened() as line:
        line.say(RetryJob(ref="r1", path="default/alice/c1/j_1"))
        assert (await line.hear_a(Done)).ref == "r1"
        assert world.jobs.redone == ["j_1"]
        line.say(DropJob(ref="r2", path="alice/c1/j_1"))
        assert (await line.hear_a(Done)).ref == "r2"
        assert list(world.jobs.by_place) == [(KEY, "j_2")]
        for frame, code in (
            (RetryJob(path="alice/c1/j_1"), "unknown_job"),
            (DropJob(path="alice/c1/j_2"), "job_running"),
            (DropJob(path="j_2"), "bad_frame"),
            (DropJob(path="alice/c1/two words"), "bad_frame"),
            (ListJobs(state="asleep"), "bad_frame"),
        ):
            line.say(frame)
            assert (await line.hear_a(ErrorFrame)).code == code
