"""A few daemon threads for calls that may hang; their results come back to the event loop, wanted or not.

A thread cannot be stopped. A call that hangs costs one thread and keeps neither the loop nor the end of the process
waiting: the threads are daemons, unlike anyio's own. The calls see neither the caller's context variables nor an event
loop.
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
    """At most ``count``, started when first needed; for one event loop."""

    def __init__(self, count: int, *, name: str) -> None:
        self._count = count
        self._name = name
        self._token: anyio.lowlevel.EventLoopToken | None = None
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = 0
        self._unended = 0

    def submit(self, function: Callable[[], T], *, ended: Callable[[T], None]) -> None:
        """Call ``function`` in a thread, and then ``ended`` with its result on the loop.

        Called on the loop, and never waits: beyond ``count`` the calls wait for each other. ``function`` ought to raise
        nothing; what it or ``ended`` raises is logged, and the thread goes on.
        """
        self._token = anyio.lowlevel.current_token()

        def call() -> None:
            try:
                result = function()
            except BaseException:
                self.hand_over(self._one_ended)
                raise
            self.hand_over(lambda: came(result))

        def came(result: T) -> None:
            self._one_ended()
            ended(result)

        self._unended += 1
        if self._threads < min(self._unended, self._count):
            self._threads += 1
            Thread(target=self._work, name=f"{self._name} {self._threads}", daemon=True).start()
        self._calls.put(call)

    def hand_over(self, function: Callable[[], None]) -> None:
        """In another thread: call ``function`` on the loop and wait for it; nothing happens when the loop is gone."""
        with suppress(RuntimeError):
            anyio.from_thread.run_sync(function, token=self._token)

    def close(self) -> None:
        """Let the threads end after what they are doing."""
        for _ in range(self._threads):
            self._calls.put(None)
        self._threads = 0

    def _one_ended(self) -> None:
        self._unended -= 1

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException:  # noqa: BLE001  # a background edge: no call may cost the others their thread
                _log.error("thread.failed", thread=self._name, exc_info=True)
            del call  # keeps nothing alive while waiting for the next

    def __repr__(self) -> str:
        return f"<Threads {self._name} started={self._threads} unended={self._unended}>"
