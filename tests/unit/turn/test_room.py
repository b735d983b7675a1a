"""A turn does not end for want of room that there is."""

import msgspec

from tests.support.compacting import SMALL, counted
from tests.support.doubles import says
from tests.support.engine import running_engine
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.journal import ModelRequested, TurnFailed, TurnRefused, Usage


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
