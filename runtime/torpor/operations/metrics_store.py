"""A store that counts: what is committed and flushed, how long it takes, and whether the store can be written at all.

Above: the composition root; readiness. Below: any store, and the commit core of its writer, whose thread counts what
the core does.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

from torpor.clock import Clock
from torpor.errors import StoreFull, StoreGone, StoreUnavailable, TorporError
from torpor.operations import metrics_table as table
from torpor.operations.metrics import Metrics, Spread
from torpor.store.contract import Store, Ticket
from torpor.store.requests import Append, CommitCore, Outcome, Request

COMMITTED: Final = "committed"
FAILED_FOR_S: Final = 10.0
"""For how long a store that could not take a write counts as one that cannot be written, unless it takes another."""
STALLED_AFTER_S: Final = 5.0
"""A group of writes that takes longer counts as a store that cannot be written."""


class CountedCore:
    """Implements ``store.requests.CommitCore``."""

    def __init__(self, core: CommitCore, metrics: Metrics, *, clock: Clock) -> None:
        self._core = core
        self._clock = clock
        self._commits = metrics.tally(table.COMMITS)
        self._records = metrics.tally(table.COMMIT_RECORDS)
        self._seconds = metrics.spread(table.FLUSH_SECONDS)
        self._requests = metrics.spread(table.FLUSH_REQUESTS)
        self._began_s: float | None = None
        self._failed_s: float | None = None

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        began_s = self._began_s = self._clock.monotonic_s()
        try:
            outcomes = self._core.commit(requests)
        finally:
            self._began_s = None
        self._seconds.observe(self._clock.monotonic_s() - began_s)
        self._requests.observe(len(requests))
        for request, outcome in zip(requests, outcomes, strict=True):
            if isinstance(request, Append):
                self._appended(request, outcome)
        self._judge(outcomes)
        return outcomes

    def can_be_written(self) -> bool:
        """As far as the last writes tell. May be asked from another thread.

        A store that failed is believed to work again after a while, since nothing else would try it.
        """
        now_s, began_s, failed_s = self._clock.monotonic_s(), self._began_s, self._failed_s
        if began_s is not None and now_s - began_s > STALLED_AFTER_S:
            return False
        return failed_s is None or now_s - failed_s > FAILED_FOR_S

    def _appended(self, request: Append, outcome: Outcome) -> None:
        if isinstance(outcome, TorporError):
            self._commits.add(outcome.code)
        else:
            self._commits.add(COMMITTED)
            self._records.add(by=len(request.records))

    def _judge(self, outcomes: Sequence[Outcome]) -> None:
        if any(isinstance(outcome, StoreFull | StoreGone | StoreUnavailable) for outcome in outcomes):
            self._failed_s = self._clock.monotonic_s()
        elif outcomes:
            self._failed_s = None


class CountedStore:
    """Takes the time of appends; whatever else a store is asked goes straight to it."""

    def __init__(self, store: Store, seconds: Spread, *, clock: Clock) -> None:
        self._store = store
        self._seconds = seconds
        self._clock = clock

    @staticmethod
    def around(store: Store, seconds: Spread, *, clock: Clock) -> Store:
        """``store`` with the time of its appends taken, from handing over to when the first who waits hears of the
        end."""
        # It answers every call of the contract, most of them by passing on, which types cannot say.
        return cast("Store", CountedStore(store, seconds, clock=clock))

    def append(self, *args: Any, **kwargs: Any) -> Ticket:
        return _TimedTicket(self._store.append(*args, **kwargs), self._seconds, clock=self._clock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def __repr__(self) -> str:
        return f"<CountedStore {self._store!r}>"


class _TimedTicket:
    """Implements ``store.contract.Ticket``."""

    __slots__ = ("_began_s", "_clock", "_seconds", "_ticket")

    def __init__(self, ticket: Ticket, seconds: Spread, *, clock: Clock) -> None:
        self._ticket = ticket
        self._seconds = seconds
        self._clock = clock
        self._began_s: float | None = clock.monotonic_s()

    async def wait(self) -> None:
        try:
            await self._ticket.wait()
        except TorporError:
            self._ended()
            raise
        self._ended()

    def _ended(self) -> None:
        if self._began_s is not None:
            self._seconds.observe(self._clock.monotonic_s() - self._began_s)
            self._began_s = None
