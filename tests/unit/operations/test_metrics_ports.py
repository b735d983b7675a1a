"""What models and tools come to, counted around them."""

import anyio
import msgspec
import pytest

from tests.support.doubles import (
    FakeToolbox,
    Gate,
    Ledger,
    ManualClock,
    PlayedModel,
    fails,
    reads,
    says,
    waits,
)
from tests.support.models import Heard, a_request, user
from tests.support.scrape import Numbers
from torpor.conversation.view import View
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.operations.metrics import Metrics
from torpor.operations.metrics_ports import CountedModel, CountedToolbox, ModelNumbers, ToolNumbers
from torpor.provider_errors import RateLimited
from torpor.records.blocks import text_block
from torpor.records.ids import CallId, ConversationKey
from torpor.records.terms import Usage
from torpor.toolhost.contract import ToolContext

ASKED = a_request(user(View(), "Hello?"))
KEY = ConversationKey("acme", "ann", "c_1")
CONTEXT = ToolContext(
    key=KEY, principal="ann", turn=1, call_id=CallId("a"), idempotency_key="k", report=lambda _text: None
)


class Desk:
    def __init__(self, model: PlayedModel | None = None) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.played = model or PlayedModel()
        self.model = CountedModel(self.played, ModelNumbers(self.metrics, clock=self.clock))

    async def numbers(self) -> Numbers:
        return Numbers((await self.metrics.page()).body.decode())


async def test_reply_is_counted_with_its_time_and_its_tokens() -> None:
    desk, heard = Desk(), Heard()

    async def play(request: ModelRequest, sink: ReplySink) -> ModelReply:
        desk.clock.advance(2.0)
        sink.text("Hel")
        desk.clock.advance(3.0)
        sink.text("lo")
        sink.block(text_block("Hello"))
        usage = Usage(input_tokens=10, cache_read_input_tokens=20, cache_creation_input_tokens=30, output_tokens=4)
        return ModelReply(blocks=(text_block("Hello"),), stop_reason="end_turn", usage=usage)

    desk.played.plays.append(play)
    reply = await desk.model.reply(ASKED, heard)
    told = await desk.numbers()

    assert (reply.stop_reason, heard.pieces, len(heard.blocks)) == ("end_turn", ["Hel", "lo"], 1)
    assert told.by("torpor_model_calls_total", "model", "outcome") == {("scripted", "replied"): 1}
    assert told.value("torpor_model_seconds_sum", model="scripted") == 5
    assert told.value("torpor_model_first_delta_seconds_sum", model="scripted") == 2
    assert told.value("torpor_model_first_delta_seconds_count", model="scripted") == 1
    assert told.by("torpor_model_tokens_total", "kind") == {
        ("input",): 10,
        ("cache_read",): 20,
        ("cache_write",): 30,
        ("output",): 4,
    }


async def test_model_that_is_asked_instead_of_the_preambles_is_named() -> None:
    desk = Desk(PlayedModel([says("Hello")]))
    await desk.model.reply(msgspec.structs.replace(ASKED, model="second"), Heard())

    assert (await desk.numbers()).value("torpor_model_calls_total", model="second", outcome="replied") == 1


async def test_fault_of_a_host_is_counted_by_its_code() -> None:
    desk = Desk(PlayedModel([fails(RateLimited("slow down", retry_after_s=1.0))]))
    with pytest.raises(RateLimited):
        await desk.model.reply(ASKED, Heard())

    assert (await desk.numbers()).by("torpor_model_calls_total", "outcome") == {(RateLimited.code,): 1}


async def test_call_that_was_cut_short_is_told_from_one_that_took_too_long() -> None:
    gate = Gate()
    desk = Desk(PlayedModel([waits(gate, says("never")), waits(gate, says("never"))]))
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.model.reply, ASKED, Heard())
            await gate.reached.wait()
            scope.cancel()
    with anyio.move_on_after(0.01):
        await desk.model.reply(ASKED, Heard())

    assert (await desk.numbers()).by("torpor_model_calls_total", "outcome") == {
        ("cancelled",): 1,
        ("model_timed_out",): 1,
    }


async def test_model_is_handed_on_otherwise() -> None:
    desk = Desk()
    await desk.model.warm()

    assert desk.model.request_fields() == {}


async def test_run_of_a_tool_is_timed_under_its_name_or_none() -> None:
    metrics, clock = Metrics(), ManualClock()

    async def slow(_arguments: object, _context: ToolContext) -> str:
        clock.advance(1.5)
        return "found"

    toolbox = CountedToolbox(FakeToolbox([reads("look", slow)], ledger=Ledger()), ToolNumbers(metrics, clock=clock))
    result = await toolbox.call("look", msgspec.Raw(b"{}"), CONTEXT)
    told = Numbers((await metrics.page()).body.decode())

    assert result.text == "found"
    assert told.value("torpor_tool_seconds_sum", tool="look") == 1.5
    assert [spec.name for spec in toolbox.specs()] == ["look"]
    assert toolbox.spec("nothing") is None
    assert await toolbox.probe("look", msgspec.Raw(b"{}"), CONTEXT) is None
