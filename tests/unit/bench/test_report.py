"""What a benchmark says of its figures, and when it fails."""

import json

import pytest

from bench.report import Row, as_json, exit_status, table

MET = Row(id="A", what="a", unit="us", torpor=100, floor=50, at_most=120, ratio_at_most=4)


@pytest.mark.parametrize(
    ("row", "verdict", "status"),
    [
        (MET, "met", 0),
        (Row(id="A", what="a", unit="us", torpor=150, at_most=100), "missed 1.50x", 0),
        (Row(id="A", what="a", unit="us", torpor=250, at_most=100), "MISSED 2.50x", 1),
        (Row(id="A", what="a", unit="us", torpor=90, floor=10, at_most=100, ratio_at_most=3), "MISSED 3.00x", 1),
        (Row(id="A", what="a", unit="us", torpor=90, base=80, ratio_at_most=1.2), "met", 0),
        (Row(id="A", what="a", unit="", torpor=400, at_least=1000), "MISSED 2.50x", 1),
        (Row(id="A", what="a", unit="", torpor=0, at_most=0), "met", 0),
        (Row(id="A", what="a", unit="", torpor=1, at_most=0), "MISSED 1000.00x", 1),
    ],
)
def test_a_row_that_misses_its_worst_target_by_more_than_twice_fails_the_run(
    row: Row, verdict: str, status: int
) -> None:
    assert row.verdict == verdict
    assert exit_status([MET, row]) == status


def test_a_figure_without_a_target_has_no_verdict() -> None:
    row = Row(id="", what="a", unit="us", torpor=150, floor=50)

    assert row.verdict == ""
    assert exit_status([row]) == 0


def test_the_table_shows_floor_ratio_and_every_target() -> None:
    assert " ".join(table([MET]).splitlines()[1].split()) == "A a 50 us 100 us 2.00x <= 120 us, <= 4x floor met"


def test_the_json_holds_what_the_table_shows() -> None:
    (row,) = json.loads(as_json([MET]))
    assert (row["torpor"], row["floor"], row["ratio"], row["verdict"]) == (100, 50, 2.0, "met")
