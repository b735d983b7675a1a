"""What tests of models share: requests made of a few words, and a sink that remembers."""

from typing import Any

import anyio.lowlevel

from torpor.conversation.view import View, preamble_of
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.blocks import Block, canonical, text_block, tool_result_block


class Heard:
    """Implements ``model.contract.ReplySink``."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.blocks: list[Block] = []

    def text(self, piece: str) -> None:
        self.pieces.append(piece)

    def block(self, block: Block) -> None:
        self.blocks.append(block)


class Speaking:
    """Implements ``model.contract.Model``: has the same to say to everything."""

    def request_fields(self) -> dict[str, Any]:
        return {}

    async def warm(self) -> None: ...

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        await anyio.lowlevel.checkpoint()
        sink.text("I see.")
        sink.block(text_block("I see."))
        return ModelReply(blocks=(text_block("I see."),), stop_reason="end_turn")


def a_request(view: View, *, call: str = "1-1-1") -> ModelRequest:
    """A request for the reply to ``view``."""
    return ModelRequest(call=call, preamble=preamble_of({"model": "scripted"}), view=view)


def user(view: View, *texts: str) -> View:
    """The user says ``texts``, a block each."""
    return view.extended("user", map(text_block, texts))


def round_of(view: View, *calls: tuple[str, str], said: str = "") -> View:
    """A reply that called these tools, and what they answered: (name, result) each."""
    names = [(f"toolu_{view.blocks}_{at}", *call) for at, call in enumerate(calls)]
    uses = [_tool_use(id_, name) for id_, name, _ in names]
    view = view.extended("assistant", [*([text_block(said)] if said else []), *uses])
    return view.extended("user", [tool_result_block(id_, result, is_error=False) for id_, _, result in names])


def _tool_use(id_: str, name: str) -> Block:
    fields: dict[str, Any] = {"type": "tool_use", "id": id_, "name": name, "input": {}}
    return canonical(fields)
