"""Numbers as text: Prometheus' own format, or OpenMetrics for who asks for it; beside them those of the process.

Above: ``metrics``, which imports this when it is first asked, since the library takes its time. The registry that the
library keeps for the whole process is not used.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from torpor.operations.metrics_table import Kind, Metric

Series = Mapping[tuple[str, ...], tuple[Sequence[tuple[str, float]], float]]
"""Of a histogram; see ``metrics.Spread``."""


class Valued(Protocol):
    """A family with its values now; see ``metrics.Reported``."""

    @property
    def metric(self) -> Metric: ...

    @property
    def values(self) -> Mapping[tuple[str, ...], float]: ...

    @property
    def buckets(self) -> Sequence[tuple[str, float]]: ...

    @property
    def total(self) -> float: ...


class _Snapshot(Collector):
    """What stands in for a registry: everything of one moment."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        yield from self._families
        yield from ProcessCollector(registry=None).collect()


def text_of(families: Sequence[Valued], histograms: Mapping[Metric, Series], *, accept: str) -> tuple[str, bytes]:
    """The type of the content and the content, families in order of their names."""
    made = [*map(_family, families), *(_histogram(metric, series) for metric, series in histograms.items())]
    encode, content_type = choose_encoder(accept)
    return content_type, encode(_Snapshot(sorted(made, key=lambda family: family.name)))


def _family(told: Valued) -> Family:
    metric = told.metric
    if metric.kind is Kind.HISTOGRAM:
        return _histogram(metric, {(): (told.buckets, told.total)})
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.about, labels=metric.labels)
    for labels, value in told.values.items():
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, series: Series) -> Family:
    family = HistogramMetricFamily(metric.name, metric.about, labels=metric.labels)
    for labels, (buckets, total) in series.items():
        family.add_metric(labels, buckets, sum_value=total)
    return family
