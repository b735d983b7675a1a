"""Every way to misbehave by name, each at each position that makes sense: ``misbehave("cut", at="after_deltas:2")``.

A misbehaviour is laid over the reply that would have been given. Those of the model (a refusal, a broken tool call)
change its content, those of the host add a fault. A refused connection is not among them: no request reaches a host
that does not listen.
"""

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from torpor_fake_api.scripting import faults, positions
from torpor_fake_api.scripting.faults import Fault
from torpor_fake_api.scripting.replies import Content, Raw, Reply, Text, ToolUse, says, shortened

IN_STREAM: Final = (
    positions.FIRST_EVENT,
    positions.after_deltas(1),
    positions.BEFORE_BLOCK_STOP,
    positions.BEFORE_MESSAGE_DELTA,
    positions.BEFORE_MESSAGE_STOP,
)
ANYWHERE: Final = (positions.BEFORE_HEADERS, positions.after_bytes(40), *IN_STREAM)
_IN_BLOCK: Final = (positions.after_deltas(1), positions.BEFORE_BLOCK_STOP)
_AT_ONCE: Final = (positions.BEFORE_HEADERS,)
_WHOLE: Final = ("",)
"""The misbehaviour is the reply as a whole."""

_SOME_REPLY: Final = says("One two three four.")
_SOME_TOOL: Final = ToolUse("look_up", {"what": "something of some length"})


class Misbehaviour(NamedTuple):
    """One row of the catalogue."""

    summary: str
    positions: tuple[str, ...]
    over: Callable[[Reply, str], Reply]
    """The reply that would have been given, and a position, into what is given."""


def misbehave(name: str, *, at: str = "", over: Reply = _SOME_REPLY) -> Reply:
    """The reply ``over`` with something wrong with it, by default at the first position of the catalogue.

    Raises: KeyError: there is no such misbehaviour.
    """
    row = CATALOGUE[name]
    return row.over(over, at or row.positions[0])


def every() -> tuple[tuple[str, str], ...]:
    """Each name with each of its positions, for a test to run over."""
    return tuple((name, at) for name, row in CATALOGUE.items() for at in row.positions)


def _status(summary: str, status: int, **fields: Any) -> Misbehaviour:
    fault = faults.HttpError(status=status, message=summary, **fields)
    return Misbehaviour(f"{status}: {summary}", _AT_ONCE, lambda over, at: with_fault(over, fault))


def _stream(summary: str, at: tuple[str, ...], make: Callable[[str], Fault]) -> Misbehaviour:
    return Misbehaviour(summary, at, lambda over, place: with_fault(over, make(place)))


def _reply(summary: str, make: Callable[[Reply], Reply]) -> Misbehaviour:
    return Misbehaviour(summary, _WHOLE, lambda over, at: make(over))


def with_fault(over: Reply, fault: Fault) -> Reply:
    return msgspec.structs.replace(over, fault=fault)


