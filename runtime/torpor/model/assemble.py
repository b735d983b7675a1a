"""A reply out of the events of its stream: pure, and strict where the SDK's own helper is lenient.

Text is handed on when its reader says so, after each read, so that what came together is shown together; a block is
handed on when it is complete. Tool input is collected from its raw
fragments and parsed once, strictly, at the end of its block: fragments may split escapes and characters, and half an
input must never look like a whole one. Thinking blocks are kept as they came, signature and all.
"""

from typing import Any, Final

import msgspec

from torpor.conversation.text import clean
from torpor.errors import StreamLost
from torpor.model.contract import ModelReply, ReplySink
from torpor.records.blocks import Block, canonical, head_of
from torpor.records.journal import Usage

_KEPT: Final = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
"""Blocks that a later request may repeat; what a server-side tool leaves is told by its suffix."""


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


class _Message(msgspec.Struct, frozen=True):
    model: str = ""
    usage: _Usage = _Usage()


class _Delta(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    citation: Any = None
    stop_reason: str | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    index: int = -1
    message: _Message = _Message()
    content_block: dict[str, Any] = {}
    delta: _Delta = _Delta()
    usage: _Usage = _Usage()


class _OpenBlock:
    """A block whose end has not come."""

    __slots__ = ("fields", "json", "pieces", "signature")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.pieces: list[str] = []
        self.json: list[str] = []
        self.signature = ""

    @property
    def type(self) -> str:
        return str(self.fields.get("type"))

    def text(self, field: str) -> str:
        """What the block began with; some hosts leave it out or say null."""
        return str(self.fields.get(field) or "")


_EVENT: Final = msgspec.json.Decoder(_Event)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


class Assembler:
    """Takes the data of each event in order; ``hand_on`` after each read, ``reply`` once the stream has ended."""

    def __init__(self, sink: ReplySink) -> None:
        self._sink = sink
        self._open: dict[int, _OpenBlock] = {}
        self._blocks: list[Block] = []
        self._unsaid: list[str] = []
        self._unusable: dict[str, str] = {}
        self._dropped: list[str] = []
        self._usage = Usage()
        self._model = ""
        self._stop_reason: str | None = None
        self._is_over = False

    def take(self, data: bytes) -> bool:
        """One event; whether it is progress, which a ping is not.

        Raises: StreamLost: it is not JSON, or its block is not where the events before it left it.
        """
        try:
            event = _EVENT.decode(data)
        except msgspec.DecodeError as exc:
            raise StreamLost(f"an event of the stream cannot be read: {exc}") from exc
        match event.type:
            case "message_start":
                self._model = event.message.model
                self._count(event.message.usage)
            case "content_block_start":
                self._begin(event)
            case "content_block_delta":
                self._continue(event)
            case "content_block_stop":
                self._end(event)
            case "message_delta":
                self._stop_reason = event.delta.stop_reason or self._stop_reason
                self._count(event.usage)
            case "message_stop":
                self._is_over = True
            case _:  # new kinds of events may appear at any time and are to be ignored
                return event.type != "ping"
        return True

    def hand_on(self) -> None:
        """Say what came since the last time; nothing of it is lost if no more comes."""
        if self._unsaid:
            self._sink.text("".join(self._unsaid))
            self._unsaid.clear()

    @property
    def is_over(self) -> bool:
        """Whether the message has ended, so that nothing more is expected."""
        return self._is_over

    def reply(self, *, request_id: str) -> ModelReply:
        """The whole reply. Raises: StreamLost: the stream ended before the message did."""
        if not self._is_over or self._stop_reason is None or self._open:
            raise StreamLost("the stream ended before the reply did")
        return ModelReply(
            blocks=tuple(self._blocks),
            stop_reason=self._stop_reason,
            usage=self._usage,
            model=self._model,
            request_id=request_id,
            unusable=self._unusable,
            dropped=tuple(self._dropped),
        )

    def _begin(self, event: _Event) -> None:
        if event.index in self._open:
            raise StreamLost(f"the stream begins block {event.index} again")
        block = self._open[event.index] = _OpenBlock(event.content_block)
        if block.type == "text":
            self._say(block, block.text("text"))

    def _continue(self, event: _Event) -> None:
        block = self._opened(event)
        delta = event.delta
        match delta.type:
            case "text_delta":
                self._say(block, delta.text)
            case "thinking_delta":
                block.pieces.append(delta.thinking)
            case "signature_delta":
                block.signature = delta.signature
            case "input_json_delta":
                block.json.append(delta.partial_json)
            case "citations_delta":
                block.fields["citations"] = [*(block.fields.get("citations") or []), delta.citation]
            case _:  # likewise
                return

    def _say(self, block: _OpenBlock, text: str) -> None:
        block.pieces.append(text)
        if text:
            self._unsaid.append(text)

    def _end(self, event: _Event) -> None:
        block = self._opened(event)
        self.hand_on()
        del self._open[event.index]
        if block.type not in _KEPT and not block.type.endswith(("_tool_use", "_tool_result")):
            self._dropped.append(block.type)
            return
        encoded = canonical(self._whole(block))
        try:
            head_of(encoded)
        except msgspec.DecodeError as exc:
            raise StreamLost(f"a {block.type} block of the stream cannot be used: {exc}") from exc
        self._blocks.append(encoded)
        self._sink.block(encoded)

    def _whole(self, block: _OpenBlock) -> dict[str, Any]:
        fields = dict(block.fields)
        if block.type == "text":
            fields["text"] = clean("".join(block.pieces)).text  # as those who watch were shown it
            if not fields.get("citations"):
                fields.pop("citations", None)
        elif block.type == "thinking":
            fields["thinking"] = block.text("thinking") + "".join(block.pieces)
            fields["signature"] = block.signature or block.text("signature")
        elif block.json and (text := "".join(block.json)).strip():
            fields["input"] = self._input(str(fields.get("id")), str(fields.get("name")), text)
        return fields

    def _input(self, call_id: str, name: str, text: str) -> dict[str, Any]:
        """The arguments; a call whose arguments are not an object is kept with none, and never run."""
        try:
            return _OBJECT.decode(text)
        except (msgspec.DecodeError, RecursionError) as exc:
            self._unusable[call_id] = f"arguments of {name} are not a JSON object ({exc}); nothing was done"
            return {}

    def _opened(self, event: _Event) -> _OpenBlock:
        block = self._open.get(event.index)
        if block is None:
            raise StreamLost(f"the stream continues block {event.index}, which is not open")
        return block

    def _count(self, usage: _Usage) -> None:
        """Counts are cumulative; what an event leaves out stays as it was."""
        told = {field: count for field in usage.__struct_fields__ if (count := getattr(usage, field)) is not None}
        self._usage = msgspec.structs.replace(self._usage, **told)
