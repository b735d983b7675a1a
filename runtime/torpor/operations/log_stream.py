"""The stream of a server's log, which whoever reads it may leave full: a thread waits for it, and nobody else does.

Above: the logs. A pipe whose reader has stalled, or a terminal that was stopped, takes nothing more, for as long as it
likes. What is logged meanwhile waits here; beyond a bound it is lost, and how much that was is told once the stream
takes something again.
"""

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TextIO

WAITING_MAX: Final = 1_000
"""Lines that wait."""
_LAST_LINES_S: Final = 2.0
"""At the end, for what is not written yet."""


class Lines(Protocol):
    """Takes whole lines."""

    def write(self, text: str) -> object: ...

    def flush(self) -> object: ...


class PatientLines:
    """Implements ``Lines`` over a descriptor."""

    def __init__(self, descriptor: int, *, on_lost: Callable[[int], None]) -> None:
        """Args: on_lost: told in the thread how many lines were lost, when others are written again."""
        self._descriptor = descriptor
        self._on_lost = on_lost
        self._lines = queue.SimpleQueue[str | None]()
        self._counting = threading.Lock()
        self._lost = 0
        # A daemon, since a write that never ends must not keep the process.
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        """Take one or more whole lines; waits for nothing."""
        if self._lines.qsize() >= WAITING_MAX:
            with self._counting:
                self._lost += 1
        else:
            self._lines.put(text)

    def flush(self) -> None:
        """Nothing: they are under way."""

    def close(self, deadline_s: float) -> None:
        """Give what waits that long to be written; what comes later is not."""
        self._lines.put(None)
        self._thread.join(deadline_s)

    def _write_all(self) -> None:
        is_last = False
        while not is_last:
            # All at once: while the event loop is busy, each call of the system costs a wait for the interpreter.
            texts = [self._lines.get(), *(self._lines.get() for _ in range(self._lines.qsize()))]
            is_last = None in texts
            self._write("".join(text for text in texts if text is not None).encode(errors="backslashreplace"))
            with self._counting:
                lost, self._lost = self._lost, 0
            if lost:
                self._on_lost(lost)

    def _write(self, data: bytes) -> None:
        # Not by a buffered file, whose lock a write that never ends would hold while the process wants to exit.
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]


@contextmanager
def patient(stream: TextIO, *, on_lost: Callable[[int], None]) -> Iterator[Lines | None]:
    """What writes to the stream in the block, without a wait for it; None where it has no descriptor."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # of a test or of a notebook
        yield None
        return
    lines = PatientLines(descriptor, on_lost=on_lost)
    try:
        yield lines
    finally:
        lines.close(_LAST_LINES_S)
