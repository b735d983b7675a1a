"""Requests from the journal alone."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import rebuild
from tests.support.histories import Teller, told
from torpor.operations.requests import chosen, rebuilt
from torpor.records.journal import JournalRecord


def as_json(records: list[JournalRecord]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(records))
    return found


def without_model(body: bytes) -> dict[str, Any]:
    request: dict[str, Any] = msgspec.json.decode(body)
    return {name: value for name, value in request.items() if name != "model"}


@pytest.fixture(scope="module")
def teller() -> Teller:
    """One long history."""
    return told(random.Random(7).randbytes(400))


@given(st.binary(min_size=1, max_size=250).map(told))
def test_every_request_is_rebuilt_as_it_was_made(teller: Teller) -> None:
    found = list(rebuilt(teller.journal))

    assert [request.seq for request in found] == [request.seq for request in teller.requests]
    for request, made in zip(found, teller.requests, strict=True):
        assert without_model(request.body()) == {name: value for name, value in made.body.items() if name != "model"}


@given(st.binary(min_size=1, max_size=250).map(told))
def test_somebody_who_shares_nothing_with_the_engine_rebuilds_the_same_bytes(teller: Teller) -> None:
    for ours, theirs in zip(rebuilt(teller.journal), rebuild.rebuilt(as_json(teller.journal)), strict=True):
        assert (ours.seq, ours.turn, ours.call, ours.body()) == (theirs.seq, theirs.turn, theirs.call, theirs.body)
        assert (ours.record.link, ours.record.preamble) == (theirs.link, theirs.preamble)


def test_equal_bodies_have_equal_digests_and_others_do_not(teller: Teller) -> None:
    digests = {request.body(): request.digest() for request in rebuilt(teller.journal)}

    assert len(set(digests.values())) == len(digests) > 5


def test_the_last_request_is_chosen_with_the_one_before_it(teller: Teller) -> None:
    *_, before, last = rebuilt(teller.journal)

    found = chosen(teller.journal)

    assert found is not None
    assert found.previous is not None
    assert (found.previous.seq, found.request.seq) == (before.seq, last.seq)


def test_the_last_request_of_a_turn_is_chosen_unless_a_call_is_named(teller: Teller) -> None:
    requests = list(rebuilt(teller.journal))
    turn = next(request.turn for request in requests if request.call.endswith("-2-1"))
    of_turn = [request for request in requests if request.turn == turn]

    last, named = chosen(teller.journal, turn=turn), chosen(teller.journal, call=of_turn[0].call)

    assert last is not None
    assert last.request.seq == of_turn[-1].seq
    assert named is not None
    assert named.request.seq == of_turn[0].seq


def test_the_first_request_has_none_before_it(teller: Teller) -> None:
    found = chosen(teller.journal, call=next(rebuilt(teller.journal)).call)

    assert found is not None
    assert found.previous is None


def test_there_is_none_of_a_turn_that_never_was(teller: Teller) -> None:
    assert chosen(teller.journal, turn=9999) is None
    assert chosen([]) is None


def test_a_request_shows_which_it_is(teller: Teller) -> None:
    request = next(rebuilt(teller.journal))

    assert repr(request) == f"<RebuiltRequest {request.call} of turn {request.turn} at record {request.seq}>"
