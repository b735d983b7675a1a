"""How late the event loop has been, in numbers."""

import bisect
import itertools
from typing import Final

import msgspec

BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_P99: Final = 0.99


class WatchdogStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Since the server began."""

    beats: int
    """Measurements."""
    last_lag_s: float
    lag_max_s: float
    lag_p99_s: float
    """The bound below which 99 of 100 measurements are."""
    lag_sum_s: float
    beats_within: dict[str, int]
    """Measurements that were at most this late, by the bound in seconds; the last is ``+Inf``."""
    stalls: int
    """Times that the loop was late by ``lag_warn_s`` or more."""
    stalled_s: float
    """Together."""
    suspensions: int
    """Times that the whole process did not run for as long; they are in no lag."""


class Lags:
    """Counts them."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._last_s = self._max_s = self._sum_s = 0.0

    def add(self, lag_s: float) -> None:
        self._counts[bisect.bisect_left(BOUNDS_S, lag_s)] += 1
        self._last_s = lag_s
        self._max_s = max(self._max_s, lag_s)
        self._sum_s += lag_s

    def statistics(self, *, stalls: int, stalled_s: float, suspensions: int) -> WatchdogStatistics:
        within = tuple(itertools.accumulate(self._counts))
        beats = within[-1]
        p99_bucket = bisect.bisect_left(within, _P99 * beats)
        return WatchdogStatistics(
            beats=beats,
            last_lag_s=self._last_s,
            lag_max_s=self._max_s,
            lag_p99_s=min((*BOUNDS_S, self._max_s)[p99_bucket], self._max_s),
            lag_sum_s=self._sum_s,
            beats_within=dict(zip((*map(str, BOUNDS_S), "+Inf"), within, strict=True)),
            stalls=stalls,
            stalled_s=stalled_s,
            suspensions=suspensions,
        )