def _sse(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _calls(over: Reply, *calls: Content) -> Reply:
    """``over`` with other calls in place of its own."""
    said = tuple(block for block in over.content if not isinstance(block, ToolUse))
    return msgspec.structs.replace(over, content=(*said, *calls), stop_reason="tool_use")


def _broken_call(summary: str, **fields: Any) -> Misbehaviour:
    return _reply(summary, lambda over: _calls(over, msgspec.structs.replace(_call_of(over), **fields)))


def _call_of(over: Reply) -> ToolUse:
    return next((block for block in over.content if isinstance(block, ToolUse)), _SOME_TOOL)


def _refused(over: Reply, deltas: int) -> Reply:
    details = {"type": "refusal", "category": "general_harms", "explanation": "It is not for this host to say."}
    content = shortened(over.content, deltas)
    return msgspec.structs.replace(over, content=content, stop_reason="refusal", stop_details=details)


def _exhausted(over: Reply) -> Reply:
    """The tokens end in the middle of the last block that has several deltas."""
    call = msgspec.structs.replace(_call_of(over), chunks=4, pieces=())
    cut_call = shortened((call,), 2)
    said = tuple(block for block in over.content if not isinstance(block, ToolUse))
    return msgspec.structs.replace(over, content=(*said, *cut_call), stop_reason="max_tokens")


def _in_pieces(over: Reply, **fields: Any) -> Reply:
    content = tuple(
        msgspec.structs.replace(block, **fields) if isinstance(block, Text | ToolUse) else block
        for block in over.content
    )
    return msgspec.structs.replace(over, content=content)


CATALOGUE: Final[dict[str, Misbehaviour]] = {
    "invalid_request": _status("something about the request is invalid", 400),
    "prompt_too_long": _status("prompt is too long: 214431 tokens > 200000 maximum", 400),
    "spend_limit": _status("You have reached your specified API usage limits.", 400),
    "not_authenticated": _status("invalid x-api-key", 401),
    "billing": _status("Your credit balance is too low.", 402),
    "billing_forbidden": _status("Your credit balance is too low.", 403, error_type="billing_error"),
    "forbidden": _status("Your API key does not have permission to use the specified resource.", 403),
    "model_not_found": _status("model: some-model", 404),
    "conflict": _status("The resource was modified meanwhile.", 409),
    "too_large": _status("Request exceeds the maximum size", 413),
    "too_large_at_edge": _status("the request never reached the host", 413, page="<h1>413 Payload Too Large</h1>"),
    "rate_limited": _status("This request would exceed your rate limit.", 429, retry_after_s=1.0),
    "rate_limited_date": _status(
        "This request would exceed your rate limit.", 429, retry_after_s=2.0, retry_after_as="date"
    ),
    "rate_limited_ms": _status(
        "This request would exceed your rate limit.", 429, retry_after_s=0.25, retry_after_as="ms"
    ),
    "rate_limited_hours": _status("This request would exceed your rate limit.", 429, retry_after_s=7200.0),
    "rate_limited_bare": _status("You have reached the spend cap of your tier.", 429),
    "server_error": _status("Internal server error", 500),
    "bad_gateway": _status("a proxy could not reach the host", 502, page="<h1>502 Bad Gateway</h1>"),
    "unavailable": _status("Service unavailable", 503),
    "gateway_timeout": _status("The request timed out", 504),
    "overloaded": _status("Overloaded", 529),
    "overloaded_event": _stream("overloaded inside the stream", IN_STREAM, lambda at: faults.ErrorEvent(at=at)),
    "api_error_event": _stream(
        "an error inside the stream",
        IN_STREAM,
        lambda at: faults.ErrorEvent(at=at, error_type="api_error", message="Internal server error"),
    ),
    "cut": _stream("the connection closes", ANYWHERE, lambda at: faults.Cut(at=at)),
    "reset": _stream("the connection is reset", ANYWHERE, lambda at: faults.Reset(at=at)),
    "clean_end": _stream("the stream ends too early", IN_STREAM, lambda at: faults.End(at=at)),
    "half_event": _stream("the stream ends inside an event", IN_STREAM, lambda at: faults.HalfEvent(at=at)),
    "stall": _stream("silence", ANYWHERE, lambda at: faults.Stall(at=at)),
    "stall_with_pings": _stream("nothing but pings", IN_STREAM, lambda at: faults.Stall(at=at, pings_every_s=0.05)),
    "trickle": _stream("one byte at a time", (positions.FIRST_EVENT,), lambda at: faults.Trickle(at=at)),
    "length_too_long": _stream("less than announced", _AT_ONCE, lambda at: faults.WrongLength(by_bytes=100)),
    "length_too_short": _stream("more than announced", _AT_ONCE, lambda at: faults.WrongLength(by_bytes=-20)),
    "bad_json": _stream(
        "an event that is no JSON",
        IN_STREAM,
        lambda at: faults.Insert(at=at, sse=b'event: content_block_delta\ndata: {"type": "content_blo\n\n'),
    ),
    "bad_utf8": _stream(
        "an event that is no UTF-8",
        IN_STREAM,
        lambda at: faults.Insert(at=at, sse=b'event: content_block_delta\ndata: "\xff\xfe"\n\n'),
    ),
    "unknown_event": _stream(
        "an event nobody knows",
        IN_STREAM,
        lambda at: faults.Insert(at=at, sse=_sse("weather_report", {"type": "weather_report", "sky": "blue"})),
    ),
    "unknown_delta": _stream(
        "a delta nobody knows",
        _IN_BLOCK,
        lambda at: faults.Insert(
            at=at,
            sse=_sse(
                "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "scent_delta"}}
            ),
        ),
    ),
    "duplicate_event": _stream("an event twice", IN_STREAM, lambda at: faults.Duplicate(at=at)),
    "unknown_block": _reply(
        "a block nobody knows",
        lambda over: msgspec.structs.replace(over, content=(Raw({"type": "scent", "note": "rain"}), *over.content)),
    ),
    "unknown_stop_reason": _reply(
        "a stop reason nobody knows", lambda over: msgspec.structs.replace(over, stop_reason="bored")
    ),
    "refusal": _reply("a refusal before any text", lambda over: _refused(over, 0)),
    "refusal_after_text": Misbehaviour(
        "a refusal after some text",
        (positions.after_deltas(1), positions.after_deltas(2)),
        lambda over, at: _refused(over, positions.position(at).number),
    ),
    "max_tokens": _reply(
        "the tokens end in the text",
        lambda over: msgspec.structs.replace(over, content=shortened(over.content, 1), stop_reason="max_tokens"),
    ),
    "max_tokens_in_call": _reply("the tokens end in a tool call", _exhausted),
    "pause_turn": _reply("a pause", lambda over: msgspec.structs.replace(over, stop_reason="pause_turn")),
    "empty_reply": _reply(
        "a turn that ends without a block",
        lambda over: msgspec.structs.replace(over, content=(), stop_reason="end_turn"),
    ),
    "empty_text": _reply(
        "a text block without text",
        lambda over: msgspec.structs.replace(over, content=(Text(""), *over.content)),
    ),
    "call_with_bad_json": _broken_call("a call whose input is no JSON", json='{"what": 1]x', pieces=()),
    "call_with_list": _broken_call("a call with a list as input", json='["a", "b"]', pieces=()),
    "call_with_string": _broken_call("a call with a string as input", json='"a"', pieces=()),
    "call_with_null": _broken_call("a call with null as input", json="null", pieces=()),
    "unknown_tool": _broken_call("a call of a tool that is not on offer", name="no_such_tool"),
    "illegal_tool_name": _broken_call("a call of a tool with an impossible name", name="look.up/now"),
    "reused_tool_id": _broken_call("a call with the id of an earlier one", reuses_id=True),
    "duplicate_tool_ids": _reply(
        "two calls of one id",
        lambda over: _calls(over, *[msgspec.structs.replace(_call_of(over), id="toolu_twice")] * 2),
    ),
    "split_characters": _reply("every character by itself", lambda over: _in_pieces(over, chunks=1, pieces=())),
    "split_escapes": _reply("cuts inside JSON escapes", lambda over: _in_pieces(over, chunks="escapes", pieces=())),
}
