"""Which tools run in this process now, or did a moment ago: for whoever asks what held up the event loop.

Above: the watchdog, through its contract ``Suspects``, from a thread of its own. Each entry is made and ended by the
thread that runs the tool.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Final

from torpor.watchdog.contract import Suspect

_ENDED_MAX: Final = 256
"""Calls that have ended are kept for the look at a gap that their end has ended; there are few such at once."""


class Calls:
    """Implements ``watchdog.contract.Suspects``."""

    def __init__(self, now_s: Callable[[], float], *, thread_cpu_s: Callable[[], float]) -> None:
        """Args: now_s: monotonic.  thread_cpu_s: what the calling thread has used of the processor."""
        self._now_s = now_s
        self._thread_cpu_s = thread_cpu_s
        self._running: dict[int, Suspect] = {}
        self._ended: deque[Suspect] = deque(maxlen=_ENDED_MAX)

    @contextmanager
    def noted(self, name: str, code: CodeType | None, *, is_on_loop: bool) -> Iterator[None]:
        """While the block runs, ``name`` does."""
        call = Suspect(
            name=name,
            code=code,
            thread_id=0 if is_on_loop else threading.get_ident(),
            native_id=threading.get_native_id(),
            began_s=self._now_s(),
            cpu_began_s=self._thread_cpu_s(),
        )
        self._running[id(call)] = call
        try:
            yield
        finally:
            call.cpu_used_s = self._thread_cpu_s() - call.cpu_began_s
            call.ended_s = self._now_s()
            self._ended.append(call)
            del self._running[id(call)]

    def between(self, began_s: float, ended_s: float) -> Sequence[Suspect]:
        known = (*self._running.copy().values(), *self._ended.copy())
        seen = {id(call): call for call in known if call.began_s < ended_s}
        return tuple(call for call in seen.values() if call.ended_s is None or call.ended_s > began_s)
