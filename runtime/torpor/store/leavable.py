"""Calls that block, made in a few daemon threads: whoever leaves gives up the answer, not the call.

Above: blobs whose library blocks. A call that hangs holds its place until it ends, so there are never more of them than
places, and neither a cancel nor the end of the process waits for it.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio

from torpor.threads import Threads

T = TypeVar("T")
_GRACE_S: Final = 1.0
"""A call that writes has as long to end when its caller is cancelled, so that it is seldom left half done."""


class NoPlace(Exception):
    """Calls before this one hold all places, and none of them ended in time."""


class _Call:
    """One on its way through a thread and back."""

    __slots__ = ("_error", "_value", "ended", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.ended = anyio.Event()
        self._value: Any = None
        self._error: Exception | None = None

    def perform(self) -> None:
        try:
            self._value = self.work()
        except Exception as exc:  # noqa: BLE001  # handed to the task that waits
            self._error = exc
        except BaseException as exc:  # noqa: BLE001  # an end of the interpreter, or a fault of the library's own kind
            self._error = RuntimeError(f"ended by {type(exc).__name__}: {exc}")

    def answer(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class LeavableCalls:
    """At most ``count`` at once; for one event loop at a time."""

    def __init__(self, count: int, *, name: str, wait_s: float) -> None:
        """Args: wait_s: for a place."""
        self._free = anyio.CapacityLimiter(count)
        self._threads = Threads(count, name=name)
        self._wait_s = wait_s

    async def run(self, work: Callable[[], T], *, writes: bool = False) -> T:
        """Call ``work`` in a thread and return or raise what it does.

        Cancellation: before there is a place nothing was done; after it ``work`` goes on to its end, unheard. With
        ``writes`` it is waited for a moment longer.
        Raises: NoPlace: nothing was done.
        """
        call = _Call(work)
        try:
            with anyio.fail_after(self._wait_s):
                await self._free.acquire_on_behalf_of(call)
        except TimeoutError:
            raise NoPlace from None
        self._threads.submit(call.perform, ended=lambda _: self._ended(call))
        try:
            await call.ended.wait()
        except BaseException:
            if writes:
                with anyio.move_on_after(_GRACE_S, shield=True):
                    await call.ended.wait()
            raise
        answer: T = call.answer()
        return answer

    def _ended(self, call: _Call) -> None:
        self._free.release_on_behalf_of(call)
        call.ended.set()

    def __repr__(self) -> str:
        return f"<LeavableCalls {self._threads!r}>"
