from collections.abc import AsyncIterator, Callable

import anyio
import pytest

from torpor.client.failures import ClientClosed
from torpor.client.items import AnyItem, DeltaItem, EventItem
from torpor.client.watch import Watch
from torpor.records.events import TurnFinishedEvent


def event(number: int) -> EventItem:
    return EventItem(conversation="c1", epoch=1, event=TurnFinishedEvent(event=number, at_us=1))


def delta(offset: int) -> DeltaItem:
    return DeltaItem(conversation="c1", call="call1", offset=offset, text="x")


class Calls:
    def __init__(self) -> None:
        self.drained = 0
        self.closed = 0

    def on_drained(self) -> None:
        self.drained += 1

    def on_close(self) -> None:
        self.closed += 1


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
async def watch(calls: Calls) -> AsyncIterator[Watch]:
    async with Watch(on_drained=calls.on_drained, on_close=calls.on_close, items_max=4) as opened:
        yield opened


async def next_of(watch: Watch) -> AnyItem:
    with anyio.fail_after(5):
        return await anext(watch)


async def test_items_come_in_order(watch: Watch) -> None:
    assert all(watch.offer(event(number)) for number in (1, 2, 3))

    assert [await next_of(watch) for _ in range(3)] == [event(1), event(2), event(3)]


async def test_without_room_an_item_is_refused_and_half_of_the_room_is_for_events(watch: Watch) -> None:
    taken = [watch.offer(item) for item in (delta(0), delta(1), delta(2), event(1), event(2), event(3))]

    assert taken == [True, True, False, True, True, False]


async def test_whoever_took_everything_is_noticed_before_the_wait(watch: Watch, calls: Calls) -> None:
    watch.offer(event(1))
    await next_of(watch)
    assert calls.drained == 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(next_of, watch)
        await anyio.wait_all_tasks_blocked()
        assert calls.drained == 1
        watch.offer(event(2))


async def test_a_failure_comes_behind_what_was_queued(watch: Watch) -> None:
    watch.offer(event(1))
    watch.fail(ClientClosed())

    assert await next_of(watch) == event(1)
    with pytest.raises(ClientClosed):
        await next_of(watch)


async def test_closing_ends_the_iteration_once(watch: Watch, calls: Calls) -> None:
    watch.offer(event(1))
    await watch.aclose()
    await watch.aclose()

    assert [item async for item in watch] == []
    assert calls.closed == 1


async def test_leaving_the_loop_early_leaves_the_rest_for_the_next_loop(watch: Watch) -> None:
    for number in (1, 2, 3):
        watch.offer(event(number))
    async for _ in watch:
        break

    assert await next_of(watch) == event(2)


async def test_closing_ends_a_wait_in_another_task(watch: Watch) -> None:
    async def consume(done: Callable[[], None]) -> None:
        assert [item async for item in watch] == []
        done()

    finished = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume, finished.set)
            await anyio.wait_all_tasks_blocked()
            await watch.aclose()
            await finished.wait()
