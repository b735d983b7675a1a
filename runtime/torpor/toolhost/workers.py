"""Places for synchronous tools in a few threads.

A thread cannot be stopped: a caller that leaves gives up the answer, not the work. Its place stays taken until the work
ends, so a tool that hangs costs one place and never an unbounded number of threads. One tool has a share of the places
and no more, so that one whose calls all hang leaves some for the others.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import msgspec

from torpor.threads import Threads

T = TypeVar("T")


class WorkersStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """How the threads for tools stand."""

    limit: int
    busy: int
    """Those whose call was given up and has not ended included."""
    given_up: int
    waiting: int
    """Calls for which no thread was free."""


class _Job:
    """One function on its way through a thread and back."""

    __slots__ = ("_error", "_value", "ended", "function", "is_given_up")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.ended = anyio.Event()
        self.is_given_up = False
        self._value: Any = None
        self._error: Exception | None = None

    def perform(self) -> None:
        try:
            self._value = self.function()
        except Exception as exc:  # noqa: BLE001  # handed to the task that waits
            self._error = exc
        except BaseException as exc:  # noqa: BLE001  # an exit or an interrupt ends the work, never the loop
            self._error = RuntimeError(f"ended by {type(exc).__name__}: {exc}")

    def answer(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class Workers:
    """At most ``count`` threads, of which one tool has ``per_tool``; for one event loop."""

    def __init__(self, count: int, *, per_tool: int) -> None:
        self._free = anyio.CapacityLimiter(count)
        self._per_tool = min(count, per_tool)
        self._shares: dict[str, anyio.CapacityLimiter] = {}
        self._threads = Threads(count, name="tool worker")
        self._busy: Counter[str] = Counter()
        self._given_up = 0

    async def run(self, function: Callable[[], T], *, tool: str, begun: Callable[[], None]) -> T:
        """Call ``function`` in a thread and return or raise what it does.

        ``begun`` is told, on the loop, once a thread was free for it; what it raises ends the call, which has done
        nothing. Those that wait come in the order of their calls.
        Cancellation: before that, nothing was done; after it, ``function`` goes on to its end, unheard.
        """
        job = _Job(function)
        await self._admitted(job, tool)
        try:
            begun()
        except BaseException:
            self._leave(job, tool)
            raise
        self._busy[tool] += 1
        self._threads.submit(job.perform, ended=lambda _: self._ended(job, tool))
        try:
            await job.ended.wait()
        except BaseException:
            if not job.ended.is_set():
                job.is_given_up = True
                self._given_up += 1
            raise
        answer: T = job.answer()
        return answer

    def has_room(self, tool: str) -> bool:
        """Whether a call of ``tool`` would find a thread at once."""
        share = self._shares.get(tool)
        return self._free.available_tokens > 0 and (share is None or share.available_tokens > 0)

    async def _admitted(self, job: _Job, tool: str) -> None:
        share = self._shares.get(tool)
        if share is None:
            share = self._shares[tool] = anyio.CapacityLimiter(self._per_tool)
        await share.acquire_on_behalf_of(job)
        try:
            await self._free.acquire_on_behalf_of(job)
        except BaseException:
            share.release_on_behalf_of(job)
            raise

    def close(self) -> None:
        """Let the threads end after what they are doing."""
        self._threads.close()

    def taken(self) -> dict[str, int]:
        """How many threads each tool has, the most first."""
        return dict(self._busy.most_common())

    def statistics(self) -> WorkersStatistics:
        return WorkersStatistics(
            limit=int(self._free.total_tokens),
            busy=self._busy.total(),
            given_up=self._given_up,
            waiting=sum(share.statistics().tasks_waiting for share in (self._free, *self._shares.values())),
        )

    def _ended(self, job: _Job, tool: str) -> None:
        self._busy[tool] -= 1
        if not self._busy[tool]:
            del self._busy[tool]
        self._given_up -= job.is_given_up
        self._leave(job, tool)
        job.ended.set()

    def _leave(self, job: _Job, tool: str) -> None:
        self._free.release_on_behalf_of(job)
        self._shares[tool].release_on_behalf_of(job)

    def __repr__(self) -> str:
        return f"<Workers limit={int(self._free.total_tokens)} busy={self._busy.total()}>"
