"""What whoever finds no room is told, and when memory is short."""

import pytest
from structlog.testing import capture_logs

from tests.support.doubles import ManualClock
from torpor.supervisor.memory import bound_bytes
from torpor.supervisor.options import SupervisorOptions
from torpor.supervisor.room import Room
from torpor.supervisor.statistics import Refusal

OPTIONS = SupervisorOptions(
    live_max=4, thaws_max=10, busy_retry_after_s=1.0, busy_retry_after_max_s=8.0, memory_max_bytes=1_000
)


class Gauge:
    """A memory that a test sets."""

    def __init__(self, *, used_bytes: int = 0, limit_bytes: int = 0) -> None:
        self.used = used_bytes
        self.limit = limit_bytes
        self.looks = 0
        self.trims = 0

    def used_bytes(self) -> int:
        self.looks += 1
        return self.used

    def limit_bytes(self) -> int:
        return self.limit

    def trim(self) -> None:
        self.trims += 1


def room(gauge: Gauge, clock: ManualClock, *, chance: float = 0.999, options: SupervisorOptions = OPTIONS) -> Room:
    return Room(options, memory=gauge, chance=lambda: chance, monotonic_s=clock.monotonic_s)


def wait_s(full: Room, *, waiting: int = 0) -> float:
    busy = full.turned_away(Refusal.LIVE, live=4, waiting=waiting)
    assert busy.retry_after_s is not None
    return busy.retry_after_s


def test_the_time_to_wait_grows_with_those_turned_away_up_to_its_bound() -> None:
    full = room(Gauge(), ManualClock())
    waits = [wait_s(full) for _ in range(200)]
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(1.0, abs=0.01)
    assert waits[10] == pytest.approx(2.0, abs=0.01)
    assert waits[-1] == pytest.approx(8.0, abs=0.01)


def test_it_grows_with_those_that_wait_to_be_loaded() -> None:
    assert wait_s(room(Gauge(), ManualClock()), waiting=20) == pytest.approx(3.0, abs=0.01)


def test_it_shrinks_again_when_nobody_was_turned_away_for_a_while() -> None:
    clock = ManualClock()
    full = room(Gauge(), clock)
    for _ in range(50):
        wait_s(full)
    clock.advance(8.1)
    assert wait_s(full) == pytest.approx(1.0, abs=0.01)


def test_those_turned_away_together_are_told_times_from_half_of_it_to_all_of_it() -> None:
    assert wait_s(room(Gauge(), ManualClock(), chance=0.0), waiting=1_000) == 4.0
    assert wait_s(room(Gauge(), ManualClock(), chance=0.999), waiting=1_000) <= 8.0


def test_the_refusal_is_busy_and_says_what_is_full() -> None:
    full = room(Gauge(), ManualClock())
    live, memory = (full.turned_away(why, live=4, waiting=0) for why in Refusal)
    assert (live.code, live.what, live.waiting) == ("busy", "server", 0)
    assert (memory.code, memory.what, memory.waiting) == ("busy", "memory of the server", 1)
    assert "server is full (4 awake, 1 waiting), retry in" in str(memory)


def test_memory_is_short_above_its_bound_which_the_log_tells_once_each_way() -> None:
    clock, gauge = ManualClock(), Gauge(used_bytes=1_000)
    full = room(gauge, clock)
    told = []
    with capture_logs() as logs:
        for used_bytes in (1_000, 1_001, 1_500, 900):
            gauge.used = used_bytes
            told.append(full.is_short_of_memory())
            clock.advance(1.0)
    assert told == [False, True, True, False]
    assert [line["event"] for line in logs] == ["memory.short", "memory.sufficient"]
    assert full.memory_bytes() == 900


def test_memory_is_not_measured_for_each_question_and_again_once_some_was_given_back() -> None:
    gauge = Gauge(used_bytes=2_000)
    full = room(gauge, ManualClock())
    assert [full.is_short_of_memory() for _ in range(100)] == [True] * 100
    assert gauge.looks == 1
    gauge.used = 0
    full.trim()
    assert not full.is_short_of_memory()
    assert (gauge.looks, gauge.trims) == (2, 1)


def test_without_a_bound_memory_is_never_measured() -> None:
    gauge = Gauge(used_bytes=2**50)
    assert not room(gauge, ManualClock(), options=SupervisorOptions()).is_short_of_memory()
    assert gauge.looks == 0


@pytest.mark.parametrize(
    ("max_bytes", "share", "limit_bytes", "bound"),
    [(0, 0.8, 0, 0), (0, 0.8, 1_000, 800), (500, 0.8, 1_000, 500), (900, 0.8, 1_000, 800), (900, 0.0, 1_000, 900)],
)
def test_the_tighter_of_both_bounds_counts(max_bytes: int, share: float, limit_bytes: int, bound: int) -> None:
    options = SupervisorOptions(memory_max_bytes=max_bytes, memory_share=share)
    assert bound_bytes(options, Gauge(limit_bytes=limit_bytes)) == bound


@pytest.mark.parametrize(("live", "leave"), [(0, 0), (1, 1), (7, 1), (80, 10)])
def test_a_part_of_those_that_live_leaves_at_each_look_while_memory_is_short(live: int, leave: int) -> None:
    assert room(Gauge(), ManualClock()).leaving_for_memory(live) == leave
