"""The table of docs/operators.md names every number at /metrics as the code does."""

from tests.unit.docs.test_tables import table
from torpor.operations.metrics_table import every_metric


def test_every_metric_is_told_with_kind_labels_and_meaning() -> None:
    assert table("operators.md", "Metrics") == {
        metric.name: [metric.kind.value, ", ".join(f"`{label}`" for label in metric.labels), metric.about]
        for metric in every_metric()
    }
