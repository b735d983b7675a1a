"""A store that counts, and whether it can be written."""

import contextlib
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tests.support.doubles import ManualClock
from tests.support.scrape import Numbers
from torpor.errors import Fenced, StoreFull, StoreUnavailable, TorporError
from torpor.operations.metrics import Metrics
from torpor.operations.metrics_store import FAILED_FOR_S, STALLED_AFTER_S, CountedCore, CountedStore
from torpor.operations.metrics_table import COMMIT_SECONDS
from torpor.records.ids import ConversationKey
from torpor.store.codec import BatchNumbers
from torpor.store.contract import Store, Ticket
from torpor.store.requests import Append, AskHead, Outcome, Request

KEY = ConversationKey("acme", "ann", "c_1")
ASK = AskHead(key=KEY)
APPEND = Append(
    key=KEY,
    fence=1,
    numbers=cast("BatchNumbers", None),
    batch_id="b",
    records=cast("Any", ("one", "two")),
    dedupe={},
    due_us=None,
    jobs=(),
    timers=(),
)


class Core:
    """Implements ``CommitCore``: answers what it is told to."""

    def __init__(self, clock: ManualClock) -> None:
        self.outcomes: list[Outcome] = [None]
        self.takes_s = 0.0
        self.during: Any = lambda: None
        self._clock = clock

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        self._clock.advance(self.takes_s)
        self.during()
        return self.outcomes


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.inner = Core(self.clock)
        self.core = CountedCore(self.inner, self.metrics, clock=self.clock)

    def commit(self, *requests: Request, ends: Sequence[Outcome] = (None,), takes_s: float = 0.0) -> None:
        self.inner.outcomes, self.inner.takes_s = list(ends), takes_s
        self.core.commit(requests)

    async def numbers(self) -> Numbers:
        return Numbers((await self.metrics.page()).body.decode())


async def test_appends_are_counted_by_how_they_ended_and_groups_by_their_size() -> None:
    bench = Bench()
    bench.commit(APPEND, APPEND, ASK, ends=(None, Fenced(KEY.path, fence=1, newer=2), None), takes_s=0.02)
    bench.commit(APPEND, takes_s=0.001)
    told = await bench.numbers()

    assert told.by("torpor_commits_total", "outcome") == {("committed",): 2, (Fenced.code,): 1}
    assert told.value("torpor_commit_records_total") == 4
    assert told.value("torpor_store_flush_requests_sum") == 4
    assert told.value("torpor_store_flush_seconds_count") == 2
    assert told.value("torpor_store_flush_seconds_sum") == pytest.approx(0.021)


@pytest.mark.parametrize("error", [StoreFull("the disk is full"), StoreUnavailable("the disk is gone")])
def test_store_that_failed_cannot_be_written_until_it_takes_a_write_or_a_while_has_passed(error: TorporError) -> None:
    bench = Bench()
    assert bench.core.can_be_written()
    bench.commit(APPEND, ends=(error,))
    assert not bench.core.can_be_written()
    bench.commit(APPEND)
    assert bench.core.can_be_written()
    bench.commit(APPEND, ends=(error,))
    bench.clock.advance(FAILED_FOR_S + 0.1)
    assert bench.core.can_be_written()


def test_fence_says_nothing_against_the_store() -> None:
    bench = Bench()
    bench.commit(APPEND, ends=(Fenced(KEY.path, fence=1, newer=2),))

    assert bench.core.can_be_written()


def test_store_that_stalls_cannot_be_written_as_long_as_it_does() -> None:
    bench, seen = Bench(), list[bool]()
    bench.inner.during = lambda: seen.append(bench.core.can_be_written())
    bench.commit(APPEND, takes_s=STALLED_AFTER_S + 0.1)

    assert seen == [False]
    assert bench.core.can_be_written()


class Slow:
    """Implements ``Ticket``."""

    def __init__(self, clock: ManualClock, error: TorporError | None) -> None:
        self._clock = clock
        self._error = error

    async def wait(self) -> None:
        self._clock.advance(0.25)
        if self._error is not None:
            raise self._error


class Shelf:
    """Of a store, what the test asks."""

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket

    def append(self, key: ConversationKey, **_: Any) -> Ticket:
        return self.ticket

    def shape(self) -> str:
        return "oblong"


@pytest.mark.parametrize("error", [None, StoreUnavailable("the disk is gone")])
async def test_time_of_an_append_is_taken_once_however_it_ends_and_many_wait_for_it(error: TorporError | None) -> None:
    clock, metrics = ManualClock(), Metrics()
    shelf = cast("Store", Shelf(Slow(clock, error)))
    store = CountedStore.around(shelf, metrics.spread(COMMIT_SECONDS), clock=clock)
    ticket = store.append(KEY, fence=1, expected_seq=0, batch_id="b", records=(), dedupe={}, due_us=None)
    for _ in range(2):
        with contextlib.nullcontext() if error is None else pytest.raises(StoreUnavailable):
            await ticket.wait()
    told = Numbers((await metrics.page()).body.decode())

    assert told.value("torpor_commit_seconds_count") == 1
    assert told.value("torpor_commit_seconds_sum") == pytest.approx(0.25)


def test_whatever_else_a_store_is_asked_it_answers_itself() -> None:
    clock = ManualClock()
    store: Any = CountedStore.around(
        cast("Store", Shelf(Slow(clock, None))), Metrics().spread(COMMIT_SECONDS), clock=clock
    )

    assert store.shape() == "oblong"
