"""One reply of the model, as a test writes it: blocks, how they are cut into deltas, why it stops, what goes wrong."""

from typing import Any

import msgspec

from torpor_fake_api.scripting.chunks import Chunks, cut
from torpor_fake_api.scripting.faults import Fault


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """One content block."""


class Text(_Content, frozen=True, tag="text"):
    text: str
    chunks: Chunks = "words"
    pieces: tuple[str, ...] = ()
    """Where given, the deltas themselves."""


class Thinking(_Content, frozen=True, tag="thinking"):
    thinking: str = ""
    signature: str | None = None
    """Where given, it is sent instead of the host's own; an empty one is not sent at all."""
    chunks: Chunks = "words"
    pieces: tuple[str, ...] = ()


class RedactedThinking(_Content, frozen=True, tag="redacted_thinking"):
    data: str | None = None
    """Where given, it is sent instead of signed data."""


class ToolUse(_Content, frozen=True, tag="tool_use"):
    name: str
    input: Any = {}
    id: str = ""
    """Made by the host where empty."""
    json: str | None = None
    """The text of the input, valid or not, in place of ``input``."""
    chunks: Chunks = 12
    pieces: tuple[str, ...] = ()
    reuses_id: bool = False
    """Take the id of the first call in the request's history."""


class Raw(_Content, frozen=True, tag="raw"):
    """Any block at all."""

    block: dict[str, Any]
    """As it stands in a whole message and at the start of a stream."""
    deltas: tuple[dict[str, Any], ...] = ()


Content = Text | Thinking | RedactedThinking | ToolUse | Raw


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said to one request."""

    content: tuple[Content, ...] = ()
    stop_reason: str | None = None
    """``tool_use`` or ``end_turn`` by default, whatever fits the content."""
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None
    usage: dict[str, Any] = {}
    """Fields that replace the counted ones."""
    headers: dict[str, str] = {}
    delta_interval_s: float = 0.0
    """Between two deltas."""
    fault: Fault | None = None


def says(*content: Content | str, **fields: Any) -> Reply:
    """A reply of these blocks; a string is a text."""
    return Reply(content=tuple(Text(item) if isinstance(item, str) else item for item in content), **fields)


def input_json(block: ToolUse) -> str:
    """The text of the input; nothing for an empty object, as real models stream it."""
    if block.pieces:
        return "".join(block.pieces)
    if block.json is not None:
        return block.json
    return "" if block.input == {} else msgspec.json.encode(block.input).decode()


def deltas_of(block: Content) -> tuple[str, ...]:
    """The pieces in which the text of a block is streamed."""
    match block:
        case Text(text=text):
            return block.pieces or cut(text, block.chunks)
        case Thinking(thinking=text):
            return block.pieces or cut(text, block.chunks)
        case ToolUse():
            return block.pieces or cut(input_json(block), block.chunks)
        case _:
            return ()


def shortened(content: tuple[Content, ...], deltas: int) -> tuple[Content, ...]:
    """The beginning of ``content``: so many deltas, and every block before the one where they end."""
    kept: list[Content] = []
    for block in content:
        pieces = deltas_of(block)
        if deltas <= 0:
            break
        if len(pieces) > deltas and isinstance(block, Text | Thinking | ToolUse):
            kept.append(msgspec.structs.replace(block, pieces=pieces[:deltas]))
        else:
            kept.append(block)
        deltas -= len(pieces)
    return tuple(kept)
