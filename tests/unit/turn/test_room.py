"""A turn does not end for want of room that there is, and what takes the room is told."""

from typing import Any

import msgspec

from tests.support.compacting import LONG, SMALL, counted, fill_until_folded, head, summary
from tests.support.doubles import PlayedModel, reads, says
from tests.support.engine import Engine, receipt_of, running_engine
from torpor.conversation.earlier import READ_EARLIER
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.journal import ContextReplaced, ModelRequested, PreambleChanged, TurnFailed, TurnRefused
from torpor.records.terms import FoldReason, Usage, WhenBusy


async def refuses_at_length(request: ModelRequest, sink: ReplySink) -> ModelReply:
    """Much was thought and said before it, and nothing of it stays."""
    reply = await says("No.")(request, sink)
    usage = Usage(input_tokens=1_000, output_tokens=30_000)
    return msgspec.structs.replace(reply, stop_reason="refusal", usage=usage)


async def test_what_a_refusal_cost_is_not_counted_in_the_turns_that_follow() -> None:
    async with running_engine(refuses_at_length, counted, counted, profile=SMALL) as engine:
        for text in ("one", "two", "three"):
            await engine.ask(text)
        assert await engine.records_of(TurnRefused)
        assert not await engine.records_of(TurnFailed)
        (_, second, _) = await engine.records_of(ModelRequested)
    assert second.estimated_tokens < 2_000


async def test_a_fold_tells_what_the_next_request_has_with_who_joins_it_and_the_tool_it_adds() -> None:
    summariser = PlayedModel([])
    async with running_engine(tools=(reads(READ_EARLIER),), profile=SMALL, summariser=summariser) as engine:

        async def slow(request: ModelRequest, sink: ReplySink) -> ModelReply:
            """A message comes while the summariser thinks."""
            await receipt_of(engine.post(f"and {LONG}", when_busy=WhenBusy.STEER))
            return await says(summary())(request, sink)

        summariser.plays.append(slow)
        await fill_until_folded(engine)
        (folded,) = await engine.records_of(ContextReplaced)
        request = next(each for each in await engine.records_of(ModelRequested) if each.seq > folded.seq)
        (preamble,) = [each for each in await engine.records_of(PreambleChanged) if each.seq > folded.seq]
    assert len(request.joined) == 1
    assert 0 <= folded.after_tokens - request.estimated_tokens < 10
    assert request.preamble == preamble.digest


async def told_at_length(size_bytes: int) -> tuple[Engine, ContextReplaced]:
    """A second turn of so many bytes, for which the first one goes, and a third one."""
    async with running_engine(tools=(reads(READ_EARLIER),), profile=SMALL) as engine:
        await engine.ask(f"one {LONG}")
        await engine.ask("y" * size_bytes)
        await engine.ask("three")
        (folded, *_) = await engine.records_of(ContextReplaced)
        assert not await engine.records_of(TurnFailed)
    assert (folded.turn, folded.reason) == (2, FoldReason.EVERYTHING)
    return engine, folded


async def test_a_tool_that_a_fold_would_add_waits_for_the_next_turn_where_it_has_no_room() -> None:
    about = 20_000
    engine, folded = await told_at_length(about)
    assert [READ_EARLIER in names(request) for request in engine.model.requests] == [False, True, True]
    assert (folded.is_without_tool, READ_EARLIER in head(engine.model.requests[1])) == (False, True)
    size_bytes = about + 4 * (SMALL.budget_tokens - SMALL.headroom_tokens - folded.after_tokens)
    while not folded.is_without_tool:  # until the shortest of summaries leaves less than the tool takes
        size_bytes += 32
        engine, folded = await told_at_length(size_bytes)
    assert [READ_EARLIER in names(request) for request in engine.model.requests] == [False, False, True]
    assert READ_EARLIER not in head(engine.model.requests[1])


def names(request: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in request["tools"]}
