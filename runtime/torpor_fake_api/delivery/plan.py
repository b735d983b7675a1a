"""What is done at the socket, step by step, so that a response is decided before the first byte of it is sent.

A plan without faults is a head, the frames and an end. A fault is put in at its position. A reply that is not streamed
is one frame: a position among events or deltas then means the middle of it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from torpor_fake_api.delivery.events import Frame, sse
from torpor_fake_api.scripting import faults
from torpor_fake_api.scripting.positions import BEFORE_HEADERS, FIRST_EVENT, Position, position

Headers = tuple[tuple[str, str], ...]

EVENT_STREAM: Final = "text/event-stream; charset=utf-8"


class Head(NamedTuple):
    """Status and headers; the body is chunked unless they give its length."""

    status: int
    headers: Headers


class Send(NamedTuple):
    """Bytes of the body."""

    data: bytes
    ends_block: int | None = None
    name: str = ""
    """Of the event."""

    @property
    def is_last(self) -> bool:
        """Whether the client has the whole message with it."""
        return self.name in {"message_stop", "message"}


class Garbage(NamedTuple):
    """Bytes behind the response."""

    data: bytes


class Wait(NamedTuple):
    """Time between two deltas."""

    seconds: float


class Slow(NamedTuple):
    """From here on so many bytes at a time."""

    size_bytes: int
    interval_s: float


class End(NamedTuple):
    """The response is complete; the connection may serve another."""


class Leave(NamedTuple):
    """Close the connection, complete or not."""

    is_reset: bool = False


Step = Head | Send | Garbage | Wait | Slow | End | Leave | faults.Stall


class Unplayable(ValueError):
    """A script asks for a fault at a place that the reply does not have."""


def plain(status: int, body: bytes, *, headers: Headers = (), content_type: str = "application/json") -> list[Step]:
    """A response of one piece."""
    head = Head(status, (*headers, ("content-type", content_type), ("content-length", str(len(body)))))
    return [head, Send(body), End()]


def planned(
    frames: Sequence[Frame],
    *,
    headers: Headers,
    is_stream: bool,
    interval_s: float = 0.0,
    fault: faults.Fault | None = None,
) -> list[Step]:
    """A response of these frames, with something wrong.

    Raises: Unplayable: the fault does not fit the reply.
    """
    if isinstance(fault, faults.WrongLength):
        kind = EVENT_STREAM if is_stream else "application/json"
        return _of_wrong_length(frames, (*headers, ("content-type", kind)), fault.by_bytes)
    sends = [Send(frame.data, frame.ends_block, frame.name) for frame in frames]
    size = sum(len(send.data) for send in sends)
    kind = EVENT_STREAM if is_stream else "application/json"
    length = () if is_stream else (("content-length", str(size)),)
    head = Head(200, (*headers, ("content-type", kind), *length))
    if fault is None or isinstance(fault, faults.HttpError):
        return [head, *_paced(sends, interval_s), End()]
    place = position(fault.at)
    if place.where == BEFORE_HEADERS:
        return _paced(_put_in([], fault, [head, *sends, End()]), interval_s)
    before, after = _split(sends, place, is_stream=is_stream)
    if not is_stream and isinstance(fault, faults.End | faults.HalfEvent):
        return plain(200, b"".join(send.data for send in before), headers=headers)
    if not is_stream and isinstance(fault, faults.ErrorEvent | faults.Insert | faults.Duplicate):
        raise Unplayable(f"a fault of kind {type(fault).__name__} needs a reply that is streamed")
    return [head, *_paced(_put_in(before, fault, after), interval_s)]


def _put_in(before: Sequence[Step], fault: faults.Fault, after: Sequence[Step]) -> list[Step]:
    following = after[0] if after else None
    match fault:
        case faults.Cut():
            return [*before, Leave()]
        case faults.Reset():
            return [*before, Leave(is_reset=True)]
        case faults.Stall():
            return [*before, fault, *after, *_end(after)]
        case faults.Trickle(size_bytes=size, interval_s=pause):
            return [*before, Slow(size, pause), *after, *_end(after)]
        case _ if following is not None and not isinstance(following, Send):
            raise Unplayable(f"a fault of kind {type(fault).__name__} cannot come before the headers")
        case faults.End():
            return [*before, End()]
        case faults.ErrorEvent(error_type=kind, message=message):
            error = {"type": "error", "error": {"type": kind, "message": message}}
            return [*before, Send(sse("error", error)), End()]
        case faults.Insert(sse=data):
            return [*before, Send(data), *after, End()]
        case faults.HalfEvent() if isinstance(following, Send):
            return [*before, Send(following.data[: len(following.data) // 2]), End()]
        case faults.Duplicate() if isinstance(following, Send):
            return [*before, following, *after, End()]
        case _:
            raise Unplayable(f"a fault of kind {type(fault).__name__} needs an event behind it")


def _end(after: Sequence[Step]) -> list[Step]:
    return [] if after and isinstance(after[-1], End) else [End()]


def _split(sends: list[Send], place: Position, *, is_stream: bool) -> tuple[list[Send], list[Send]]:
    """The sends before and after a place; one is cut in two where the place lies inside."""
    if place.where == "after_bytes":
        return _split_bytes(sends, place.number)
    if not is_stream:
        return _split_bytes(sends, 0 if place.where == FIRST_EVENT else len(sends[0].data) // 2)
    ends = {
        "after_events": partial(_after, sends, number=place.number, name=""),
        "after_deltas": partial(_after, sends, number=place.number, name="content_block_delta"),
        "before_block_stop": partial(_before, sends, name="content_block_stop"),
        "before_message_delta": partial(_before, sends, name="message_delta"),
        "before_message_stop": partial(_before, sends, name="message_stop"),
    }
    end = ends[place.where]() if place.where in ends else 0
    return sends[:end], sends[end:]


def _after(sends: list[Send], *, number: int, name: str) -> int:
    places = [index for index, send in enumerate(sends, start=1) if name in {"", send.name}]
    if number > len(places):
        raise Unplayable(f"the reply has {len(places)} of the {number} events after which the fault should come")
    if number:
        return places[number - 1]
    return places[0] - 1 if places and name else 0


def _before(sends: list[Send], *, name: str) -> int:
    found = next((index for index, send in enumerate(sends) if send.name == name), None)
    if found is None:
        raise Unplayable(f"the reply has no {name} before which the fault should come")
    return found


def _split_bytes(sends: list[Send], count: int) -> tuple[list[Send], list[Send]]:
    left = count
    for index, send in enumerate(sends):
        if left < len(send.data):
            head = [Send(send.data[:left])] if left else []
            return [*sends[:index], *head], [send._replace(data=send.data[left:]), *sends[index + 1 :]]
        left -= len(send.data)
    if left:
        raise Unplayable(f"the reply has fewer than the {count} bytes after which the fault should come")
    return sends, []


def _paced(steps: Sequence[Step], interval_s: float) -> list[Step]:
    """With a pause before every delta."""
    if not interval_s:
        return list(steps)
    paced: list[Step] = []
    for step in steps:
        if isinstance(step, Send) and step.name == "content_block_delta":
            paced.append(Wait(interval_s))
        paced.append(step)
    return paced


def _of_wrong_length(frames: Sequence[Frame], headers: Headers, by_bytes: int) -> list[Step]:
    body = b"".join(frame.data for frame in frames)
    if len(body) + by_bytes < 0:
        raise Unplayable(f"a body of {len(body)} bytes cannot be announced as {by_bytes} bytes off")
    announced = len(body) + by_bytes
    head = Head(200, (*headers, ("content-length", str(announced))))
    if by_bytes > 0:
        return [head, Send(body), Leave()]
    return [head, Send(body[:announced]), End(), Garbage(body[announced:]), Leave()]
