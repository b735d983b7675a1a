"""The one thread that writes: it takes what has gathered, commits it together, and wakes all who wait at once.

Above: the engine. Below: a ``CommitCore``. While one group is being flushed the next one gathers, so the busier the
store, the fewer flushes an append costs. A caller that is cancelled has already handed over: its append is committed,
in its place, and only nobody is told.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

import anyio
import anyio.from_thread
import structlog
from anyio.lowlevel import EventLoopToken, current_token

from torpor.errors import StoreUnavailable
from torpor.store.requests import CommitCore, Outcome, Request
from torpor.store.writer import PendingTicket

_log = structlog.get_logger()

_Item = tuple[Request, PendingTicket]
_CLOSE_S: Final = 30.0
"""How long closing waits for the last commits; the disk may be slow, a hang must end."""
_STOPPED: Final = "the store's writer has stopped"


class WriterThread:
    """Implements ``store.writer.Writer``; belongs to the event loop that starts it."""

    def __init__(self, core: CommitCore, *, group_limit: int, at_end: Callable[[], None]) -> None:
        """``at_end`` is called in the thread after the last commit."""
        self._core = core
        self._group_limit = group_limit
        self._at_end = at_end
        # Bounded by the number of conversations: each has at most one append in flight.
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._is_closed = False
        self._has_stopped = False
        self._ended = anyio.Event()
        self._soon = _soon(current_token())
        self._thread = threading.Thread(target=self._run, name="torpor-store-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: Request) -> PendingTicket:
        ticket = PendingTicket()
        if self._is_closed:
            ticket.resolve(StoreUnavailable("the store is closed"))
        else:
            self._queue.put((request, ticket))
            if self._has_stopped:
                ticket.resolve(StoreUnavailable(_STOPPED))  # it may have looked at the queue for the last time before
        return ticket

    async def close(self) -> None:
        """Commit what was handed over, then end the thread; a cancelled caller waits for that too, within a bound."""
        if not self._is_closed:
            self._is_closed = True
            self._queue.put(None)
        with anyio.move_on_after(_CLOSE_S, shield=True) as scope:
            await self._ended.wait()
        if scope.cancelled_caught:
            _log.error("store.writer_hung", waited_s=_CLOSE_S)

    def _run(self) -> None:
        group: list[_Item] = []
        try:
            is_last = False
            while not is_last:
                group, is_last = self._gather()
                if group:
                    outcomes = self._core.commit([request for request, _ in group])
                    self._answer(group, outcomes)
                    group = []
        finally:
            # Reached with work left only by a bug of ours; nobody may wait for ever because of it.
            self._has_stopped = True
            while not self._queue.empty():
                if (item := self._queue.get()) is not None:
                    group.append(item)
            self._answer(group, [StoreUnavailable(_STOPPED)] * len(group))
            self._at_end()
            self._call_soon(self._ended.set)

    def _gather(self) -> tuple[list[_Item], bool]:
        """What is there, at least one; and whether to stop after it."""
        group: list[_Item] = []
        item = self._queue.get()
        while item is not None:
            group.append(item)
            if len(group) == self._group_limit or self._queue.empty():
                return group, False
            item = self._queue.get()
        return group, True

    def _answer(self, group: Sequence[_Item], outcomes: Sequence[Outcome]) -> None:
        self._call_soon(_resolve, [ticket for _, ticket in group], outcomes)

    def _call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._soon(call, *arguments)
        except RuntimeError:
            # The event loop has ended, and with it everyone who could have waited.
            _log.debug("store.loop_ended")


def _resolve(tickets: Sequence[PendingTicket], outcomes: Sequence[Outcome]) -> None:
    for ticket, outcome in zip(tickets, outcomes, strict=True):
        ticket.resolve(outcome)


def _soon(token: EventLoopToken) -> Callable[..., object]:
    """How this thread reaches the event loop without waiting for it.

    Both loops have such a call and anyio has none: its own waits for the answer, which holds up the next commit while
    the loop is busy, and costs 20 us more.
    """
    for name in ("call_soon_threadsafe", "run_sync_soon"):
        native: Callable[..., object] | None = getattr(token.native_token, name, None)
        if native is not None:
            return native
    return partial(anyio.from_thread.run_sync, token=token)
