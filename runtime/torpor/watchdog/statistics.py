"""How late the event loop has been, in numbers."""

import bisect
import itertools
from typing import Final

import msgspec

BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, float("inf"))
_P99: Final = 0.99


class LagBucket(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements above the bound of the bucket before."""

    at_most_s: float
    count: int


class WatchdogStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Since the server began."""

    beats: int
    """Measurements."""
    last_lag_s: float
    lag_max_s: float
    lag_sum_s: float
    buckets: tuple[LagBucket, ...]
    stalls: int
    """Times that the loop was late by ``lag_warn_s`` or more."""
    stalled_s: float
    """Together."""
    suspensions: int
    """Times that the whole process did not run for as long; they are in no lag."""

    @property
    def lag_p99_s(self) -> float:
        """The bound below which 99 of 100 measurements are."""
        within = tuple(itertools.accumulate(bucket.count for bucket in self.buckets))
        bucket = self.buckets[bisect.bisect_left(within, _P99 * self.beats)]
        return min(bucket.at_most_s, self.lag_max_s)


class Lags:
    """Counts them."""

    def __init__(self) -> None:
        self._counts = [0] * len(BOUNDS_S)
        self._last_s = self._max_s = self._sum_s = 0.0

    def add(self, lag_s: float) -> None:
        self._counts[bisect.bisect_left(BOUNDS_S, lag_s)] += 1
        self._last_s = lag_s
        self._max_s = max(self._max_s, lag_s)
        self._sum_s += lag_s

    def statistics(self, *, stalls: int, stalled_s: float, suspensions: int) -> WatchdogStatistics:
        counts = zip(BOUNDS_S, self._counts, strict=True)
        return WatchdogStatistics(
            beats=sum(self._counts),
            last_lag_s=self._last_s,
            lag_max_s=self._max_s,
            lag_sum_s=self._sum_s,
            buckets=tuple(LagBucket(at_most_s=bound, count=count) for bound, count in counts),
            stalls=stalls,
            stalled_s=stalled_s,
            suspensions=suspensions,
        )
