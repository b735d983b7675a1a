"""The plainest result: what a sub-agent says in the end."""

import json

import pytest

from tests.unit.subagents.finding import a_finding
from torpor.subagents.findings import Findings
from torpor.subagents.results import ResultType, Unacceptable
from torpor.subagents.text import ANSWER_BYTES_MAX, Text

TEXT: ResultType = Text()


def some(*selected: str) -> Findings:
    findings = Findings(findings_max=9, selected_max=8)
    for id_ in selected:
        findings.add(a_finding(id_, title=f"About {id_}"))
    findings.select(selected)
    return findings


def test_an_answer_is_told_as_it_is() -> None:
    accepted = TEXT.accept('  It is "there". \n', some())

    assert json.loads(accepted.told) == {"answer": 'It is "there".'}
    assert (TEXT.name, accepted.kept, accepted.dropped) == ("text", b"", ())


def test_the_longest_answer_is_taken_and_a_longer_one_sent_back() -> None:
    assert json.loads(TEXT.accept("ü" * (ANSWER_BYTES_MAX // 2), some()).told)["answer"]
    with pytest.raises(Unacceptable, match=r"Your answer has 8,194 bytes, expected at most 8,192: shorten it\."):
        TEXT.accept("ü" * (ANSWER_BYTES_MAX // 2 + 1), some())
    assert f"{ANSWER_BYTES_MAX:,} bytes" in TEXT.instructions()


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_no_answer_is_sent_back(text: str) -> None:
    with pytest.raises(Unacceptable, match="says nothing"):
        TEXT.accept(text, some())


def test_when_the_budget_is_over_there_is_no_answer_and_what_was_selected_is_named() -> None:
    nothing = json.loads(TEXT.overrun(some()).told)
    something = json.loads(TEXT.overrun(some("a", "b")).told)

    assert nothing == {"answer": "", "unfinished": "its budget was over before it answered"}
    assert something == nothing | {"selected": ["About a", "About b"]}
