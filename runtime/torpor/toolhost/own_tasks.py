"""Tools of a home that run on the event loop, each in a task of its own, which its caller can leave.

Above: ``places``. A task cannot be stopped, only asked to end. One that does not heed that is left behind: its call is
over for the conversation, which goes on, and it holds nothing but itself. What such a tool begins ends with nobody but
itself either; see ``contained``.
"""

import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import anyio
import anyio.abc
import structlog

from torpor.toolhost.contained import contained, in_tool

T = TypeVar("T")

_LETS_GO_S: Final = 5.0
"""How long a tool may take to end once it is cancelled."""
_log = structlog.get_logger()


class _Deed:
    """One run of a function in its task."""

    __slots__ = ("_cut", "_error", "_function", "_reach", "_value", "ended", "was_cut")

    def __init__(self, function: Callable[[], Awaitable[Any]]) -> None:
        self._function = function
        self._cut = anyio.CancelScope()
        self._reach = anyio.CancelScope()
        """Within the other; closed to it by a shield."""
        self.ended = anyio.Event()
        self.was_cut = False
        """Whether it ended because it was cancelled."""
        self._value: Any = None
        self._error: BaseException | None = None

    async def perform(self, tool: str) -> None:
        in_tool.set(tool)
        try:
            with self._cut, self._reach:
                self._value = await self._function()
            self.was_cut = self._cut.cancelled_caught
        except BaseException as exc:
            if anyio.current_effective_deadline() == -math.inf:
                raise  # everything ends
            self._error = exc
        finally:
            self.ended.set()

    def cut(self) -> None:
        """Ask it to end, again and again."""
        self._cut.cancel()

    def leave(self) -> None:
        """Ask no more: what does not heed that would do nothing else than being asked."""
        self._reach.shield = True

    def answer(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class OwnTasks:
    """For one event loop; ``async with own_tasks.running()``."""

    def __init__(self) -> None:
        self._tasks: anyio.abc.TaskGroup | None = None
        self._strays: Counter[str] = Counter()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """In the end what was left behind is waited for, by name."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                with contained():
                    yield
            finally:
                self._tasks = None
                if self._strays:
                    _log.warning("tool.keeps_server", tools=sorted(self._strays))
                tasks.cancel_scope.cancel()

    async def run(self, function: Callable[[], Awaitable[T]], *, tool: str) -> T:
        """Await ``function`` and return or raise what it does; in the caller's own task where this is not running.

        Cancellation: ``function`` is cancelled, and has a few seconds to end; then it is left behind.
        """
        if self._tasks is None:
            return await function()
        deed = _Deed(function)
        self._tasks.start_soon(deed.perform, tool, name=f"tool:{tool}")
        try:
            await deed.ended.wait()
        except anyio.get_cancelled_exc_class():
            deed.cut()
            with anyio.move_on_after(_LETS_GO_S, shield=True):
                await deed.ended.wait()
            if not deed.ended.is_set():
                self._leave(deed, tool)
                raise
            if deed.was_cut:
                raise
        answer: T = deed.answer()
        return answer

    def _leave(self, deed: _Deed, tool: str) -> None:
        deed.leave()
        _log.error("tool.left_behind", tool=tool, after_s=_LETS_GO_S)
        if self._tasks is None:
            return
        self._strays[tool] += 1
        self._tasks.start_soon(self._see_off, deed, tool, name=f"tool:{tool}:stray")

    async def _see_off(self, deed: _Deed, tool: str) -> None:
        await deed.ended.wait()
        self._strays[tool] -= 1
        self._strays += Counter()  # drops those of which none is left
        _log.info("tool.ended_late", tool=tool)

    def __repr__(self) -> str:
        return f"<OwnTasks strays={self._strays.total()}>"
