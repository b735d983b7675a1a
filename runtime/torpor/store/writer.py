"""Requests on their way to a commit core, and the driver that needs no thread.

Above: the stores. Below: a ``CommitCore``. ``TaskWriter`` commits on the event loop, from one task: the writer of the
in-memory store, and of SQLite in simulation, where a thread would make runs unrepeatable.
"""

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

import anyio
from anyio.abc import TaskGroup

from torpor.errors import InvariantBroken, StoreUnavailable, TorporError
from torpor.store.contract import Erased, Head, Lease
from torpor.store.requests import Acquire, AskHead, CommitCore, Erase, Outcome, Renew, Request


class PendingTicket:
    """Implements ``store.contract.Ticket``; resolved once, on the event loop that waits for it."""

    __slots__ = ("_event", "_outcome", "is_resolved")

    def __init__(self) -> None:
        self.is_resolved = False
        self._outcome: Outcome = None
        self._event: anyio.Event | None = None

    def resolve(self, outcome: Outcome) -> None:
        self.is_resolved = True
        self._outcome = outcome
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        await self.outcome()

    async def outcome(self) -> Head | Lease | Erased | bool | None:
        """The answer. Raises: whatever the request was refused with."""
        if not self.is_resolved:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
        if isinstance(self._outcome, TorporError):
            raise self._outcome.with_traceback(None)
        return self._outcome


class Writer(Protocol):
    """Hands requests to a commit core in the order of ``submit``."""

    def submit(self, request: Request) -> PendingTicket:
        """Never waits; what became of it is in the ticket, and a waiter that is cancelled withdraws nothing."""
        ...

    @property
    def waiting(self) -> int:
        """Requests that were submitted and that nobody takes care of yet, or that are not answered yet."""
        ...


async def ask_head(writer: Writer, request: AskHead) -> Head:
    """Raises: StoreUnavailable."""
    match await writer.submit(request).outcome():
        case Head() as head:
            return head
        case other:
            raise InvariantBroken(f"a core answered AskHead with {type(other).__name__}")


async def ask_lease(writer: Writer, request: Acquire | Renew) -> Lease:
    """Raises: LeaseHeld, Fenced, StoreUnavailable."""
    match await writer.submit(request).outcome():
        case Lease() as lease:
            return lease
        case other:
            raise InvariantBroken(f"a core answered {type(request).__name__} with {type(other).__name__}")


async def ask_erased(writer: Writer, request: Erase) -> Erased:
    """Raises: Fenced, StoreUnavailable."""
    match await writer.submit(request).outcome():
        case Erased() as erased:
            return erased
        case other:
            raise InvariantBroken(f"a core answered Erase with {type(other).__name__}")


class TaskWriter:
    """Commits in a task of its own: ``async with``.

    What was submitted but not yet committed when the task is cancelled is lost, as in a crash; its tickets, and any
    later one, end as ``StoreUnavailable``. A clean exit commits what is left.

    Args: group_limit: requests per commit.  latency: seconds from taking a group to committing it.
    """

    def __init__(self, core: CommitCore, *, group_limit: int, latency: Callable[[], float] | None = None) -> None:
        self._core = core
        self._group_limit = group_limit
        self._latency = latency
        self._waiting: deque[tuple[Request, PendingTicket]] = deque()
        self._work = anyio.Event()
        self._is_closing = False
        self._is_closed = False
        self._tasks: TaskGroup | None = None

    def submit(self, request: Request) -> PendingTicket:
        ticket = PendingTicket()
        if self._is_closing:
            ticket.resolve(StoreUnavailable("the store is closed"))
        else:
            self._waiting.append((request, ticket))
            self._work.set()
        return ticket

    @property
    def waiting(self) -> int:
        """Requests that are not being committed yet."""
        return len(self._waiting)

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run, name="store:writer")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        self._is_closing = True
        self._work.set()
        if self._tasks is None:
            return None
        return await self._tasks.__aexit__(exc_type, exc, tb)

    async def _run(self) -> None:
        group: list[tuple[Request, PendingTicket]] = []
        try:
            while self._waiting or not self._is_closing:
                if not self._waiting:
                    self._work = anyio.Event()
                    await self._work.wait()
                    continue
                size = min(len(self._waiting), self._group_limit)
                group = [self._waiting.popleft() for _ in range(size)]
                await anyio.sleep(self._latency() if self._latency else 0)
                outcomes = self._core.commit([request for request, _ in group])
                for (_, ticket), outcome in zip(group, outcomes, strict=True):
                    ticket.resolve(outcome)
                group = []
        finally:
            self._is_closing = True
            lost = StoreUnavailable("the store's writer stopped before this was committed")
            for _, ticket in (*group, *self._waiting):
                ticket.resolve(lost)
            self._waiting.clear()

    def __repr__(self) -> str:
        return f"<TaskWriter waiting={len(self._waiting)} closing={self._is_closing}>"
