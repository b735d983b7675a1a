"""A scripted reply becomes a message: ids, signatures, usage, and an end where the tokens end."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from torpor_fake_api.models import ModelFacts
from torpor_fake_api.prompt.cache import CacheUse
from torpor_fake_api.prompt.tokens import BLOCK_TOKENS, pieces, text_tokens
from torpor_fake_api.rules.case import dicts, of_type
from torpor_fake_api.rules.window import room_for_reply
from torpor_fake_api.scripting.replies import (
    Content,
    Raw,
    RedactedThinking,
    Reply,
    Text,
    Thinking,
    ToolUse,
    deltas_of,
    shortened,
)
from torpor_fake_api.signing import Claim, Signer

Delta = dict[str, Any]


class Block(NamedTuple):
    """A content block, whole and as it is streamed."""

    whole: dict[str, Any]
    start: dict[str, Any]
    deltas: tuple[Delta, ...]


class Message(NamedTuple):
    """What a request is answered with."""

    id: str
    model: str
    blocks: tuple[Block, ...]
    stop_reason: str
    stop_sequence: str | None
    stop_details: dict[str, Any] | None
    usage: dict[str, Any]

    @property
    def content(self) -> list[dict[str, Any]]:
        return [block.whole for block in self.blocks]


class Writer:
    """Writes the messages of one host."""

    def __init__(self, signer: Signer, *, new_id: Callable[[str], str]) -> None:
        self._signer = signer
        self._new_id = new_id

    def write(self, reply: Reply, *, body: dict[str, Any], model: ModelFacts, use: CacheUse) -> Message:
        """The message that ``reply`` becomes for this valid request."""
        content, stop_reason = _within_limits(reply, body=body, model=model, input_tokens=use.total)
        message_id = self._new_id("msg")
        blocks: list[Block] = []
        for block in content:
            thought = sum(written.whole["type"].endswith("thinking") for written in blocks)
            claim = Claim(model.id, message_id, thought)
            blocks.append(self._block(block, claim=claim, body=body, model=model))
        usage = _usage(use, content=content, model=model) | reply.usage
        return Message(message_id, model.id, tuple(blocks), stop_reason, reply.stop_sequence, reply.stop_details, usage)

    def _block(self, block: Content, *, claim: Claim, body: dict[str, Any], model: ModelFacts) -> Block:
        match block:
            case Text():
                deltas = tuple({"type": "text_delta", "text": piece} for piece in deltas_of(block))
                return Block({"type": "text", "text": _joined(block)}, {"type": "text", "text": ""}, deltas)
            case Thinking():
                return self._thinking(block, claim, is_shown=_shows_thinking(body, model))
            case RedactedThinking():
                data = self._signer.sign("", claim) if block.data is None else block.data
                whole = {"type": "redacted_thinking", "data": data}
                return Block(whole, whole, ())
            case ToolUse():
                return self._tool_use(block, body)
            case Raw():
                return Block(block.block, block.block, block.deltas)

    def _thinking(self, block: Thinking, claim: Claim, *, is_shown: bool) -> Block:
        text = _joined(block) if is_shown else ""
        signature = self._signer.sign(text, claim) if block.signature is None else block.signature
        deltas: list[Delta] = [{"type": "thinking_delta", "thinking": piece} for piece in deltas_of(block) if is_shown]
        if signature:
            deltas.append({"type": "signature_delta", "signature": signature})
        start = {"type": "thinking", "thinking": "", "signature": ""}
        return Block({"type": "thinking", "thinking": text, "signature": signature}, start, tuple(deltas))

    def _tool_use(self, block: ToolUse, body: dict[str, Any]) -> Block:
        head = {"type": "tool_use", "id": self._call_id(block, body), "name": block.name}
        # The first piece is empty, as real models send it; for a call without input it is the only one.
        parts = ("", *deltas_of(block))
        deltas = tuple({"type": "input_json_delta", "partial_json": part} for part in parts)
        return Block(head | {"input": _parsed(_joined(block))}, head | {"input": {}}, deltas)

    def _call_id(self, block: ToolUse, body: dict[str, Any]) -> str:
        if block.reuses_id:
            uses = [use for message in dicts(body["messages"]) for use in of_type(message, "tool_use")]
            if uses:
                return str(uses[0]["id"])
        return block.id or self._new_id("toolu")


def _joined(block: Content) -> str:
    return "".join(deltas_of(block))


def _parsed(text: str) -> Any:
    """The input of a call in a whole message: what does not parse stays text."""
    try:
        return msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return text


def _shows_thinking(body: dict[str, Any], model: ModelFacts) -> bool:
    display = body.get("thinking", {}).get("display") or model.thinking_display
    return bool(display != "omitted")


def _within_limits(
    reply: Reply, *, body: dict[str, Any], model: ModelFacts, input_tokens: int
) -> tuple[tuple[Content, ...], str]:
    """The content as far as its tokens go, and why it stops."""
    left, reason = room_for_reply(input_tokens, max_tokens=body["max_tokens"], model=model)
    room = float(left)
    deltas = 0
    for block in reply.content:
        room -= BLOCK_TOKENS
        for piece in deltas_of(block):
            room -= pieces(piece) * model.token_ratio
            if room < 0:
                return shortened(reply.content, deltas), reason
            deltas += 1
    calls = any(isinstance(block, ToolUse) for block in reply.content)
    return reply.content, reply.stop_reason or ("tool_use" if calls else "end_turn")


def _usage(use: CacheUse, *, content: tuple[Content, ...], model: ModelFacts) -> dict[str, Any]:
    tokens = [(block, text_tokens(_joined(block), model) + BLOCK_TOKENS) for block in content]
    return {
        "input_tokens": use.uncached,
        "cache_creation_input_tokens": use.written_5m + use.written_1h,
        "cache_read_input_tokens": use.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": use.written_5m,
            "ephemeral_1h_input_tokens": use.written_1h,
        },
        "output_tokens": max(sum(count for _, count in tokens), 1),
        "output_tokens_details": {
            "thinking_tokens": sum(count for block, count in tokens if isinstance(block, Thinking | RedactedThinking))
        },
        "service_tier": "standard",
    }
