"""The oracle's view of what a fold says of the request behind it."""

from typing import Any

import pytest

from tests.support.oracle_case import Case
from tests.support.oracle_evidence import Commit, Evidence, Journal
from tests.support.oracle_folds import judge_folds

LEARNT, UNLEARNT = {"": 3.8, "other": 4.0}, {"": 4.0, "other": 4.0}
SIZE_BYTES = 4_560


def told_by(
    after: int, asked: int, *, folder: dict[str, float], asker: dict[str, float], model: str = "", is_next: bool = True
) -> list[str]:
    """Kinds of what is found about a fold that told ``after`` tokens, and a request that has ``asked`` of them."""
    records: list[dict[str, Any]] = [
        {"seq": 1, "kind": "context_replaced", "reason": "everything", "after_tokens": after},
        {"seq": 2, "kind": "preamble_changed" if is_next else "turn_cancelled"},
        {"seq": 3, "kind": "model_requested", "call": "1-1-2", "estimated_tokens": asked, "model": model},
    ]
    commits = [
        Commit(
            moment=moment,
            life=f"p{moment}",
            conversation="c0",
            fence=moment,
            first_seq=first,
            last_seq=last,
            is_due=True,
            bytes_per_token=ratios,
        )
        for moment, first, last, ratios in ((1, 1, 2, folder), (2, 3, 3, asker))
    ]
    journal = Journal(conversation="c0", rows=[], is_due=True, quarantine="", receipts={})
    case = Case(journal, Evidence(commits=commits))
    case.story.records = records
    return [violation.kind for violation in judge_folds(case)]


@pytest.mark.parametrize("ratios", [LEARNT, UNLEARNT])
def test_a_fold_that_tells_the_tokens_of_the_request_is_sound(ratios: dict[str, float]) -> None:
    tokens = round(SIZE_BYTES / ratios[""])
    assert told_by(tokens, tokens, folder=ratios, asker=ratios) == []


def test_processes_that_count_otherwise_may_tell_the_same_request_by_other_numbers() -> None:
    assert told_by(1_200, 1_140, folder=LEARNT, asker=UNLEARNT) == []
    assert told_by(1_140, 1_200, folder=UNLEARNT, asker=LEARNT) == []


@pytest.mark.parametrize("after", [1_020, 1_140, 1_260, 1_375])
def test_a_wrong_number_is_found_also_where_processes_count_otherwise(after: int) -> None:
    assert told_by(after, 1_140, folder=LEARNT, asker=UNLEARNT) == ["fold_misreckoned"]


@pytest.mark.parametrize("after", [1_080, 1_200])
def test_a_wrong_number_of_one_process_is_found(after: int) -> None:
    assert told_by(after, 1_140, folder=LEARNT, asker=LEARNT) == ["fold_misreckoned"]


def test_only_what_was_learnt_of_the_model_that_is_asked_counts() -> None:
    assert told_by(1_200, 1_140, folder=LEARNT, asker=UNLEARNT, model="other") == ["fold_misreckoned"]


def test_a_fold_tells_of_nothing_but_the_next_request() -> None:
    assert told_by(1_020, 1_140, folder=LEARNT, asker=LEARNT, is_next=False) == []
