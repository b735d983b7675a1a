"""The one thread that writes: it takes what has gathered, commits it together, and wakes all who wait at once.

Above: the engine. Below: a ``CommitCore``. What is submitted within one round of the event loop is handed over at its
end, together; and while one group is being flushed the next one gathers. So the busier the store, the fewer flushes an
append costs. A caller that is cancelled has already submitted: its append is committed, in its place, and only nobody
is told.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

import anyio
import structlog
from anyio import from_thread
from anyio.lowlevel import EventLoopToken, current_token

from torpor.errors import StoreUnavailable
from torpor.store.requests import CommitCore, Outcome, Request
from torpor.store.writer import PendingTicket

_log = structlog.get_logger()

_Item = tuple[Request, PendingTicket]
_CLOSE_S: Final = 30.0
"""How long closing waits for the last commits; the disk may be slow, a hang must end."""
_STOPPED: Final = "the store is closed, or its writer has stopped"


class WriterThread:
    """Implements ``store.writer.Writer``; belongs to the event loop that starts it."""

    def __init__(self, core: CommitCore, *, group_limit: int, at_end: Callable[[], None]) -> None:
        """``at_end`` is called in the thread after the last commit."""
        self._core = core
        self._group_limit = group_limit
        self._at_end = at_end
        # Bounded by the number of conversations: each has at most one append in flight.
        self._queue: SimpleQueue[list[_Item] | None] = SimpleQueue()
        self._gathering: list[_Item] = []
        self._waiting = 0
        """Requests without an answer."""
        self._is_closed = False
        self._has_stopped = False
        self._ended = anyio.Event()
        token = current_token()
        self._at_end_of_round = _first_of(token, "call_soon", "run_sync_soon") or _at_once
        # The call of anyio waits for the answer: it holds up the next commit while the loop is busy, and costs 20 us.
        self._soon = _first_of(token, "call_soon_threadsafe", "run_sync_soon") or partial(
            from_thread.run_sync, token=token
        )
        self._thread = threading.Thread(target=self._run, name="torpor-store-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: Request) -> PendingTicket:
        ticket = PendingTicket()
        if self._is_closed or self._has_stopped:
            ticket.resolve(StoreUnavailable(_STOPPED))
            return ticket
        self._waiting += 1
        self._gathering.append((request, ticket))
        if len(self._gathering) == 1:
            self._at_end_of_round(self._hand_over)
        return ticket

    @property
    def waiting(self) -> int:
        """Requests that were submitted and not answered yet; for the event loop's eyes."""
        return self._waiting

    async def close(self) -> None:
        """Commit what was handed over, then end the thread; a cancelled caller waits for that too, within a bound."""
        if not self._is_closed:
            self._is_closed = True
            self._hand_over()
            self._queue.put(None)
        with anyio.move_on_after(_CLOSE_S, shield=True) as scope:
            await self._ended.wait()
        if scope.cancelled_caught:
            _log.error("store.writer_hung", waited_s=_CLOSE_S)

    def _hand_over(self) -> None:
        items, self._gathering = self._gathering, []
        if items:
            self._queue.put(items)
        if self._has_stopped:
            # The thread may have looked at the queue for the last time before.
            self._resolve([ticket for _, ticket in items], [StoreUnavailable(_STOPPED)] * len(items))

    def _run(self) -> None:
        waiting: list[_Item] = []
        try:
            is_open = True
            while is_open or waiting:
                if is_open:
                    is_open = self._gather(waiting)
                group = waiting[: self._group_limit]
                if group:
                    outcomes = self._core.commit([request for request, _ in group])
                    del waiting[: len(group)]
                    self._answer(group, outcomes)
        finally:
            # Reached with work left only by a bug of ours; nobody may wait for ever because of it.
            self._has_stopped = True
            while not self._queue.empty():
                waiting += self._queue.get() or ()
            self._answer(waiting, [StoreUnavailable(_STOPPED)] * len(waiting))
            self._at_end()
            self._call_soon(self._ended.set)

    def _gather(self, waiting: list[_Item]) -> bool:
        """Add what is there, at least one when nothing waits yet; False when there will be no more."""
        while not waiting or not self._queue.empty():
            items = self._queue.get()
            if items is None:
                return False
            waiting += items
        return True

    def _answer(self, group: Sequence[_Item], outcomes: Sequence[Outcome]) -> None:
        self._call_soon(self._resolve, [ticket for _, ticket in group], outcomes)

    def _resolve(self, tickets: Sequence[PendingTicket], outcomes: Sequence[Outcome]) -> None:
        """On the event loop."""
        self._waiting -= len(tickets)
        for ticket, outcome in zip(tickets, outcomes, strict=True):
            ticket.resolve(outcome)

    def _call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._soon(call, *arguments)
        except RuntimeError:
            # The event loop has ended, and with it everyone who could have waited.
            _log.debug("store.loop_ended")

    def __repr__(self) -> str:
        return f"<WriterThread gathering={len(self._gathering)} queued={self._queue.qsize()} closed={self._is_closed}>"


def _first_of(token: EventLoopToken, *names: str) -> Callable[..., object] | None:
    """The first of the event loop's own methods that it has: asyncio's and trio's differ by name."""
    for name in names:
        method: Callable[..., object] | None = getattr(token.native_token, name, None)
        if method is not None:
            return method
    return None


def _at_once(call: Callable[[], None]) -> None:
    call()
