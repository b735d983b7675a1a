"""The order of events, and what each of them holds."""

import json
from typing import Any

from torpor_fake_api.delivery.events import Frame, frames, whole_frame
from torpor_fake_api.delivery.message import Block, Message

TEXT = Block(
    {"type": "text", "text": "ab"},
    {"type": "text", "text": ""},
    ({"type": "text_delta", "text": "a"}, {"type": "text_delta", "text": "b"}),
)
HIDDEN = Block({"type": "redacted_thinking", "data": "x"}, {"type": "redacted_thinking", "data": "x"}, ())
USAGE = {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 9, "service_tier": "standard"}


def message(*blocks: Block, **fields: Any) -> Message:
    given = {"stop_reason": "end_turn", "stop_sequence": None, "stop_details": None, "usage": USAGE} | fields
    return Message(id="msg_1", model="toy-4k", blocks=blocks, **given)


def data(frame: Frame) -> Any:
    head, _, line = frame.data.decode().partition("\ndata: ")
    assert head == f"event: {frame.name}"
    assert line.endswith("\n\n")
    return json.loads(line)


def test_events_come_in_the_order_that_clients_rely_on() -> None:
    found = list(frames(message(HIDDEN, TEXT)))

    assert [frame.name for frame in found] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [data(frame)["type"] for frame in found] == [frame.name for frame in found]
    assert [data(frame).get("index") for frame in found[1:8]] == [0, None, 0, 1, 1, 1, 1]
    assert [frame.ends_block for frame in found if frame.ends_block is not None] == [0, 1]


def test_a_message_starts_empty_and_ends_with_reason_and_the_whole_usage() -> None:
    start, *_, delta, _ = map(data, frames(message(TEXT)))

    assert (start["message"]["content"], start["message"]["stop_reason"]) == ([], None)
    assert start["message"]["usage"]["output_tokens"] == 1
    assert delta["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert delta["usage"] == {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 9}


def test_a_refusal_brings_its_details() -> None:
    details = {"type": "refusal", "category": None, "explanation": None}
    *_, delta, _ = map(data, frames(message(stop_reason="refusal", stop_details=details)))

    assert delta["delta"]["stop_details"] == details


def test_a_message_without_blocks_has_no_ping() -> None:
    assert [frame.name for frame in frames(message())] == ["message_start", "message_delta", "message_stop"]


def test_a_reply_that_is_not_streamed_is_one_frame() -> None:
    frame = whole_frame(message(HIDDEN, TEXT))
    body = json.loads(frame.data)

    assert body["content"] == [HIDDEN.whole, TEXT.whole]
    assert (body["type"], body["role"], body["usage"]) == ("message", "assistant", USAGE)
    assert frame.ends_block == 1
