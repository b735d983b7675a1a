"""A request in the order in which the model reads it: tools, system, messages; cut into blocks that may carry a mark.

Two requests share a prefix exactly as far as their segments are equal. Fields keep the order in which they were sent,
so a client that shuffles its JSON pays for it as it would at a real host. Marks are taken out, since they move.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from torpor_fake_api.models import ModelFacts
from torpor_fake_api.prompt.tokens import MESSAGE_TOKENS, TOOL_TOKENS, TOOLS_TOKENS, block_tokens, json_tokens
from torpor_fake_api.rules.case import blocks, dicts, merged

_ABOUT_MESSAGES: Final = ("tool_choice", "thinking", "output_config")
"""Parameters that change how the messages are rendered, not what stands before them."""

Block = dict[str, Any]


class Segment(NamedTuple):
    """One block of the prompt."""

    text: bytes
    tokens: int
    ttl: str | None
    """Of its own mark."""
    may_be_marked: bool


def segments(body: dict[str, Any], *, model: ModelFacts, is_dropped: Callable[[Block], bool]) -> list[Segment]:
    """The blocks of a valid request; those that the model never sees are left out."""
    return [*_tools(body, model), *_system(body, model), *_messages(body, model, is_dropped)]


def total(found: list[Segment]) -> int:
    return sum(segment.tokens for segment in found)


def _tools(body: dict[str, Any], model: ModelFacts) -> Iterator[Segment]:
    for index, tool in enumerate(dicts(body.get("tools"))):
        bare = _without_mark(tool)
        overhead = TOOL_TOKENS + (0 if index else TOOLS_TOKENS)
        tokens = json_tokens(bare, model) + overhead
        yield Segment(b"tool" + msgspec.json.encode(bare), tokens, _ttl(tool), may_be_marked=True)


def _system(body: dict[str, Any], model: ModelFacts) -> Iterator[Segment]:
    for block in blocks({"content": body.get("system", [])}):
        bare = _without_mark(block)
        yield Segment(b"system" + msgspec.json.encode(bare), block_tokens(bare, model), _ttl(block), may_be_marked=True)


def _messages(body: dict[str, Any], model: ModelFacts, is_dropped: Callable[[Block], bool]) -> Iterator[Segment]:
    about = msgspec.json.encode({name: body[name] for name in _ABOUT_MESSAGES if name in body})
    for message in merged(dicts(body.get("messages"))):
        head, overhead = about + str(message["role"]).encode(), MESSAGE_TOKENS
        for block in blocks(message):
            if is_dropped(block):
                continue
            bare = _without_mark(block)
            is_marked = block["type"] not in {"thinking", "redacted_thinking"}
            tokens = block_tokens(bare, model) + overhead
            yield Segment(head + msgspec.json.encode(bare), tokens, _ttl(block), may_be_marked=is_marked)
            head, overhead, about = b"", 0, b""


def _ttl(block: Block) -> str | None:
    """The life of the mark on a block or on one inside it."""
    if (mark := block.get("cache_control")) is not None:
        return str(mark.get("ttl", "5m"))
    inner = dicts(block.get("content")) if block.get("type") == "tool_result" else []
    return next((ttl for ttl in map(_ttl, inner) if ttl), None)


def _without_mark(block: Block) -> Block:
    bare = {name: value for name, value in block.items() if name != "cache_control"}
    if bare.get("type") == "tool_result" and isinstance(bare.get("content"), list):
        bare["content"] = [_without_mark(inner) for inner in dicts(bare["content"])]
    return bare
