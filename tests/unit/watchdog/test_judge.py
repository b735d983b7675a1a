"""What readings mean: who or what made the loop late, and when nobody did."""

from collections.abc import Sequence

from torpor.watchdog.judge import Beat, Blocked, Cause, Finding, Judge, Reading, Resumed, Suspended
from torpor.watchdog.options import WatchdogOptions

OPTIONS = WatchdogOptions(lag_warn_s=1.0, beat_s=0.25)


class Watched:
    """A judge, and the readings of a watchdog that looks at it."""

    def __init__(self) -> None:
        self.judge = Judge(OPTIONS, now_s=100.0, cpu_s=5.0)
        self.cpu_s = 5.0

    def look(
        self,
        at_s: float,
        *beats: Beat,
        next_beat_s: float,
        due_s: float | None = None,
        used_s: float = 0.0,
        in_line_s: float = 0.0,
        turns: int = 0,
    ) -> Sequence[Finding]:
        self.cpu_s += used_s
        due_s = at_s if due_s is None else due_s
        reading = Reading(
            due_s=due_s, at_s=at_s, cpu_s=self.cpu_s, in_line_s=in_line_s, next_beat_s=next_beat_s, turns=turns
        )
        return list(self.judge.look(reading, beats))


def test_loop_that_is_in_time_is_no_news() -> None:
    watched = Watched()
    assert watched.look(100.25, Beat(100.2, 100.203), next_beat_s=100.453) == []
    statistics = watched.judge.statistics()
    assert statistics.beats == 1
    assert round(statistics.last_lag_s, 6) == 0.003
    assert [bucket.at_most_s for bucket in statistics.buckets if bucket.count] == [0.005]


def test_busy_loop_is_told_while_it_is_busy_and_again_when_it_goes_on() -> None:
    watched = Watched()
    assert watched.look(101.0, next_beat_s=100.25) == []
    told = watched.look(101.25, next_beat_s=100.25)
    assert told == [Blocked(since_s=100.25, until_s=101.25, cause=Cause.BUSY, cpu_s=0.0, is_over=False)]
    assert watched.look(101.5, next_beat_s=100.25) == []
    assert watched.look(103.5, Beat(100.25, 103.25), next_beat_s=103.5) == [Resumed(since_s=100.25, until_s=103.25)]
    statistics = watched.judge.statistics()
    assert (statistics.stalls, statistics.stalled_s, statistics.lag_max_s) == (1, 3.0, 3.0)


def test_loop_that_stays_busy_is_told_again_ever_more_rarely() -> None:
    watched = Watched()
    told = [at_s for at_s in range(101, 180) if watched.look(float(at_s), next_beat_s=100.0)]
    assert told == [101, 104, 116, 164]


def test_loop_that_was_busy_between_two_looks_is_told_afterwards() -> None:
    watched = Watched()
    told = watched.look(101.5, Beat(100.25, 101.375), next_beat_s=101.625)
    assert told == [Blocked(since_s=100.25, until_s=101.375, cause=Cause.BUSY, cpu_s=0.0, is_over=True)]
    assert watched.judge.statistics().stalls == 1


def test_held_interpreter_makes_the_watchdog_late_too_and_uses_the_processor() -> None:
    watched = Watched()
    told = watched.look(103.25, next_beat_s=100.25, due_s=100.25, used_s=3.0)
    assert told == [Blocked(since_s=100.25, until_s=103.25, cause=Cause.INTERPRETER_HELD, cpu_s=3.0, is_over=False)]
    assert watched.look(103.5, Beat(100.25, 103.25), next_beat_s=103.5) == [Resumed(since_s=100.25, until_s=103.25)]


def test_held_interpreter_is_told_when_the_loop_was_quicker_than_the_watchdog() -> None:
    watched = Watched()
    told = watched.look(103.25, Beat(100.25, 103.25), next_beat_s=103.5, due_s=100.25, used_s=3.0)
    assert told == [Blocked(since_s=100.25, until_s=103.25, cause=Cause.INTERPRETER_HELD, cpu_s=3.0, is_over=True)]


