"""Who gets the next free place, what waiting costs nobody else, and that a cancel loses none."""

from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from torpor.records.ids import ConversationKey
from torpor.turn.places import FairPlaces, Share

DEADLINE_S = 10


class Watch:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


class Desk:
    """Calls that end when the test says so, in the order in which they got their places."""

    def __init__(self, tasks: anyio.abc.TaskGroup, places: FairPlaces) -> None:
        self._tasks = tasks
        self._places = places
        self.began: list[str] = []
        self._under_way: list[anyio.Event] = []

    def call(self, owner: str, *, count: int = 1) -> None:
        for _ in range(count):
            self._tasks.start_soon(self._call, owner, self._places.of(ConversationKey("acme", owner, "c_1")))

    async def end_one(self) -> None:
        """End the call that has had its place for the longest time, and let the next ones begin."""
        self._under_way.pop(0).set()
        await anyio.wait_all_tasks_blocked()

    async def _call(self, owner: str, share: Share) -> None:
        async with share:
            self.began.append(owner)
            ended = anyio.Event()
            self._under_way.append(ended)
            await ended.wait()


def places(count: int, *, per_owner: int = 0, monotonic_s: Callable[[], float] = lambda: 0.0) -> FairPlaces:
    return FairPlaces(count, per_owner=per_owner, monotonic_s=monotonic_s)


async def test_a_thousand_calls_of_one_owner_delay_another_ones_call_by_one_turn() -> None:
    fair = places(1)
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            desk = Desk(tasks, fair)
            desk.call("eager", count=1_001)
            await anyio.wait_all_tasks_blocked()
            desk.call("ann")
            await anyio.wait_all_tasks_blocked()
            await desk.end_one()
            await desk.end_one()
            assert desk.began == ["eager", "eager", "ann"]
            assert fair.statistics().waiting == 999
            tasks.cancel_scope.cancel()
    assert fair.statistics().taken == 0


async def test_owners_take_turns_and_each_ones_calls_keep_their_order() -> None:
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            desk = Desk(tasks, places(1))
            for owner, count in (("a", 4), ("b", 2), ("c", 1)):
                desk.call(owner, count=count)
                await anyio.wait_all_tasks_blocked()
            while len(desk.began) < 7:
                await desk.end_one()
            await desk.end_one()
    assert desk.began == ["a", "a", "b", "c", "a", "b", "a"]


async def test_an_owner_at_its_bound_waits_while_places_are_free_and_is_served_when_it_gives_one_back() -> None:
    fair = places(3, per_owner=2)
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            desk = Desk(tasks, fair)
            desk.call("eager", count=4)
            await anyio.wait_all_tasks_blocked()
            assert (desk.began, fair.statistics().waiting) == (["eager"] * 2, 2)
            desk.call("ann")
            await anyio.wait_all_tasks_blocked()
            assert desk.began[2:] == ["ann"]
            await desk.end_one()
            assert desk.began[3:] == ["eager"]
            while fair.statistics().taken:
                await desk.end_one()
    assert desk.began[4:] == ["eager"]


async def test_a_newcomer_does_not_pass_those_that_wait() -> None:
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            fair = places(1)
            desk = Desk(tasks, fair)
            desk.call("a", count=2)
            await anyio.wait_all_tasks_blocked()
            assert not fair.take_nowait(("acme", "b"))
            await desk.end_one()
            assert desk.began == ["a", "a"]
            await desk.end_one()
            assert fair.take_nowait(("acme", "b"))
            fair.give_back(("acme", "b"))


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_call_that_is_cancelled_while_it_waits_leaves_its_place_to_the_next(is_late: bool) -> None:
    fair = places(1)
    eager = ("acme", "eager")
    got: list[str] = []

    async def wait(owner: str, scope: anyio.CancelScope) -> None:
        with scope:
            await fair.take(("acme", owner))
            await anyio.lowlevel.checkpoint()
            got.append(owner)
            fair.give_back(("acme", owner))

    assert fair.take_nowait(eager)
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            first, second = anyio.CancelScope(), anyio.CancelScope()
            tasks.start_soon(wait, "first", first)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(wait, "second", second)
            await anyio.wait_all_tasks_blocked()
            if not is_late:
                first.cancel()
            fair.give_back(eager)
            if is_late:
                await anyio.wait_all_tasks_blocked()
    assert got[-1] == "second"
    assert (fair.statistics().taken, fair.statistics().waiting) == (0, 0)


async def test_a_place_given_in_the_moment_of_a_cancel_is_not_lost() -> None:
    fair = places(1)
    assert fair.take_nowait(("acme", "eager"))
    scope = anyio.CancelScope()

    async def wait() -> None:
        with scope:
            async with fair.of(ConversationKey("acme", "ann", "c_1")):
                await anyio.lowlevel.checkpoint()

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            fair.give_back(("acme", "eager"))
            scope.cancel()
    assert fair.take_nowait(("acme", "eager"))


async def test_statistics_tell_how_much_is_taken_and_awaited_and_for_how_long_without_a_name() -> None:
    watch = Watch()
    fair = places(2, monotonic_s=watch.monotonic_s)
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            desk = Desk(tasks, fair)
            desk.call("a", count=4)
            await anyio.wait_all_tasks_blocked()
            desk.call("b")
            await anyio.wait_all_tasks_blocked()
            now = fair.statistics()
            assert (now.places, now.taken, now.waiting, now.owners, now.owners_waiting) == (2, 2, 3, 1, 2)
            assert (now.owner_taken_most, now.owner_waiting_most, now.grants, now.waited_s) == (2, 2, 2, 0.0)
            watch.now_s = 3.0
            await desk.end_one()
            assert (fair.statistics().grants, fair.statistics().waited_s) == (3, 3.0)
            assert repr(fair) == "<FairPlaces taken=2/2 waiting=2>"
            tasks.cancel_scope.cancel()
