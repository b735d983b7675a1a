"""A scripted reply becomes a message."""

from itertools import count
from typing import Any

import pytest

from tests.unit.fake_api.parts import HELLO, RESULT, USE, assistant, request, user
from torpor_fake_api.delivery.message import Message, Writer
from torpor_fake_api.models import MODELS, ModelFacts
from torpor_fake_api.prompt.cache import CacheUse
from torpor_fake_api.scripting.replies import Raw, RedactedThinking, Reply, Text, Thinking, ToolUse, says
from torpor_fake_api.signing import Claim, Signer

SIGNER = Signer()
TOY = MODELS["toy-4k"]


def write(reply: Reply, *, model: ModelFacts = TOY, used: int = 10, **fields: Any) -> Message:
    numbers = count(1)
    writer = Writer(SIGNER, new_id=lambda prefix: f"{prefix}_{next(numbers)}")
    return writer.write(reply, body=request(**fields), model=model, use=CacheUse(used))


def test_blocks_get_the_ids_and_signatures_of_the_host() -> None:
    message = write(says(Thinking("hm"), "one two", ToolUse("look_up", {"a": 1}), RedactedThinking()))

    thought, text, call, hidden = message.content
    assert (message.id, message.model) == ("msg_1", "toy-4k")
    assert SIGNER.claim(thought) == Claim("toy-4k", "msg_1", 0)
    assert text == {"type": "text", "text": "one two"}
    assert call == {"type": "tool_use", "id": "toolu_2", "name": "look_up", "input": {"a": 1}}
    assert SIGNER.claim(hidden) == Claim("toy-4k", "msg_1", 1)


def test_what_the_script_gives_is_not_replaced() -> None:
    raw = Raw({"type": "scent"}, ({"type": "scent_delta"},))
    message = write(says(Thinking("hm", "forged"), RedactedThinking("data"), ToolUse("look_up", id="mine"), raw))

    thought, hidden, call, scent = message.content
    assert (thought["signature"], hidden["data"], call["id"], scent) == ("forged", "data", "mine", {"type": "scent"})
    assert message.blocks[3].deltas == ({"type": "scent_delta"},)


def test_a_signature_is_the_last_delta_of_thinking_and_an_empty_one_is_not_sent() -> None:
    [signed] = write(says(Thinking("one two"))).blocks
    [unsigned] = write(says(Thinking("one two", ""))).blocks

    assert [delta["type"] for delta in signed.deltas] == ["thinking_delta", "thinking_delta", "signature_delta"]
    assert [delta["type"] for delta in unsigned.deltas] == ["thinking_delta", "thinking_delta"]


@pytest.mark.parametrize(
    ("model", "thinking", "shown"),
    [
        (TOY, {"type": "adaptive"}, "hm"),
        (TOY, {"type": "adaptive", "display": "omitted"}, ""),
        (MODELS["claude-fable-5-1"], None, ""),
        (MODELS["claude-fable-5-1"], {"type": "adaptive", "display": "summarized"}, "hm"),
    ],
)
def test_thinking_is_shown_or_only_signed(model: ModelFacts, thinking: Any, shown: str) -> None:
    [block] = write(says(Thinking("hm")), model=model, thinking=thinking).blocks

    assert block.whole["thinking"] == shown
    assert SIGNER.claim(block.whole) is not None
    assert any(delta["type"] == "thinking_delta" for delta in block.deltas) is bool(shown)


@pytest.mark.parametrize(
    ("call", "pieces", "parsed"),
    [
        (ToolUse("look_up"), [""], {}),
        (ToolUse("look_up", {"a": 1}, chunks=4), ["", '{"a"', ":1}"], {"a": 1}),
        (ToolUse("look_up", json='["a"]'), ["", '["a"]'], ["a"]),
        (ToolUse("look_up", json='{"a": 1]'), ["", '{"a": 1]'], '{"a": 1]'),
    ],
)
def test_the_input_of_a_call_is_streamed_as_text(call: ToolUse, pieces: list[str], parsed: Any) -> None:
    [block] = write(says(call)).blocks

    assert [delta["partial_json"] for delta in block.deltas] == pieces
    assert (block.whole["input"], block.start["input"]) == (parsed, {})


def test_a_call_can_take_the_id_of_an_earlier_one() -> None:
    history = [user(HELLO), assistant(USE), user(RESULT)]
    reused = says(ToolUse("look_up", reuses_id=True))

    assert write(reused, messages=history).content[0]["id"] == "call_1"
    assert write(reused).content[0]["id"] == "toolu_2"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (says("one"), "end_turn"),
        (says(ToolUse("look_up")), "tool_use"),
        (says("one", stop_reason="bored"), "bored"),
        (Reply(), "end_turn"),
    ],
)
def test_a_reply_stops_for_the_reason_that_fits_it(reply: Reply, reason: str) -> None:
    assert write(reply).stop_reason == reason


@pytest.mark.parametrize(
    ("used", "max_tokens", "reason"),
    [(10, 5, "max_tokens"), (3995, 5, "max_tokens"), (3996, 5, "model_context_window_exceeded")],
)
def test_a_reply_ends_where_its_tokens_end(used: int, max_tokens: int, reason: str) -> None:
    message = write(says("one two three four five", ToolUse("look_up")), used=used, max_tokens=max_tokens)

    assert (message.content[0]["text"], message.stop_reason) == ("one two three "[: 14 if used < 3996 else 8], reason)
    assert len(message.content) == 1
    assert message.usage["output_tokens"] <= max_tokens


def test_usage_divides_input_and_counts_output() -> None:
    numbers = count(1)
    writer = Writer(SIGNER, new_id=lambda prefix: f"{prefix}_{next(numbers)}")
    reply = says(Thinking("one two"), "three", usage={"speed": "fast"})
    usage = writer.write(reply, body=request(), model=TOY, use=CacheUse(1, 20, 300, 400)).usage

    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (1, 20)
    assert usage["cache_creation_input_tokens"] == 700
    assert usage["cache_creation"] == {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 400}
    assert (usage["output_tokens"], usage["output_tokens_details"]) == (7, {"thinking_tokens": 4})
    assert usage["speed"] == "fast"


def test_a_text_of_given_pieces_is_those_pieces() -> None:
    [block] = write(says(Text("", pieces=("o", "ne")))).blocks

    assert (block.whole["text"], len(block.deltas)) == ("one", 2)