def test_process_that_did_not_run_is_told_so_and_counts_as_no_lag() -> None:
    watched = Watched()
    told = watched.look(700.0, Beat(100.25, 700.0), next_beat_s=700.25, due_s=100.25, used_s=0.125)
    assert told == [Suspended(since_s=100.25, until_s=700.0, cpu_s=0.125)]
    statistics = watched.judge.statistics()
    assert (statistics.stalls, statistics.suspensions, statistics.lag_max_s) == (0, 1, 0.0)


def test_watchdog_that_stood_in_line_for_the_processor_blames_nobody() -> None:
    watched = Watched()
    told = watched.look(103.25, Beat(100.25, 103.25), next_beat_s=103.5, due_s=100.25, used_s=2.0, in_line_s=2.5)
    assert told == [Suspended(since_s=100.25, until_s=103.25, cpu_s=2.0)]


def test_watchdog_that_stood_in_line_again_and_again_waited_for_the_interpreter() -> None:
    watched = Watched()
    told = watched.look(
        103.25, Beat(100.25, 103.25), next_beat_s=103.5, due_s=100.25, used_s=0.8, in_line_s=2.5, turns=40
    )
    assert [finding.cause for finding in told if isinstance(finding, Blocked)] == [Cause.INTERPRETER_HELD]


def test_beat_that_comes_after_a_suspension_counts_from_its_end() -> None:
    watched = Watched()
    watched.look(700.0, next_beat_s=100.25, due_s=100.25)
    assert watched.look(700.25, Beat(100.25, 700.125), next_beat_s=700.375) == []
    assert watched.judge.statistics().lag_max_s == 0.125


def test_loop_that_is_busy_after_a_suspension_is_told_from_its_end() -> None:
    watched = Watched()
    watched.look(700.0, next_beat_s=100.25, due_s=100.25)
    told = watched.look(701.0, next_beat_s=100.25)
    assert told == [Blocked(since_s=700.0, until_s=701.0, cause=Cause.BUSY, cpu_s=0.0, is_over=False)]


def test_suspension_that_is_only_just_short_of_the_limit_raises_no_alarm() -> None:
    watched = Watched()
    assert watched.look(101.125, Beat(100.1, 101.125), next_beat_s=101.375, due_s=100.25) == []
    assert watched.judge.statistics().stalls == 0


def test_load_before_a_suspension_is_not_taken_for_work_in_it() -> None:
    watched = Watched()
    watched.look(100.25, next_beat_s=100.5, used_s=0.5)  # two threads without the interpreter
    told = watched.look(102.0, next_beat_s=100.5, due_s=100.5, used_s=0.5)
    assert told == [Suspended(since_s=100.5, until_s=102.0, cpu_s=0.5)]


def test_beat_that_has_come_is_not_awaited_any_more() -> None:
    watched = Watched()
    watched.look(101.5, next_beat_s=100.25)
    assert watched.look(103.5, Beat(100.25, 103.25), next_beat_s=100.25) == [Resumed(since_s=100.25, until_s=103.25)]
    assert watched.look(103.75, Beat(103.5, 103.5), next_beat_s=103.75) == []


def test_watchdog_wakes_up_when_a_beat_becomes_too_late() -> None:
    judge = Watched().judge
    assert judge.next_look_s(100.25, now_s=100.0) == 0.25
    assert judge.next_look_s(100.25, now_s=101.125) == 0.125
    assert judge.next_look_s(100.25, now_s=101.25) == 0.25


def test_hundredth_measurement_decides_what_most_are_below() -> None:
    judge = Watched()
    judge.look(200.0, *[Beat(at_s, at_s + 0.002) for at_s in range(99)], next_beat_s=200.0)
    assert judge.judge.statistics().lag_p99_s <= 0.005
    judge.look(200.0, Beat(150.0, 150.75), Beat(151.0, 151.5), next_beat_s=200.0)
    assert judge.judge.statistics().lag_p99_s == 0.5
    judge.look(200.0, Beat(150.0, 150.75), next_beat_s=200.0)
    assert judge.judge.statistics().lag_p99_s == 0.75
