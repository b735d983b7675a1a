"""A quotation shows what is folded by the time the model is asked, also where its own turn folds it."""

import json
from typing import Any

import anyio
import msgspec
import pytest

from tests.support import rebuild
from tests.support.doubles import Gate, PlayedModel, calls, fails, reads, says, use
from tests.support.engine import DEADLINE_S, Engine, receipt_of, running_engine
from tests.unit.turn.test_lookback import LONG, SMALL, fill, look_back, quotations, uncounted
from torpor.conversation.budget import Profile
from torpor.operations.verify import Verification
from torpor.provider_errors import ProviderUnavailable
from torpor.records.journal import (
    CompactionFailed,
    ContextReplaced,
    JournalRecord,
    ModelRequested,
    TurnFailed,
    TurnPrepared,
)
from torpor.records.terms import FoldReason, WhenBusy
from torpor.turn import opening
from torpor.turn.foresight import Foreseen, foreseen

SIX = Profile(budget_tokens=60_000, exchanges_max=6)
"""The seventh turn folds all but the last two before it."""
TIGHT = Profile(budget_tokens=6_000, headroom_tokens=1_200)
"""What is over the line for folding does not fit either."""


async def talk(engine: Engine, turns: int, *, long: str = LONG) -> None:
    for number in range(turns):
        await engine.ask(f"message <{number + 1}> {long}")


async def assert_rebuilt(engine: Engine) -> None:
    """Every request comes out of the journal as it was sent, by us and by somebody who shares nothing with us."""
    records, verification = await engine.records(), Verification()
    for record in records:
        verification.record(msgspec.json.encode(record))
    told = [rebuild.canonical(request) for request in engine.model.requests]
    assert [request.body for request in rebuild.rebuilt(json.loads(msgspec.json.encode(records)))] == told
    assert verification.requests == len(told)


def user_texts(request: dict[str, Any]) -> list[str]:
    messages = (message for message in request["messages"] if message["role"] == "user")
    return [block["text"] for message in messages for block in message["content"] if block["type"] == "text"]


async def test_turns_that_the_same_turn_folds_are_quoted() -> None:
    async with running_engine(profile=SIX) as engine:
        await talk(engine, 6)
        engine.model.plays.extend((uncounted(calls(use("look", "a"))), says("There.")))
        prepared = await look_back(engine, 3)
        (folded,) = await engine.records_of(ContextReplaced)
        first, second = engine.model.requests[-2:]
        await engine.ask("thanks")
        await assert_rebuilt(engine)
    assert (folded.turn, folded.turns) == (prepared.turn, (1, 4))
    assert prepared.lookback == (2, 3, 4)
    (text,) = quotations(first)
    assert quotations(second) == [text]
    assert quotations(engine.model.requests[-1]) == []
    said = [number for number in range(1, 8) if any(f"message <{number}>" in told for told in user_texts(first))]
    assert said[-2:] == [5, 6]
    assert all(f"message &lt;{number}&gt; {LONG}" in text for number in prepared.lookback)


async def test_a_second_fold_moves_the_quotation_on_too() -> None:
    async with running_engine(profile=SIX) as engine:
        await talk(engine, 10)
        assert len(await engine.records_of(ContextReplaced)) == 1
        prepared = await look_back(engine, 2)
        *_, folded = await engine.records_of(ContextReplaced)
    assert (folded.turn, folded.turns[1]) == (11, 8)
    assert prepared.lookback == (7, 8)


async def test_a_summariser_is_not_asked_for_the_sake_of_a_quotation() -> None:
    summariser = PlayedModel([says('{"facts": ["they counted"]}')])
    async with running_engine(profile=SIX, summariser=summariser) as engine:
        await talk(engine, 6)
        prepared = await look_back(engine, 3)
        (folded,) = await engine.records_of(ContextReplaced)
        await assert_rebuilt(engine)
    assert len(summariser.requests) == 1
    assert folded.reason is FoldReason.SUMMARY
    assert prepared.lookback == (2, 3, 4)


async def test_turns_are_quoted_beside_themselves_when_their_fold_fails() -> None:
    summariser = PlayedModel([fails(ProviderUnavailable("down"))] * 9)
    async with running_engine(profile=SIX, summariser=summariser) as engine:
        await talk(engine, 6)
        prepared = await look_back(engine, 3)
        assert await engine.records_of(CompactionFailed)
        assert not await engine.records_of(ContextReplaced)
        assert not await engine.records_of(TurnFailed)
        await assert_rebuilt(engine)
    assert prepared.lookback == (2, 3, 4)


async def test_what_is_quoted_takes_the_room_that_the_fold_leaves() -> None:
    async with running_engine(profile=SMALL) as engine:
        await talk(engine, 7)
        assert not await engine.records_of(ContextReplaced)
        prepared = await look_back(engine, 50, text=LONG)
        (folded,) = await engine.records_of(ContextReplaced)
        (request,) = (await engine.records_of(ModelRequested))[-1:]
        (text,) = quotations(engine.model.requests[-1])
    assert prepared.lookback == tuple(range(folded.turns[1] - len(prepared.lookback) + 1, folded.turns[1] + 1))
    assert f'earlier_left_out="{folded.turns[1] - len(prepared.lookback)}"' in text
    assert request.estimated_tokens <= 0.8 * SMALL.budget_tokens < request.estimated_tokens + 700  # another exchange


