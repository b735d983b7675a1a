"""What the readings of the watchdog mean; pure.

Above: the watchdog, whose thread looks from time to time and hands in what it reads. The loop *beats*: it sleeps for a
set time and notes when it woke up. Three things can make it late, and they differ in what else happens:

    the loop is busy        the watchdog's own thread wakes up in time and finds the beat overdue
    a call holds the        the watchdog is late itself, and the process has used the processor meanwhile
    interpreter
    the process did not     the watchdog is late itself, and the process has used next to none, or the watchdog stood in
    run                     line for the processor: the process was stopped, or the machine slept or was overloaded;
                            nobody in here is to blame
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from torpor.watchdog.options import WatchdogOptions
from torpor.watchdog.statistics import Lags, WatchdogStatistics

_RAN_SHARE: Final = 0.1
"""A process that used less of the processor than this share of a gap did not run in it; busy machines give little."""
_IN_LINE_SHARE: Final = 0.5
_TURNS: Final = 8
"""A watchdog that stood in line for more than this share of a gap was not kept by the interpreter, unless it had the
processor more often than this: who waits for the interpreter asks again every few milliseconds, and on a busy machine
stands in line each time."""
_LOAD: Final = 0.5
"""What it may have used of the processor before a gap, at least."""
_INSTANT_S: Final = 0.001
_AGAIN_FACTOR: Final = 4.0
"""A loop that stays busy is told again when it has been so for this many times as long."""


class Beat(NamedTuple):
    """Monotonic seconds."""

    due_s: float
    at_s: float


class Reading(NamedTuple):
    """What the watchdog's thread finds when it wakes up. Monotonic seconds."""

    due_s: float
    """When it meant to wake up."""
    at_s: float
    cpu_s: float
    """What the process has used of the processor since it began."""
    in_line_s: float
    """For how long the watchdog's thread has waited for the processor since it began; 0 where nobody tells."""
    next_beat_s: float
    """When the loop ought to beat next, or ought to have."""
    turns: int = 0
    """How often the watchdog's thread has had the processor since it began; 0 where nobody tells."""


class Cause(StrEnum):
    """Why the loop was late."""

    BUSY = "busy"
    INTERPRETER_HELD = "interpreter_held"


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """The loop is late, or was."""

    since_s: float
    until_s: float
    """So far, when it is not over."""
    cause: Cause
    cpu_s: float
    """What the process has used of the processor since the watchdog looked before."""
    is_over: bool


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """A loop of which ``Blocked`` was told goes on."""

    since_s: float
    until_s: float

    @property
    def blocked_s(self) -> float:
        return self.until_s - self.since_s


class Suspended(msgspec.Struct, frozen=True, kw_only=True):
    """The process did not run."""

    since_s: float
    until_s: float
    cpu_s: float


Finding = Blocked | Resumed | Suspended


class Judge:
    """Follows one loop."""

    def __init__(self, options: WatchdogOptions, *, now_s: float, cpu_s: float) -> None:
        self._warn_s = options.lag_warn_s
        self._beat_s = options.beat_s
        self._lags = Lags()
        self._looked_s = now_s
        self._cpu_s = cpu_s
        self._in_line_s = 0.0
        self._turns = 0
        self._load = 0.0
        """Of the processor, when the watchdog looked last."""
        self._excused_until_s = now_s
        """What was due before counts from here, since the process did not run."""
        self._heard_due_s: float | None = None
        """The last beat."""
        self._told_due_s: float | None = None
        """The overdue beat that was told."""
        self._tell_again_after_s = 0.0
        self._stalls = 0
        self._stalled_s = 0.0
        self._suspensions = 0

    def next_look_s(self, next_beat_s: float, *, now_s: float) -> float:
        """How long the watchdog may sleep: it ought to be awake when a beat becomes too late."""
        too_late_s = next_beat_s + self._warn_s - now_s
        return min(too_late_s, self._beat_s) if too_late_s > 0 else self._beat_s

    def look(self, reading: Reading, beats: Iterable[Beat]) -> Iterator[Finding]:
        """Take in a reading, and the beats since the one before it."""
        late_s = reading.at_s - reading.due_s
        cause = Cause.BUSY
        if 2 * late_s >= self._warn_s:  # the loop was due at another moment, and may be later than this
            if self._has_run(reading, late_s):
                cause = Cause.INTERPRETER_HELD
            else:
                self._excused_until_s = reading.at_s
                if late_s >= self._warn_s:
                    yield self._suspended(reading)
        for beat in beats:
            yield from self._judged(beat, reading, cause)
        yield from self._overdue(reading, cause)
        self._load = (reading.cpu_s - self._cpu_s) / max(reading.at_s - self._looked_s, _INSTANT_S)
        self._looked_s, self._cpu_s = reading.at_s, reading.cpu_s
        self._in_line_s, self._turns = reading.in_line_s, reading.turns

    def statistics(self) -> WatchdogStatistics:
        return self._lags.statistics(stalls=self._stalls, stalled_s=self._stalled_s, suspensions=self._suspensions)

    def _has_run(self, reading: Reading, late_s: float) -> bool:
        """Whether the process had the processor, and the watchdog did not have the interpreter."""
        stood_s, turns = reading.in_line_s - self._in_line_s, reading.turns - self._turns
        if stood_s >= _IN_LINE_SHARE * late_s and turns <= _TURNS:
            return False
        # Some of it was used while the watchdog slept as it meant to.
        before_s = max(self._load, _LOAD) * (reading.due_s - self._looked_s)
        return reading.cpu_s - self._cpu_s - before_s >= _RAN_SHARE * late_s

    def _suspended(self, reading: Reading) -> Suspended:
        self._suspensions += 1
        return Suspended(since_s=reading.due_s, until_s=reading.at_s, cpu_s=reading.cpu_s - self._cpu_s)

    def _judged(self, beat: Beat, reading: Reading, cause: Cause) -> Iterator[Finding]:
        self._heard_due_s = beat.due_s
        since_s = max(beat.due_s, self._excused_until_s)
        lag_s = max(0.0, beat.at_s - since_s)
        self._lags.add(lag_s)
        was_told = beat.due_s == self._told_due_s
        if lag_s >= self._warn_s:
            self._stalls += 1
            self._stalled_s += lag_s
            if not was_told:
                used_s = reading.cpu_s - self._cpu_s
                yield Blocked(since_s=since_s, until_s=beat.at_s, cause=cause, cpu_s=used_s, is_over=True)
        if was_told:
            self._told_due_s = None
            yield Resumed(since_s=min(since_s, beat.at_s), until_s=beat.at_s)

    def _overdue(self, reading: Reading, cause: Cause) -> Iterator[Finding]:
        if reading.next_beat_s == self._heard_due_s:
            return  # it has come, and the next one has no time yet
        since_s = max(reading.next_beat_s, self._excused_until_s)
        blocked_s = reading.at_s - since_s
        is_news = reading.next_beat_s != self._told_due_s
        if blocked_s >= self._warn_s and (is_news or blocked_s >= self._tell_again_after_s):
            self._told_due_s = reading.next_beat_s
            self._tell_again_after_s = blocked_s * _AGAIN_FACTOR
            used_s = reading.cpu_s - self._cpu_s
            yield Blocked(since_s=since_s, until_s=reading.at_s, cause=cause, cpu_s=used_s, is_over=False)
