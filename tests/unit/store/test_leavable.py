"""Calls that block in threads: left at once, never more of them than places."""

import threading
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest

from torpor.store.leavable import LeavableCalls, NoPlace

DEADLINE_S = 20.0


class Hanging:
    """Calls that hang until they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.ended = threading.Semaphore(0)
        self.threads: list[threading.Thread] = []

    def call(self) -> str:
        self.threads.append(threading.current_thread())
        self.let_go.wait()
        self.ended.release()
        return "answered"


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.let_go.set()


def calls(*, wait_s: float = DEADLINE_S) -> LeavableCalls:
    return LeavableCalls(1, name="test", wait_s=wait_s)


async def left(calls: LeavableCalls, hanging: Hanging, *, writes: bool = False) -> None:
    """Cancel a call that hangs."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: calls.run(hanging.call, writes=writes))
        while not hanging.threads:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def test_a_call_is_answered_with_what_it_returns_or_raises() -> None:
    def refused() -> None:
        raise OSError("no such thing")

    at = calls()
    assert await at.run(lambda: 7) == 7
    with pytest.raises(OSError, match="no such thing"):
        await at.run(refused)
    assert await at.run(lambda: 8) == 8


@pytest.mark.parametrize("writes", [False, True])
async def test_whoever_is_cancelled_leaves_a_call_that_hangs(hanging: Hanging, *, writes: bool) -> None:
    with anyio.fail_after(DEADLINE_S):
        await left(calls(), hanging, writes=writes)
    assert not hanging.ended.acquire(blocking=False)


async def test_a_call_that_hangs_keeps_its_place_until_it_ends(hanging: Hanging) -> None:
    at = calls(wait_s=0.02)
    with anyio.fail_after(DEADLINE_S):
        await left(at, hanging)
        with pytest.raises(NoPlace):
            await at.run(lambda: 7)
        hanging.let_go.set()
        while True:
            try:
                assert await at.run(lambda: 7) == 7
            except NoPlace:
                continue
            break


async def test_the_threads_do_not_keep_the_process(hanging: Hanging) -> None:
    with anyio.fail_after(DEADLINE_S):
        await left(calls(), hanging)
    (thread,) = hanging.threads
    assert thread.is_alive()
    assert thread.daemon
