"""The work of one turn, the same for the floor and for the engine.

A user message of 120 characters, a model that asks for two tools, two results of 85 characters, a final text of 900:
about 1.5 KB of payload. The model is instant, and so are the tools; what is left is the runtime's own.
"""

from typing import Any, Final, NamedTuple

import anyio
import msgspec

from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.blocks import Block, text_block
from torpor.records.terms import Effect, Outcome, Usage
from torpor.toolhost.contract import ToolContext, ToolResult, ToolSpec

_PROSE: Final = "The appointment on Thursday was moved to nine, the lab has the sample, and the letter is on its way. "


def prose(size: int) -> str:
    """``size`` characters of plain text."""
    return (_PROSE * (size // len(_PROSE) + 1))[:size]


class Shape(NamedTuple):
    """How much of everything a turn has, in characters."""

    user_chars: int = 120
    tools: int = 2
    result_chars: int = 85
    reply_chars: int = 900


def message(name: str, number: int, shape: Shape) -> str:
    """What the user says: never the same twice, so that nothing shares memory by chance."""
    return f"{name} {number} {prose(shape.user_chars)}"[: shape.user_chars]


TURN: Final = Shape()
SMALL_TURN: Final = Shape(tools=0, reply_chars=430)
"""Twenty of them are the 11 KB of text that memory is measured with."""

TOOL_NAMES: Final = ("look_up_patient", "look_up_schedule")
SYSTEM_PROMPT: Final = "You answer for a clinic. " + prose(375)
_USAGE: Final = Usage(input_tokens=900, output_tokens=250)


class Answer(NamedTuple):
    """What the instant model says in one call."""

    blocks: tuple[Block, ...]
    text: str
    stop_reason: str


class Script:
    """Says the same in every turn, but under call ids of its own."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._text = prose(shape.reply_chars)
        self._final = Answer((text_block(self._text),), self._text, "end_turn")

    def answer(self, *, turn: int, round_: int) -> Answer:
        """The first round asks for the tools, if there are any; the next one ends the turn."""
        if round_ > 1 or not self._shape.tools:
            return self._final
        return Answer(tuple(self._call(turn, index) for index in range(self._shape.tools)), "", "tool_use")

    def _call(self, turn: int, index: int) -> Block:
        name = TOOL_NAMES[index % len(TOOL_NAMES)]
        return msgspec.Raw(
            b'{"id":"toolu_%06d_%02d","input":{"name":"Ada Lovelace","year":1843},"name":"%b","type":"tool_use"}'
            % (turn, index, name.encode())
        )


class InstantModel:
    """Implements ``model.contract.Model``: answers from a script, after ``latency_s`` of doing nothing."""

    def __init__(self, shape: Shape = TURN, *, latency_s: float = 0.0) -> None:
        self._script = Script(shape)
        self._latency_s = latency_s

    def request_fields(self) -> dict[str, Any]:
        return {}

    async def warm(self) -> None: ...

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        turn, round_, _ = request.call.split("-")
        await anyio.sleep(self._latency_s)
        answer = self._script.answer(turn=int(turn), round_=int(round_))
        if answer.text:
            sink.text(answer.text)
        for block in answer.blocks:
            sink.block(block)
        return ModelReply(blocks=answer.blocks, stop_reason=answer.stop_reason, usage=_USAGE)


class InstantTools:
    """Implements ``toolhost.contract.Toolbox``: two reads that know their answer."""

    def __init__(self, shape: Shape = TURN) -> None:
        self._result = ToolResult(outcome=Outcome.SUCCEEDED, text=prose(shape.result_chars))
        self._specs = {
            name: ToolSpec(
                name=name,
                description="Look something up. " + prose(80),
                input_schema={"type": "object", "properties": {"name": {"type": "string"}}},
                effect=Effect.READ,
                deadline_s=30.0,
            )
            for name in TOOL_NAMES
        }

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(self._specs.values())

    def spec(self, name: str) -> ToolSpec | None:
        return self._specs.get(name)

    async def call(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult:
        await anyio.lowlevel.checkpoint()
        return self._result

    async def probe(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult | None:
        return None
