"""Findings keep their order, each is there once, and only what was found can be selected."""

from typing import Any

import pytest

from tests.unit.subagents.finding import a_finding
from torpor.errors import ToolFailed
from torpor.subagents.findings import ID_CHARS_MAX, Findings, fitted
from torpor.toolhost.contract import Finding


def some(*ids: str, findings_max: int = 9, selected_max: int = 9) -> Findings:
    findings = Findings(findings_max=findings_max, selected_max=selected_max)
    for id_ in ids:
        findings.add(a_finding(id_))
    return findings


def test_findings_stand_in_the_order_in_which_they_were_found_first() -> None:
    findings = some("b", "a", "b", "c")

    assert [finding.id for finding in findings.found] == ["b", "a", "c"]
    assert findings.duplicates == 1


def test_a_duplicate_brings_only_what_was_lacking() -> None:
    findings = Findings(findings_max=2, selected_max=2)
    findings.add(a_finding("a", excerpt="first", kind=""))
    findings.add(a_finding("a", excerpt="second", kind="trial", year=2020))

    assert findings.found == (a_finding("a", excerpt="first", kind="trial", year=2020),)
    assert findings.get("a") == findings.found[0]
    assert findings.get("b") is None


def test_what_has_no_room_is_counted_and_what_is_there_is_still_merged() -> None:
    findings = some("a", "b", "c", "a", "d", findings_max=2)

    assert [finding.id for finding in findings.found] == ["a", "b"]
    assert (findings.left_out, findings.duplicates) == (2, 1)
    assert findings.select(["c"]).unknown == ("c",)
    assert repr(findings) == "<Findings found=2 selected=0 duplicates=1 left_out=2>"


def test_the_selection_grows_in_its_own_order() -> None:
    findings = some("a", "b", "c")

    findings.select(["c", "c"])
    selection = findings.select(["a", "c", "x", "x"])

    assert (selection.counted, selection.beyond, selection.unknown) == (("c", "a"), (), ("x",))
    assert [finding.id for finding in findings.selected] == ["c", "a"]


def test_only_so_many_count_and_the_rest_is_named() -> None:
    findings = some("a", "b", "c", "d", selected_max=2)

    selection = findings.select(["d", "c", "b", "d", "a", "b"])

    assert (selection.counted, selection.beyond, selection.unknown) == (("d", "c"), ("b", "a"), ())


def test_a_finding_can_be_stored_and_sent() -> None:
    fit = fitted(a_finding("a", title="half \ud800\n of\0", excerpt="é" * 5_000, kind="k" * 100))

    assert fit.title == "half \N{REPLACEMENT CHARACTER} of\N{SYMBOL FOR NULL}"
    assert (len(fit.excerpt.encode()), fit.kind) == (1_024, "k" * 64)
    assert fitted(fit) == fit


@pytest.mark.parametrize(
    "id_",
    [
        "",
        "a b\n",
        "\ud800",
        "x" * (ID_CHARS_MAX + 1),
        " a",
        "\N{ZERO WIDTH SPACE}",
        "\N{RIGHT-TO-LEFT OVERRIDE}",
        "\N{RIGHT-TO-LEFT OVERRIDE}abc",
        "a\N{ZERO WIDTH SPACE}b",
    ],
)
def test_an_id_that_nobody_could_write_is_refused(id_: str) -> None:
    with pytest.raises(ToolFailed, match=r"a finding has the id .*, expected 1 to 64 plain characters"):
        fitted(a_finding(id_))


@pytest.mark.parametrize("id_", ["ev-1", "a b", "é", "e\N{COMBINING ACUTE ACCENT}", "字" * 64])
def test_an_id_that_can_be_seen_is_taken(id_: str) -> None:
    assert fitted(a_finding(id_)).id == id_


@pytest.mark.parametrize(
    "fields",
    [{"year": 10**30}, {"year": float("nan")}, {"year": b"2020"}, {"title": None}, {"id": ["x"]}, {"kind": 7}],
)
def test_a_finding_of_other_values_is_refused(fields: dict[str, Any]) -> None:
    finding = Finding(**{"id": "a", "title": "t", "locator": "l", "excerpt": "e", **fields})
    with pytest.raises(ToolFailed, match=r"^a finding is "):
        fitted(finding)
