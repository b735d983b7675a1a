"""Runs an asynchronous function so that the same seed gives the same run, to the last step.

trio alone can do that, by a private switch of its scheduler: tasks that are ready together are put in order of their
creation and shuffled by a seeded source. Time is virtual and jumps to the next deadline when nobody has anything to
do, so hours cost nothing. What runs must use no thread, no socket and no clock of its own. ``check`` proves, before
anybody relies on it, that the installed trio still behaves so.
"""

import gc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import trio
import trio._core._run as scheduler
from trio.testing import MockClock

T = TypeVar("T")


def run(seed: int, main: Callable[[], Awaitable[T]], *, instruments: Sequence[trio.abc.Instrument] = ()) -> T:
    """Run ``main`` to its end under the scheduler that ``seed`` names, from virtual time 0."""
    options: dict[str, Any] = {"clock": MockClock(autojump_threshold=0), "instruments": instruments}
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]  # private, guarded by check
    scheduler._r.seed(seed)
    collects = gc.isenabled()
    gc.disable()  # a collection would run finalisers at a moment that the seed does not decide
    try:
        return anyio.run(main, backend="trio", backend_options=options)
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before[0]  # type: ignore[misc]
        scheduler._r.setstate(before[1])
        if collects:
            gc.enable()


def check() -> None:
    """Raises: RuntimeError: equal seeds give different runs, or different seeds give the same one."""
    first, again, other = interleaving(1), interleaving(1), interleaving(2)
    if first != again or first == other:
        raise RuntimeError("this trio no longer schedules by seed, simulation needs another way to be repeatable")


def interleaving(seed: int) -> list[str]:
    """In which order a few tasks that are always ready together take their turns."""
    steps: list[str] = []

    async def worker(name: int) -> None:
        for turn in range(5):
            steps.append(f"{name}.{turn}")
            if turn % 2:
                await anyio.lowlevel.checkpoint()
            else:
                await anyio.sleep(3600)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for name in range(5):
                tasks.start_soon(worker, name)

    run(seed, main)
    return steps
