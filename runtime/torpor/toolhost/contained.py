"""Tasks that a tool begins and leaves behind cannot end the server.

Above: ``own_tasks``. asyncio ends its loop when a task raises ``SystemExit`` or ``KeyboardInterrupt``, whosever task it
is. Within ``contained``, tasks that were begun in a tool's context fail with a ``RuntimeError`` instead, and the log
names the tool. An adapter: it knows asyncio; trio begins no task without somebody who waits for it.
"""

import asyncio
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import structlog
from anyio.lowlevel import current_token

from torpor.toolhost.failures import place_of

in_tool: Final = ContextVar("in_tool", default="")
"""The tool in whose context code runs on the loop; empty for the engine's own."""
_log = structlog.get_logger()


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine that raises no exit."""

    def __init__(self, inner: Coroutine[Any, Any, Any], tool: str) -> None:
        self._inner = inner
        self._tool = tool

    def send(self, value: Any, /) -> Any:
        try:
            return self._inner.send(value)
        except (SystemExit, KeyboardInterrupt) as exc:
            raise self._failure(exc) from exc

    def throw(self, *raised: Any) -> Any:
        try:
            return self._inner.throw(*raised)
        except (SystemExit, KeyboardInterrupt) as exc:
            raise self._failure(exc) from exc

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def __getattr__(self, name: str) -> Any:
        """Frame, code and state, for stacks and the like."""
        return getattr(self._inner, name)

    def _failure(self, exc: BaseException) -> RuntimeError:
        _log.error("tool.exit_contained", tool=self._tool, error=type(exc).__name__, where=place_of(exc))
        return RuntimeError(f"ended by {type(exc).__name__}: {exc}")


@contextmanager
def contained() -> Iterator[None]:
    """See the module docstring; for the loop that runs."""
    loop = current_token().native_token
    if not isinstance(loop, asyncio.AbstractEventLoop):
        yield
        return
    before = loop.get_task_factory()

    def begin(loop: asyncio.AbstractEventLoop, coro: Any, **given: Any) -> Any:
        if tool := in_tool.get():
            coro = _Contained(coro, tool)
        return before(loop, coro, **given) if before is not None else asyncio.Task(coro, loop=loop, **given)

    loop.set_task_factory(begin)
    try:
        yield
    finally:
        loop.set_task_factory(before)
