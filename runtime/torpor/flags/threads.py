"""A few daemon threads for calls that may hang; their results come back to the event loop, wanted or not.

A thread cannot be stopped. A call that hangs costs one thread and keeps neither the loop nor the end of the process
waiting.
"""

from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

import anyio.from_thread
import anyio.lowlevel
import structlog

T = TypeVar("T")

_log = structlog.get_logger()


class Threads:
    """At most ``count``, started when first needed; made on the event loop that hears of the results."""

    def __init__(self, count: int, *, name: str) -> None:
        self._count = count
        self._name = name
        self._token = anyio.lowlevel.current_token()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = 0

    def submit(self, function: Callable[[], T], *, ended: Callable[[T], None]) -> None:
        """Call ``function`` in a thread, and then ``ended`` with its result on the loop.

        Called on the loop, and never waits. ``function`` ought to raise nothing; what it or ``ended`` raises is logged,
        and the thread goes on.
        """

        def call() -> None:
            result = function()
            self.hand_over(lambda: ended(result))

        self._calls.put(call)
        if self._threads < self._count:
            self._threads += 1
            Thread(target=self._work, name=f"{self._name} {self._threads}", daemon=True).start()

    def hand_over(self, function: Callable[[], None]) -> None:
        """In another thread: call ``function`` on the loop and wait for it; nothing happens when the loop is gone."""
        with suppress(RuntimeError):
            anyio.from_thread.run_sync(function, token=self._token)

    def close(self) -> None:
        """Let the threads end after what they are doing."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException:  # noqa: BLE001  # a background edge: no call may cost the others their thread
                _log.error("flags.thread_failed", thread=self._name, exc_info=True)
            del call  # keeps nothing alive while waiting for the next
