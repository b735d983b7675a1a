"""Why and when a server ends: by a signal, which is heard whatever the event loop does, or by an operator's drain.

The interpreter writes the number of each signal into a pipe as it comes, on whatever thread that is, and a thread reads
it there. So a tool that holds the event loop keeps neither the second signal from ending the process nor the first one
from bounding how long its end may take. Only code that holds the interpreter itself does.
"""

import os
import signal
import socket
import threading
from collections.abc import Collection
from typing import Final

import anyio

from torpor.supervisor.drain import Drain

KILLED: Final = 137
"""The exit code of a process that was killed, which a second signal amounts to."""
_AT_ONCE: Final = 64
"""Signals that are read in one go."""


class Stop:
    """Of one process; made and used in its main thread."""

    def __init__(self, *, bound_s: float) -> None:
        """Args: bound_s: within which the event loop hears of a signal, or the process ends."""
        self._bound_s = bound_s
        self._timer: threading.Timer | None = None
        self._is_ending = False
        self._signal: signal.Signals | None = None
        self._loops, self._threads = socket.socketpair()
        """The thread tells the event loop of the first one."""
        self._reads, self._writes = socket.socketpair()
        self._writes.settimeout(0)  # the interpreter waits for nobody

    def listen(self) -> None:
        """Take SIGINT and SIGTERM from now on, and SIGHUP unless that is ignored, as under ``nohup``."""
        numbers = {signal.SIGINT, signal.SIGTERM}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.add(signal.SIGHUP)
        for number in numbers:
            signal.signal(number, lambda *_: None)  # one that does nothing, else the number is not written
        signal.set_wakeup_fd(self._writes.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._hear, args=(numbers,), name="signals", daemon=True).start()

    def end_within(self, bound_s: float) -> None:
        """A tool that cannot be stopped does not keep a stopping server: what was acknowledged is durable anyway."""
        self._is_ending = True
        self._bound(bound_s)

    async def wait(self, drain: Drain) -> None:
        """Return once it is to end. Whoever sends SIGTERM starts servers as well, so that is told as a drain."""
        async with anyio.create_task_group() as tasks:

            async def drained() -> None:
                await drain.began.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(drained)
            await anyio.wait_readable(self._loops)
            tasks.cancel_scope.cancel()
        if self._signal is signal.SIGTERM:
            drain.begin()

    def _hear(self, numbers: Collection[int]) -> None:
        while True:
            for number in self._reads.recv(_AT_ONCE):
                if number in numbers:
                    self._heard(signal.Signals(number))

    def _heard(self, number: signal.Signals) -> None:
        if self._signal is not None:
            os._exit(KILLED)
        self._signal = number
        if not self._is_ending:
            self._bound(self._bound_s)
        self._threads.send(b".")

    def _bound(self, bound_s: float) -> None:
        before = self._timer
        self._timer = timer = threading.Timer(bound_s, os._exit, [KILLED])
        timer.daemon = True
        timer.start()
        if before is not None:
            before.cancel()
