"""Which conversations are not kept any longer, and why: a table over rows of the directory."""

from typing import Any

import msgspec
import pytest

from torpor.records.ids import ConversationKey
from torpor.store.contract import Cause, DirectoryRow, Head
from torpor.supervisor.options import RetentionOptions
from torpor.supervisor.retention import retired

DAY_US = 86_400 * 1_000_000
NOW_US = 1_000 * DAY_US


def row(name: str, *, days: float, **fields: Any) -> DirectoryRow:
    """One in which nothing happened for so many days."""
    made = DirectoryRow(
        key=ConversationKey("acme", "ann", name),
        agent="clerk",
        title="",
        head=Head(seq=3, event=2, batch_id="b"),
        created_us=0,
        updated_us=NOW_US - round(days * DAY_US),
        due_us=None,
        quarantine="",
    )
    return msgspec.structs.replace(made, **fields)


def gone(*rows: DirectoryRow, **options: int) -> list[tuple[str, str]]:
    found = retired(rows, options=RetentionOptions(**options), now_us=NOW_US)
    return [(old.row.key.conversation, old.cause.value) for old in found]


def test_everything_is_kept_unless_somebody_says_otherwise() -> None:
    assert RetentionOptions().keeps_everything
    assert gone(row("a", days=999), row("b", days=999, is_archived=True)) == []


@pytest.mark.parametrize("options", [{"age_days": 1}, {"archived_days": 1}, {"per_owner_max": 1}])
def test_one_policy_is_enough(options: dict[str, int]) -> None:
    assert not RetentionOptions(**options).keeps_everything


@pytest.mark.parametrize(("days", "is_gone"), [(29.9, False), (30, False), (30.1, True)])
def test_age_counts_from_the_last_thing_that_happened(days: float, is_gone: bool) -> None:
    assert gone(row("a", days=days), age_days=30) == ([("a", "age")] if is_gone else [])


def test_archived_ones_go_sooner_and_others_stay() -> None:
    rows = row("a", days=8, is_archived=True), row("b", days=8), row("c", days=6, is_archived=True)
    assert gone(*rows, archived_days=7) == [("a", "archived")]


def test_age_is_told_where_both_hold() -> None:
    assert gone(row("a", days=40, is_archived=True), age_days=30, archived_days=7) == [("a", "age")]


def test_the_newest_of_an_owner_are_kept_whatever_they_are_called() -> None:
    rows = [row(name, days=days) for name, days in (("a", 1), ("d", 2), ("b", 3), ("c", 4))]
    assert gone(*rows, per_owner_max=2) == [("c", "count"), ("b", "count")]


def test_archived_ones_count_among_the_newest() -> None:
    assert gone(row("a", days=1, is_archived=True), row("b", days=2), per_owner_max=1) == [("b", "count")]


@pytest.mark.parametrize("mark", [{"due_us": 1}, {"quarantine": "odd"}])
def test_what_is_due_or_quarantined_is_never_touched_and_counts_all_the_same(mark: dict[str, Any]) -> None:
    rows = row("a", days=1), row("b", days=2, **mark), row("c", days=3)
    assert gone(*rows, per_owner_max=2) == [("c", "count")]
    assert gone(row("b", days=999, **mark), age_days=1, per_owner_max=1) == []


def test_of_equal_age_the_same_ones_go_each_time() -> None:
    rows = [row(name, days=1) for name in "abc"]
    assert gone(*rows, per_owner_max=1) == gone(*reversed(rows), per_owner_max=1) == [("a", "count"), ("b", "count")]


def test_causes_are_those_of_tombstones() -> None:
    assert {Cause.AGE, Cause.ARCHIVED, Cause.COUNT} < set(Cause)
