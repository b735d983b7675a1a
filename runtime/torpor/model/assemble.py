"""A reply out of the events of its stream: pure, and strict where the SDK's own helper is lenient.

Text is handed on when its reader says so, after each read, so that what came together is shown together; a block is
handed on when it is complete and those that began before it are. Tool input is collected from its raw fragments and
parsed once, strictly, at the end of its block: fragments may split escapes and characters, and half an input must never
look like a whole one. Thinking blocks are kept as they came, signature and all. What else is kept of a block is what a
later request may repeat. The reply ends with its ``message_stop``; whatever follows is no part of it, nor a fault.
"""

from typing import Any, Final

import msgspec

from torpor.model.contract import ModelReply, ReplySink
from torpor.model.part import Part, name_of, word
from torpor.provider_errors import StreamLost
from torpor.records.terms import Usage

_TOKENS_MAX: Final = 2**53


class ErrorTold(Exception):
    """An event says that the host gave up."""

    def __init__(self, data: bytes) -> None:
        super().__init__("the stream holds an error")
        self.data = data


class _Delta(msgspec.Struct, frozen=True):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: Any = None
    stop_reason: Any = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    index: int = -1
    message: Any = None
    content_block: Any = None
    delta: _Delta | None = None
    usage: Any = None


class _Kind(msgspec.Struct, frozen=True):
    type: str


_EVENT: Final = msgspec.json.Decoder(_Event)
_KIND: Final = msgspec.json.Decoder(_Kind)
_KNOWN: Final = frozenset(
    {
        *("message_start", "message_delta", "message_stop", "error"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)


class Assembler:
    """Takes the data of each event in order; ``hand_on`` after each read, ``reply`` once the stream has ended."""

    def __init__(self, sink: ReplySink) -> None:
        self._sink = sink
        self._parts: list[Part] = []
        self._open: dict[int, Part] = {}
        self._handed = 0
        """How many parts the sink has whole."""
        self._has_said = False
        self._usage = Usage()
        self._model = ""
        self._stop_reason = ""
        self._has_begun = False
        self._is_over = False

    def take(self, data: bytes) -> bool:
        """One event; whether it is progress, which a ping is not, nor anything behind the end of the message.

        Raises: StreamLost: it is not JSON, or its block is not where the events before it left it.  ErrorTold.
        """
        if self._is_over:
            return False
        event = _decoded(data)
        match event.type:
            case "content_block_delta":
                self._continue(event)
            case "message_start":
                message = event.message if isinstance(event.message, dict) else {}
                self._model = name_of(message.get("model"))
                self._count(message.get("usage"))
            case "content_block_start":
                self._begin(event)
            case "content_block_stop":
                self._end(event)
            case "message_delta":
                self._stop_reason = word(event.delta.stop_reason if event.delta else None) or self._stop_reason
                self._count(event.usage)
            case "message_stop":
                self._is_over = True
            case "error":
                raise ErrorTold(data)
            case _:  # new kinds of events may appear at any time and are to be ignored
                return event.type != "ping"
        self._has_begun = True
        return True

    def hand_on(self) -> None:
        """Say what came since the last time; nothing of it is lost if no more comes.

        Blocks that are written side by side are said one after the other, in the order in which they began.
        """
        for part in self._parts[self._handed :]:
            if part.unsaid:
                self._sink.text("".join(part.unsaid))
                part.unsaid.clear()
                self._has_said = True
            if not part.is_over:
                return
            if part.block is not None:
                self._sink.block(part.block)
            self._handed += 1

    def break_off(self) -> None:
        """Nothing more comes: say what waited behind a block that has no end.

        Unless nothing was said so far: a reply that nobody saw anything of is asked for again.
        """
        for part in self._parts[self._handed : -1] if self._has_said else ():
            if not part.is_over:
                if part.type == "text":
                    part.finish()
                part.is_over = True
        self.hand_on()

    @property
    def has_begun(self) -> bool:
        """Whether any event was one of a reply."""
        return self._has_begun

    @property
    def is_over(self) -> bool:
        """Whether the message has ended, so that nothing more is expected."""
        return self._is_over

    def reply(self, *, request_id: str) -> ModelReply:
        """The whole reply, its blocks by index. Raises: StreamLost: the stream ended before the message did."""
        if not self._is_over or not self._stop_reason or self._open:
            raise StreamLost("the stream ended before the reply did")
        parts = sorted(self._parts, key=lambda part: part.index)
        kept = [(part, part.block) for part in parts if part.block is not None]
        return ModelReply(
            blocks=tuple(block for _, block in kept),
            stop_reason=self._stop_reason,
            usage=self._usage,
            model=self._model,
            request_id=name_of(request_id),
            unusable={place: part.unusable for place, (part, _) in enumerate(kept) if part.unusable},
            dropped=tuple(part.type for part in parts if part.block is None),
        )

    def _begin(self, event: _Event) -> None:
        if event.index in self._open:
            raise StreamLost(f"the stream begins block {event.index} again")
        fields = event.content_block if isinstance(event.content_block, dict) else {}
        part = self._open[event.index] = Part(fields, index=event.index)
        self._parts.append(part)
        if part.type == "text":
            part.say(part.text("text"))

    def _continue(self, event: _Event) -> None:
        part, delta = self._opened(event), event.delta
        match delta.type if delta else "":
            case "text_delta" if delta and part.type == "text":
                part.say(delta.text or "")
            case "thinking_delta" if delta and part.type == "thinking":
                part.pieces.append(delta.thinking or "")
            case "signature_delta" if delta:
                part.signature = delta.signature or part.signature
            case "input_json_delta" if delta:
                part.json.append(delta.partial_json or "")
            case "citations_delta" if delta:
                told = part.fields.get("citations")
                part.fields["citations"] = [*(told if isinstance(told, list) else ()), delta.citation]
            case _:  # likewise
                return

    def _end(self, event: _Event) -> None:
        part = self._opened(event)
        part.finish()
        del self._open[event.index]
        self.hand_on()

    def _opened(self, event: _Event) -> Part:
        part = self._open.get(event.index)
        if part is None:
            raise StreamLost(f"the stream continues block {event.index}, which is not open")
        return part

    def _count(self, told: object) -> None:
        """Counts are cumulative; what an event leaves out stays as it was, and what is no count is not told."""
        if isinstance(told, dict):
            counts = {
                field: count
                for field in Usage.__struct_fields__
                if type(count := told.get(field)) is int and 0 <= count <= _TOKENS_MAX
            }
            self._usage = msgspec.structs.replace(self._usage, **counts)


def _decoded(data: bytes) -> _Event:
    """Raises: StreamLost: it is not JSON, or no event of a reply; of other kinds nothing more is expected."""
    try:
        return _EVENT.decode(data)
    except (msgspec.DecodeError, RecursionError) as exc:
        if isinstance(exc, msgspec.ValidationError) and (kind := _kind_of(data)) and kind not in _KNOWN:
            return _Event(type=kind)
        raise StreamLost(f"an event of the stream cannot be read: {exc}") from exc


def _kind_of(data: bytes) -> str:
    try:
        return _KIND.decode(data).type
    except (msgspec.DecodeError, RecursionError):
        return ""
