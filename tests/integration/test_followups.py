"""What a follow-up points at is still to be seen after a fold; a short version of ``python -m bench.followups``."""

import pytest

from bench.followups.compare import (
    EVERYTHING,
    NONE,
    OURS,
    SLIDING,
    Outcome,
    at_the_worst_moment,
    compared,
    under_pressure,
)
from bench.followups.conversations import clinic
from bench.followups.items import kept
from bench.followups.judge import Place
from bench.followups.report import Report, Section, as_builtins, figures, table
from bench.followups.summarisers import lazy, scripted

LAZY = {"lazy": lambda cap_tokens: scripted(lazy, name=f"lazy, {cap_tokens} tokens")}


@pytest.fixture
def anyio_backend() -> str:
    """One is enough: the conversations are long, and what runs them is tested on both."""
    return "asyncio"


def places(outcomes: tuple[Outcome, ...], policy: str) -> list[Place]:
    (found,) = (each for each in outcomes if each.policy.startswith(policy))
    return [place for finding in found.findings for place in finding.places]


async def test_a_fold_at_the_follow_up_itself_leaves_the_last_two_turns_as_they_were_said() -> None:
    dose, *_ = clinic()
    (case, *_) = await at_the_worst_moment(dose)
    outcomes = await compared(case, makers=LAZY)
    assert set(places(outcomes, OURS)) == {Place.VERBATIM}
    assert set(places(outcomes, EVERYTHING)) == {Place.NOWHERE}
    assert next(each.cost.folds for each in outcomes if each.policy.startswith(OURS)) > 0


async def test_facts_that_no_summary_holds_are_lost_to_every_policy_but_the_one_with_a_journal_to_read() -> None:
    case = await under_pressure(clinic()[0], pressure=4.0)
    outcomes = await compared(case, makers=LAZY)
    assert set(places(outcomes, OURS)) == {Place.VERBATIM, Place.JOURNAL}
    assert Place.JOURNAL not in places(outcomes, SLIDING)
    assert Place.NOWHERE in places(outcomes, SLIDING)
    assert set(places(outcomes, NONE)) == {Place.NOWHERE}


async def test_open_items_outlast_ten_folds_by_a_summariser_that_is_lazy_or_hostile_but_not_one_that_lies() -> None:
    rows = await kept(clinic()[2:3], ways=[("lazy", True), ("hostile", True), ("liar", True)])
    kept_, lost = {1: 1, 3: 1, 10: 1}, {1: 1, 3: 0, 10: 0}
    assert [row.visible for row in rows] == [kept_, kept_, lost]


async def test_the_report_counts_every_fact_once_and_says_what_it_does_not_measure() -> None:
    case = await under_pressure(clinic()[0], pressure=2.0)
    rows = figures(await compared(case, makers=LAZY))
    section = Section(set="clinic", window="2 times the budget", conversations=1, left_out=0, figures=rows)
    report = Report(sections=(section,), items=(), summarisers=("lazy",))
    for row in as_builtins(report)["sections"][0]["figures"]:
        assert sum(row[place] for place in Place) == row["facts"] == row["recent"] + row["older"]
    assert "No answers were made" in table(report)
    assert "says nothing of what a model would keep" in table(report)
