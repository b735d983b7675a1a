"""Content blocks exactly as the Messages API takes them, encoded once and never again.

A block is canonical JSON (sorted keys, no blanks, UTF-8). The bytes in the journal are the bytes in the request, so
what is stored, hashed and sent cannot drift apart.
"""

from typing import Any, Final

import msgspec

Block = msgspec.Raw
"""One API content block as canonical JSON."""

_CANONICAL: Final = msgspec.json.Encoder(order="sorted")


UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, TypeError, RecursionError)
"""Raised by whatever looks into a block that is none."""


class BlockHead(msgspec.Struct, frozen=True):
    """What the engine reads of a block; every other field passes through untouched."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    signature: str = ""


class _Result(msgspec.Struct, frozen=True):
    tool_use_id: str = ""


_RESULT: Final = msgspec.json.Decoder(_Result)
_HEAD: Final = msgspec.json.Decoder(BlockHead)


def canonical(value: Any) -> Block:
    """``value`` as canonical JSON; equal values give equal bytes.

    Raises: UnicodeEncodeError: a string holds a lone surrogate (text is cleaned before it comes here).
    """
    return msgspec.Raw(_CANONICAL.encode(value))


def text_block(text: str) -> Block:
    """A text block; ``text`` must hold something visible, or the API refuses the request."""
    return canonical({"type": "text", "text": text})


def tool_result_block(call_id: str, text: str, *, is_error: bool) -> Block:
    """The one result of one tool call. An error must say something, so an empty one says so."""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    if is_error:
        block["is_error"] = True
        block["content"] = text or "the tool failed without a message"
    return canonical(block)


def result_of(block: Block) -> str:
    """The id of the call whose result ``block`` is; empty when it is something else."""
    return _RESULT.decode(block).tool_use_id


def head_of(block: Block) -> BlockHead:
    """Decode the few fields the engine acts on.

    Raises: msgspec.DecodeError: the bytes are not one block.
    """
    return _HEAD.decode(block)
