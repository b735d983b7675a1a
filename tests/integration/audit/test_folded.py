"""Requests of a conversation whose older turns were folded, some of them with results shortened."""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.support import rebuild
from tests.support.doubles import PlayedModel, calls, fails, reads, says, use
from tests.support.engine import Engine, running_engine
from torpor.conversation.budget import Profile
from torpor.operations.origins import origins
from torpor.operations.prefix import prefixes
from torpor.operations.requests import rebuilt
from torpor.operations.verify import Verification
from torpor.provider_errors import ProviderUnavailable
from torpor.records.journal import ContextReplaced, JournalRecord
from torpor.records.terms import FoldReason
from torpor.store.codec import StoredBatch, encode_records

LONG = "x" * 1_200
SMALL = Profile(budget_tokens=6_000, headroom_tokens=500)
"""Enough for about eight turns of ``LONG``."""
SUMMARY = json.dumps({"facts": ["the user counts"], "open": [{"kind": "correction", "text": "on Friday", "turn": 1}]})


async def long_answer(arguments: dict[str, Any], context: object) -> str:
    return "a very long result " * 700


async def talk(engine: Engine) -> tuple[JournalRecord, ...]:
    for number in range(14):
        await engine.ask(f"{number} {LONG}")
    return await engine.records()


@pytest.fixture(params=["summary", "mechanical", "shortened"])
async def journal(request: pytest.FixtureRequest) -> AsyncIterator[tuple[JournalRecord, ...]]:
    """A conversation that was folded in this way, at least once."""
    summariser = PlayedModel(
        [says(SUMMARY)] * 9 if request.param == "summary" else [fails(ProviderUnavailable("no"))] * 99
    )
    if request.param == "shortened":
        plays = [calls(*(use("look_long", name) for name in "abcd")), says("seen")]
        async with running_engine(*plays, profile=SMALL, tools=[reads("look_long", long_answer)]) as engine:
            await engine.ask("look at all four")
            yield await talk(engine)
        return
    async with running_engine(profile=SMALL, summariser=summariser) as engine:
        yield await talk(engine)


def folds(journal: tuple[JournalRecord, ...]) -> list[ContextReplaced]:
    return [record for record in journal if isinstance(record, ContextReplaced)]


async def test_each_request_is_rebuilt_alike_by_the_engine_and_by_somebody_who_shares_nothing_with_it(
    journal: tuple[JournalRecord, ...], request: pytest.FixtureRequest
) -> None:
    theirs = list(rebuild.rebuilt(json.loads(msgspec.json.encode(journal))))

    assert request.node.callspec.params["journal"] in {FoldReason(record.reason).value for record in folds(journal)}
    assert [ours.body() for ours in rebuilt(journal)] == [request.body for request in theirs]
    assert [ours.record.link for ours in rebuilt(journal)] == [request.link for request in theirs]


async def test_a_folded_journal_verifies(journal: tuple[JournalRecord, ...]) -> None:
    verification = Verification()
    events = max(record.event for record in journal)

    verification.row(StoredBatch(1, len(journal), events, encode_records(journal)))

    assert verification.requests == len(list(rebuilt(journal)))


async def test_a_fold_is_the_cause_of_the_break_behind_it_and_of_no_other(journal: tuple[JournalRecord, ...]) -> None:
    folded = [record.seq for record in folds(journal)]
    found = list(prefixes(journal))

    for before, each in pairwise(found):
        is_behind_fold = any(before.seq < seq < each.seq for seq in folded)
        assert each.cause in ({"", "compaction"} if is_behind_fold else {""})
    assert "compaction" in {each.cause for each in found}


async def test_the_summary_of_a_request_is_told_with_the_record_that_made_it(
    journal: tuple[JournalRecord, ...],
) -> None:
    for request in rebuilt(journal):
        found = origins(journal, seq=request.seq)
        assert found is not None
        told = [part for part in found.parts if part.part == "summary"]
        earlier = [record for record in folds(journal) if record.seq < request.seq]
        made = [record for record in earlier if record.reason is not FoldReason.SHORTENED]
        assert [part.seq for part in told] == [record.seq for record in made[-1:]]
        if made:
            assert told[0].name == f"generation {made[-1].generation}"
