"""The numbers of a server: what was observed since its start, and what its parts report when they are asked.

Above: the composition root, which hands the tallies to the ports that count (``metrics_ports``, ``metrics_turns``) and
names the parts; the gateway's ``/metrics``, which shows a page. Below: ``metrics_table``, which names every number.
Counting costs a dictionary look-up; all else is done when somebody reads. A tally has one thread that writes it.
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from inspect import isawaitable
from math import isinf
from typing import Any, Final

import anyio.to_thread
import msgspec
import structlog

from torpor.errors import TorporError
from torpor.operations import metrics_table as table
from torpor.operations.metrics_table import Kind, Metric, Number, Room, metric_of

_log = structlog.get_logger()
_UNTOLD: Final = Number(Kind.GAUGE, "")

Statistics = Callable[[], msgspec.Struct | Awaitable[msgspec.Struct]]
"""Asked at each scrape; a struct of numbers, of mappings from label values to numbers, and of None for none."""


class Tally:
    """Counts by labels."""

    __slots__ = ("_counts", "metric")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._counts: dict[tuple[str, ...], float] = {} if metric.labels else {(): 0.0}

    def add(self, *labels: str, by: float = 1.0) -> None:
        """Args: labels: in order of the metric's."""
        self._counts[labels] = self._counts.get(labels, 0.0) + by

    def counts(self) -> dict[tuple[str, ...], float]:
        """A copy, made at once: another thread may be counting."""
        return dict(self._counts)


class Spread:
    """How observations are spread over the buckets of a histogram."""

    __slots__ = ("_series", "metric")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._series: dict[tuple[str, ...], list[float]] = {} if metric.labels else {(): self._new()}

    def observe(self, value: float, *labels: str) -> None:
        """Args: labels: in order of the metric's."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = self._new()
        series[bisect_left(self.metric.buckets, value)] += 1
        series[-1] += value

    def series(self) -> dict[tuple[str, ...], tuple[list[tuple[str, float]], float]]:
        """For each series its buckets, each with the count up to its bound, and the sum of what was observed."""
        bounds = [*map(str, self.metric.buckets), "+Inf"]
        told = {}
        for labels, numbers in dict(self._series).items():
            *counts, total = numbers
            so_far, buckets = 0.0, []
            for bound, count in zip(bounds, counts, strict=True):
                so_far += count
                buckets.append((bound, so_far))
            told[labels] = (buckets, total)
        return told

    def _new(self) -> list[float]:
        """A count for each bucket and for what is above them, then the sum."""
        return [0.0] * (len(self.metric.buckets) + 2)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader is given."""

    content_type: str
    body: bytes


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A family as a part told it just now."""

    metric: Metric
    values: Mapping[tuple[str, ...], float] = {}
    buckets: tuple[tuple[str, float], ...] = ()
    """Of a histogram, each with the count up to its bound."""
    total: float = 0.0
    """Of a histogram, what was observed, together."""


class Metrics:
    """Of one server; holds no state of the process."""

    def __init__(self) -> None:
        self._tallies: list[Tally] = []
        self._spreads: list[Spread] = []
        self._rooms: dict[str, Statistics] = {}
        self._unread = self.tally(table.UNREAD_ROOMS)

    def tally(self, metric: Metric) -> Tally:
        """A new one; each metric has one writer."""
        tally = Tally(metric)
        self._tallies.append(tally)
        return tally

    def spread(self, metric: Metric) -> Spread:
        """Likewise."""
        spread = Spread(metric)
        self._spreads.append(spread)
        return spread

    def report(self, room: str, statistics: Statistics) -> None:
        """Show every field of what ``statistics`` returns under the name ``room``; see ``metrics_table.ROOMS``."""
        self._rooms[room] = statistics

    async def page(self, accept: str = "") -> Page:
        """All numbers as of now. Args: accept: the header of that name, which chooses the format."""
        rooms = await self.rooms()
        reported = [family for room, statistics in rooms.items() for family in _families(room, statistics)]
        return await anyio.to_thread.run_sync(_rendered, self._tallies, self._spreads, reported, accept)

    async def rooms(self) -> dict[str, msgspec.Struct]:
        """What each part says of itself now, by its name; without those that cannot tell."""
        told = {room: await self._asked(room) for room in tuple(self._rooms)}
        return {room: statistics for room, statistics in told.items() if statistics is not None}

    async def _asked(self, room: str) -> msgspec.Struct | None:
        try:
            told = self._rooms[room]()
            return await told if isawaitable(told) else told
        except TorporError as exc:  # the numbers of the others are good
            self._unread.add(room)
            _log.warning("metrics.room_unread", room=room, code=exc.code)
            return None


def _families(room: str, statistics: Any) -> Iterator[Reported]:
    """What of a struct are numbers."""
    known = table.ROOMS[room] if room in table.ROOMS else Room(struct="", numbers={})
    for field in type(statistics).__struct_fields__:
        value, number = getattr(statistics, field), known.numbers.get(field, _UNTOLD)
        metric = metric_of(room, field, number)
        if field in known.totals:
            continue
        if number.kind is Kind.HISTOGRAM:
            yield Reported(metric=metric, buckets=_summed(value), total=getattr(statistics, number.total))
        elif isinstance(value, Mapping):
            labels = metric.labels or ("name",)
            values = {(key,) if isinstance(key, str) else tuple(key): float(each) for key, each in value.items()}
            yield Reported(metric=msgspec.structs.replace(metric, labels=labels), values=values)
        elif isinstance(value, int | float):
            yield Reported(metric=metric, values={(): float(value)})


def _summed(buckets: Iterable[Any]) -> tuple[tuple[str, float], ...]:
    """With the count up to each bound, from buckets with the count between the bounds."""
    so_far, summed = 0.0, []
    for bucket in buckets:
        so_far += bucket.count
        summed.append(("+Inf" if isinf(bucket.at_most_s) else str(float(bucket.at_most_s)), so_far))
    return tuple(summed)


def _rendered(tallies: list[Tally], spreads: list[Spread], reported: list[Reported], accept: str) -> Page:
    """In a thread: the first time it loads the library, which no start should wait for."""
    from torpor.operations.metrics_text import text_of  # noqa: PLC0415  slow to import: 60 ms, a part of a start

    families = [
        *reported,
        *(Reported(metric=tally.metric, values=tally.counts()) for tally in tallies),
    ]
    content_type, body = text_of(families, {spread.metric: spread.series() for spread in spreads}, accept=accept)
    return Page(content_type=content_type, body=body)
