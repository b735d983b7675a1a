"""A message as it is sent: whole, or as server-sent events in the order that clients rely on.

``message_start``; for each block its start, its deltas and its stop; ``message_delta`` with the stop reason and the
usage so far, which is the whole of it; ``message_stop``. A ``ping`` follows the first start of a block.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from torpor_fake_api.delivery.message import Message

_SUMMED: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "output_tokens_details",
)
"""Fields of the usage that ``message_delta`` repeats."""


class Frame(NamedTuple):
    """One event, encoded, or the whole body of a reply that is not streamed."""

    name: str
    data: bytes
    ends_block: int | None = None
    """The index of the block of which the client knows everything after this event."""


def sse(name: str, data: Any) -> bytes:
    """An event on the wire."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))


PING: Final = sse("ping", {"type": "ping"})


def whole(message: Message) -> dict[str, Any]:
    """The message as the body of a reply that is not streamed."""
    return _head(message) | {
        "content": message.content,
        "stop_reason": message.stop_reason,
        "stop_sequence": message.stop_sequence,
        "stop_details": message.stop_details,
        "usage": message.usage,
    }


def whole_frame(message: Message) -> Frame:
    return Frame("message", msgspec.json.encode(whole(message)), len(message.blocks) - 1)


def frames(message: Message) -> Iterator[Frame]:
    """The message event by event."""
    started = whole(message) | {"content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    started["usage"] = message.usage | {"output_tokens": 1, "output_tokens_details": None}
    yield _frame("message_start", message=started)
    for index, block in enumerate(message.blocks):
        yield _frame("content_block_start", index=index, content_block=block.start)
        if index == 0:
            yield Frame("ping", PING)
        for delta in block.deltas:
            yield _frame("content_block_delta", index=index, delta=delta)
        yield _frame("content_block_stop", index=index)._replace(ends_block=index)
    delta = {"stop_reason": message.stop_reason, "stop_sequence": message.stop_sequence}
    if message.stop_details:
        delta["stop_details"] = message.stop_details
    usage = {name: message.usage[name] for name in _SUMMED if name in message.usage}
    yield _frame("message_delta", delta=delta, usage=usage)
    yield _frame("message_stop")


def _head(message: Message) -> dict[str, Any]:
    return {"id": message.id, "type": "message", "role": "assistant", "model": message.model}


def _frame(name: str, **data: Any) -> Frame:
    return Frame(name, sse(name, {"type": name, **data}))
