"""What a tool in a worker process reports while it runs: a few words a second, the latest ones, and none after its end.

Above: ``process_worker``. A tool may report from any of its threads, also when its call is over.
"""

import threading
from collections.abc import Callable
from typing import Final

PAUSE_S: Final = 0.25
"""Between two that are sent."""


class Progress:
    """Of one call.

    Args: send: hands words on; called by one thread at a time, and never again once ``end`` has returned.
    """

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._latest: str | None = None
        self._pause: threading.Timer | None = None
        self._is_over = False

    def report(self, text: str) -> None:
        with self._lock:
            if self._is_over:
                return
            if self._pause is None:
                self._send(text)
                self._rest()
            else:
                self._latest = text

    def end(self) -> None:
        """Hand on what is left; nothing is taken any more."""
        with self._lock:
            self._is_over = True
            if self._pause is not None:
                self._pause.cancel()
            self._send_latest()

    def _rest(self) -> None:
        self._pause = threading.Timer(PAUSE_S, self._rested)
        self._pause.daemon = True
        self._pause.start()

    def _rested(self) -> None:
        with self._lock:
            if self._is_over:
                return
            self._pause = None
            if self._send_latest():
                self._rest()

    def _send_latest(self) -> bool:
        latest, self._latest = self._latest, None
        if latest is not None:
            self._send(latest)
        return latest is not None
