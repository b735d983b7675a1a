"""Log events as they come, from whichever thread: to be waited for."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio.to_thread
import structlog


class LogLines:
    """What was logged so far."""

    def __init__(self) -> None:
        self._came = threading.Condition()
        self.lines: list[dict[str, Any]] = []

    def take(self, _: object, __: str, line: Any) -> Any:
        """As a processor of structlog's, the last one."""
        with self._came:
            self.lines.append(dict(line))
            self._came.notify_all()
        raise structlog.DropEvent

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    async def first(self, event: str, *, where: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """The first such line, once it is there. Raises: TimeoutError: it does not come."""
        return await anyio.to_thread.run_sync(self._first, event, where)

    def _first(self, event: str, where: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            return next((line for line in self.of(event) if where(line)), None)

        with self._came:
            line = self._came.wait_for(found, timeout=30)
        if line is None:
            raise TimeoutError(f"no {event} in the log, which has {self.lines}")
        return line


@contextmanager
def log_lines() -> Iterator[LogLines]:
    """What is logged while the block runs."""
    lines, before = LogLines(), structlog.get_config()
    structlog.configure(processors=[lines.take])
    try:
        yield lines
    finally:
        structlog.configure(**before)
