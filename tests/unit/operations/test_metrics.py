"""What is counted, and the page it becomes."""

from collections.abc import Mapping

import msgspec
import pytest

from tests.support.scrape import OPENMETRICS, Numbers
from torpor.errors import StoreUnavailable
from torpor.operations.metrics import Metrics
from torpor.operations.metrics_table import Kind, Metric, every_metric

ENDED = Metric(name="torpor_turns_ended_total", kind=Kind.COUNTER, about="Ends.", labels=("agent", "outcome"))
ALONE = Metric(name="torpor_alone_total", kind=Kind.COUNTER, about="Alone.")
SECONDS = Metric(
    name="torpor_x_seconds", kind=Kind.HISTOGRAM, about="Time.", labels=("agent",), buckets=(0.5, 1.0, 2.0)
)
QUIET = Metric(name="torpor_y_seconds", kind=Kind.HISTOGRAM, about="Time.", buckets=(1.0,))


class Bucket(msgspec.Struct, frozen=True):
    at_most_s: float
    count: int


class Stood(msgspec.Struct, frozen=True, kw_only=True):
    open: int = 3
    lag_s: float = 0.25
    is_full: bool = True
    oldest: int | None = None
    live: Mapping[str, int] = msgspec.field(default_factory=lambda: {"idle": 2, "running": 1})
    names: tuple[str, ...] = ("a",)


async def numbers(metrics: Metrics) -> Numbers:
    return Numbers((await metrics.page()).body.decode())


async def test_counter_has_a_sample_for_each_combination_of_labels() -> None:
    metrics = Metrics()
    ended = metrics.tally(ENDED)
    ended.add("clerk", "finished")
    ended.add("clerk", "finished")
    ended.add("clerk", "failed", by=3)

    assert (await numbers(metrics)).by("torpor_turns_ended_total", "agent", "outcome") == {
        ("clerk", "finished"): 2,
        ("clerk", "failed"): 3,
    }


async def test_counter_without_labels_begins_at_zero() -> None:
    metrics = Metrics()
    metrics.tally(ALONE)

    assert (await numbers(metrics)).value("torpor_alone_total") == 0


async def test_observation_on_a_bound_is_below_it_and_buckets_add_up() -> None:
    metrics = Metrics()
    seconds = metrics.spread(SECONDS)
    metrics.spread(QUIET)
    for value in (0.5, 0.6, 1.0, 7.0):
        seconds.observe(value, "clerk")
    told = await numbers(metrics)

    assert told.by("torpor_x_seconds_bucket", "le") == {("0.5",): 1, ("1.0",): 3, ("2.0",): 3, ("+Inf",): 4}
    assert told.value("torpor_x_seconds_count", agent="clerk") == 4
    assert told.value("torpor_x_seconds_sum", agent="clerk") == pytest.approx(9.1)
    assert told.value("torpor_y_seconds_count") == 0


async def test_every_number_of_a_part_is_shown_as_it_is_when_it_is_asked() -> None:
    metrics, now = Metrics(), [Stood()]
    metrics.report("desk", lambda: now[0])
    before = await numbers(metrics)
    now[0] = Stood(open=4)
    after = await numbers(metrics)

    assert before.value("torpor_desk_open") == 3
    assert after.value("torpor_desk_open") == 4
    assert before.value("torpor_desk_lag_seconds") == 0.25
    assert before.value("torpor_desk_is_full") == 1
    assert before.value("torpor_desk_oldest") is None
    assert before.by("torpor_desk_live", "name") == {("idle",): 2, ("running",): 1}


async def test_part_that_has_to_wait_for_its_numbers_may() -> None:
    metrics = Metrics()

    async def stood() -> Stood:
        return Stood(open=9)

    metrics.report("desk", stood)

    assert (await numbers(metrics)).value("torpor_desk_open") == 9


async def test_part_that_cannot_tell_costs_nobody_elses_numbers() -> None:
    metrics = Metrics()

    def fails() -> Stood:
        raise StoreUnavailable("the disk is gone")

    metrics.report("shelf", fails)
    metrics.report("desk", Stood)
    told = await numbers(metrics)

    assert told.value("torpor_desk_open") == 3
    assert told.value("torpor_unread_rooms_total", room="shelf") == 1


async def test_histogram_of_a_part_is_one_family() -> None:
    class Beats(msgspec.Struct, frozen=True):
        buckets: tuple[Bucket, ...] = (Bucket(0.1, 2), Bucket(float("inf"), 1))
        lag_sum_s: float = 5.0

    metrics = Metrics()
    metrics.report("watchdog", Beats)
    told = await numbers(metrics)

    assert told.by("torpor_watchdog_lag_seconds_bucket", "le") == {("0.1",): 2, ("+Inf",): 3}
    assert told.value("torpor_watchdog_lag_seconds_sum") == 5
    assert told.value("torpor_watchdog_lag_sum_seconds") is None


async def test_two_servers_in_one_process_share_no_number() -> None:
    one, other = Metrics(), Metrics()
    one.tally(ALONE).add()
    other.tally(ALONE)

    assert (await numbers(other)).value("torpor_alone_total") == 0


async def test_page_of_every_metric_is_read_by_both_parsers() -> None:
    metrics = Metrics()
    for metric in every_metric():
        if metric.kind is Kind.HISTOGRAM:
            metrics.spread(metric).observe(1.0, *metric.labels)
        elif metric.name != "torpor_unread_rooms_total":
            metrics.tally(metric).add(*metric.labels)
    plain, modern = await metrics.page(), await metrics.page(OPENMETRICS)

    assert modern.content_type.startswith("application/openmetrics-text")
    told, also = Numbers(plain.body.decode()), Numbers(modern.body.decode(), is_openmetrics=True)
    own = {sample: value for sample, value in told.samples.items() if sample[0].startswith("torpor_")}
    assert own.items() <= also.samples.items()
