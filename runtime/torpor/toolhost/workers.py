"""A few threads for synchronous tools.

A thread cannot be stopped: a caller that leaves gives up the answer, not the work. Its place stays taken until the work
ends, so a tool that hangs costs one place and never an unbounded number of threads. The threads are daemons, unlike
anyio's own, so what hangs does not keep the process from leaving either.

The work sees neither the caller's context variables nor an event loop.
"""

from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel

T = TypeVar("T")


class _Job:
    """One function on its way through a thread and back."""

    __slots__ = ("_error", "_value", "ended", "function", "token")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.token = anyio.lowlevel.current_token()
        self.ended = anyio.Event()
        self._value: Any = None
        self._error: Exception | None = None

    def perform(self) -> None:
        try:
            self._value = self.function()
        except Exception as exc:  # noqa: BLE001  # handed to the task that waits
            self._error = exc
        except BaseException as exc:  # noqa: BLE001  # an exit or an interrupt ends the work, never the loop
            self._error = RuntimeError(f"ended by {type(exc).__name__}: {exc}")

    def answer(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class Workers:
    """At most ``count`` threads, started when first needed, for one event loop."""

    def __init__(self, count: int) -> None:
        self._free = anyio.CapacityLimiter(count)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = 0
        self._busy = 0

    async def run(self, function: Callable[[], T], *, begun: Callable[[], None]) -> T:
        """Call ``function`` in a thread and return or raise what it does.

        ``begun`` is told, on the loop, once a thread was free for it.
        Cancellation: before that, nothing was done; after it, ``function`` goes on to its end, unheard.
        """
        job = _Job(function)
        await self._free.acquire_on_behalf_of(job)
        begun()
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            Thread(target=self._work, name=f"tool worker {self._threads}", daemon=True).start()
        self._jobs.put(job)
        await job.ended.wait()
        answer: T = job.answer()
        return answer

    def close(self) -> None:
        """Let the threads end after what they are doing."""
        for _ in range(self._threads):
            self._jobs.put(None)
        self._threads = 0

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.perform()
            with suppress(RuntimeError):  # the loop is gone, and nobody waits any more
                anyio.from_thread.run_sync(self._ended, job, token=job.token)
            del job  # keeps no result alive while waiting for the next

    def _ended(self, job: _Job) -> None:
        self._busy -= 1
        self._free.release_on_behalf_of(job)
        job.ended.set()

    def __repr__(self) -> str:
        return f"<Workers threads={self._threads} busy={self._busy}>"