async def test_a_long_summary_beside_a_quotation_still_fits() -> None:
    facts = [f"{number} {'f' * 250}" for number in range(11)]
    items = [{"kind": "denial", "text": f"{number} {'d' * 200}", "turn": 1} for number in range(10)]
    summariser = PlayedModel([says(json.dumps({"facts": facts, "open": items}))])
    async with running_engine(profile=TIGHT, summariser=summariser) as engine:
        await talk(engine, 14, long="x" * 500)
        assert not await engine.records_of(ContextReplaced)
        prepared = await look_back(engine, 50, text="y" * 5_000)
        folds = await engine.records_of(ContextReplaced)
        (request,) = (await engine.records_of(ModelRequested))[-1:]
    assert [folded.reason for folded in folds] == [FoldReason.SUMMARY]
    assert prepared.lookback
    assert request.estimated_tokens <= TIGHT.budget_tokens - TIGHT.headroom_tokens


async def test_what_a_summariser_may_find_to_be_open_is_reckoned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    foretold = list[Foreseen]()

    def noted(*args: Any, **named: Any) -> Foreseen:
        foretold.append(foreseen(*args, **named))
        return foretold[-1]

    items = [{"kind": "denial", "text": f"{number} {'d' * 200}", "turn": 1} for number in range(10)]
    summariser = PlayedModel([says(json.dumps({"open": items}))])
    async with running_engine(profile=TIGHT, summariser=summariser) as engine:
        await talk(engine, 14, long="x" * 500)
        monkeypatch.setattr(opening, "foreseen", noted)
        await look_back(engine, 1, text="y" * 15_000)
        folds = await engine.records_of(ContextReplaced)
        size_bytes = len(rebuild.canonical(engine.model.requests[-1]))
    assert [folded.reason for folded in folds] == [FoldReason.SUMMARY, FoldReason.EVERYTHING]
    assert len(folds[-1].items) == len(items)
    assert foretold
    assert all(size_bytes <= ahead.worst_bytes < size_bytes + 5_000 for ahead in foretold)


async def test_the_last_turns_are_quoted_where_even_they_have_to_go() -> None:
    async with running_engine(profile=SMALL) as engine:
        await talk(engine, 2, long="x" * 4_200)
        prepared = await look_back(engine, 50, text="y" * 6_000)
        (folded,) = await engine.records_of(ContextReplaced)
        await assert_rebuilt(engine)
    assert (folded.reason, folded.turns) == (FoldReason.EVERYTHING, (1, 2))
    assert prepared.lookback == (2,)


async def test_turns_are_quoted_that_several_folds_in_a_row_take_away() -> None:
    async with running_engine(profile=SMALL) as engine:
        await talk(engine, 1, long="w" * 500)
        await talk(engine, 2, long="x" * 4_200)
        prepared = await look_back(engine, 50, text="y" * 6_000)
        folds = await engine.records_of(ContextReplaced)
    assert [(folded.turn, folded.reason) for folded in folds] == [
        (4, FoldReason.MECHANICAL),
        (4, FoldReason.EVERYTHING),
    ]
    assert prepared.lookback == (3,)


async def test_a_turn_that_does_not_fit_at_all_quotes_nothing() -> None:
    async with running_engine(profile=SMALL) as engine:
        await fill(engine)
        prepared = await look_back(engine, 3, text="z" * 40_000)
        (failed,) = await engine.records_of(TurnFailed)
    assert failed.turn == prepared.turn
    assert prepared.lookback == ()


async def test_a_fold_later_in_the_turn_leaves_the_quotation_as_it_is() -> None:
    long = reads("long", answers_at_length)
    async with running_engine(tools=(long,), profile=SMALL) as engine:
        await fill(engine)
        engine.model.plays.extend((uncounted(calls(use("long", "a"))), says("There.")))
        before = len(await engine.records_of(ContextReplaced))
        prepared = await look_back(engine, 1)
        first, second = engine.model.requests[-2:]
        *_, folded = await engine.records_of(ContextReplaced)
        assert len(await engine.records_of(ContextReplaced)) == before + 1
        await assert_rebuilt(engine)
    assert folded.turn == prepared.turn
    assert folded.turns[1] > prepared.lookback[-1]
    assert quotations(first) == quotations(second) != []


async def answers_at_length(*_: Any) -> str:
    return "r" * 9_000


async def test_a_message_that_joins_while_a_quotation_is_read_and_brings_a_fold_has_it_read_anew() -> None:
    async with running_engine(profile=SMALL) as engine:
        await talk(engine, 8)
        (old,) = await engine.records_of(ContextReplaced)
        await talk(engine, 2)
        gate, read = Gate(), engine.store.records_after

        async def slow(*args: Any, **named: Any) -> tuple[JournalRecord, ...]:
            await gate.passed()
            return await read(*args, **named)

        engine.store.records_after = slow  # type: ignore[method-assign]  # the port, while it is in use
        await receipt_of(engine.post("and before that?", lookback=1))
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        await receipt_of(engine.post("z" * 6_000, when_busy=WhenBusy.STEER))
        gate.opened.set()
        await engine.rested()
        _, new = await engine.records_of(ContextReplaced)
        prepared = (await engine.records_of(TurnPrepared))[-1]
    assert (new.turn, new.turns[1] > old.turns[1]) == (prepared.turn, True)
    assert prepared.lookback == (new.turns[1],)
