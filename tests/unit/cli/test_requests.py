"""Requests as ``torpor inspect`` shows them."""

import json
import random
from itertools import pairwise

import click
import pytest

from tests.support.histories import Teller, told
from torpor.cli.requests import Which, show_difference, show_origins, show_prefixes, show_request
from torpor.operations.requests import chosen, rebuilt

LAST = Which(name="first")


@pytest.fixture(scope="module")
def teller() -> Teller:
    """One long history."""
    return told(random.Random(0).randbytes(600))


Shown = pytest.CaptureFixture[str]


def test_a_request_is_one_line_of_what_was_hashed(teller: Teller, capfd: Shown) -> None:
    show_request(lambda: teller.journal, LAST)

    *_, last = rebuilt(teller.journal)
    assert capfd.readouterr().out.encode() == last.body() + b"\n"


def test_a_difference_names_both_requests(teller: Teller, capfd: Shown) -> None:
    changed = next(after for before, after in pairwise(rebuilt(teller.journal)) if before.body() != after.body())
    found = chosen(teller.journal, call=changed.call)
    assert found is not None
    assert found.previous is not None

    show_difference(lambda: teller.journal, Which(name="first", call=changed.call), as_json=False)

    before, after, *lines = capfd.readouterr().out.splitlines()
    assert before == f"--- turn {found.previous.turn}, call {found.previous.call}, record {found.previous.seq}"
    assert after == f"+++ turn {found.request.turn}, call {found.request.call}, record {found.request.seq}"
    assert lines[0].startswith("@@ ")


def test_a_first_request_differs_from_nothing(teller: Teller, capfd: Shown) -> None:
    first = Which(name="first", call=next(rebuilt(teller.journal)).call)

    show_difference(lambda: teller.journal, first, as_json=False)
    words = capfd.readouterr().out
    show_difference(lambda: teller.journal, first, as_json=True)

    assert words.startswith("--- nothing\n+++ turn ")
    assert json.loads(capfd.readouterr().out)["before"] is None


def test_origins_are_a_table_below_what_the_request_was_estimated_to_cost(teller: Teller, capfd: Shown) -> None:
    show_origins(lambda: teller.journal, LAST, as_json=False)

    named, estimated, head, *rows = capfd.readouterr().out.splitlines()
    assert named.startswith("turn ")
    assert estimated.startswith("estimated tokens: ")
    assert head.split() == ["PART", "NAME", "WHY", "TURN", "RECORD"]
    assert rows[0].split() == ["agent", teller.state.agent, "1"]


def test_prefixes_are_a_table_of_the_turn_and_a_line_of_the_whole(teller: Teller, capfd: Shown) -> None:
    turn = next(rebuilt(teller.journal)).turn
    show_prefixes(lambda: teller.journal, turn=turn, as_json=False)
    head, *rows, summary = capfd.readouterr().out.splitlines()
    show_prefixes(lambda: teller.journal, turn=0, as_json=True)
    *each, facts = map(json.loads, capfd.readouterr().out.splitlines())

    assert head.split()[:3] == ["TURN", "CALL", "RECORD"]
    assert {row.split()[0] for row in rows} == {str(turn)}
    assert "100.0% within turns" in summary
    assert len(each) == len(teller.requests)
    assert facts["requests"] == len(each) - 1


def test_a_request_that_is_not_there_is_told_with_where_it_was_looked_for(teller: Teller) -> None:
    with pytest.raises(click.ClickException, match=r"^turn 9999 of 'first' has no request yet, expected one; `torpor"):
        show_request(lambda: teller.journal, Which(name="first", turn=9999))
    with pytest.raises(click.ClickException, match=r"^'first' has no request '1-9-9', expected one"):
        show_request(lambda: teller.journal, Which(name="first", call="1-9-9"))


def test_a_journal_that_changes_while_it_is_read_is_told(teller: Teller) -> None:
    journals = iter([teller.journal, []])

    with pytest.raises(click.ClickException, match="changed while it was read"):
        show_origins(lambda: next(journals), LAST, as_json=True)


def test_a_conversation_without_requests_has_no_medians(capfd: Shown) -> None:
    show_prefixes(list, turn=0, as_json=False)

    assert (
        capfd.readouterr().out.splitlines()[-1].startswith("median of what the request before had sent: - within turns")
    )
