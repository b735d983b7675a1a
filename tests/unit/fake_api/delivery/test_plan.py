"""Plans: where a fault comes, and what is left after it."""

from typing import Any

import pytest

from torpor_fake_api.delivery.events import Frame
from torpor_fake_api.delivery.plan import End, Garbage, Head, Leave, Send, Slow, Step, Unplayable, Wait, plain, planned
from torpor_fake_api.scripting import faults
from torpor_fake_api.scripting.faults import Fault

FRAMES = [
    Frame("message_start", b"start."),
    Frame("content_block_start", b"block."),
    Frame("content_block_delta", b"one."),
    Frame("content_block_delta", b"two."),
    Frame("content_block_stop", b"blockend.", 0),
    Frame("message_delta", b"delta."),
    Frame("message_stop", b"stop."),
]
WHOLE = [Frame("message", b'{"content": []}', 0)]


def plan(fault: Fault | None = None, *, frames: list[Frame] = FRAMES, **fields: Any) -> list[Step]:
    return planned(frames, headers=(("request-id", "req_1"),), is_stream=frames is FRAMES, fault=fault, **fields)


def sent(steps: list[Step]) -> str:
    """What the client reads, each other step as one sign."""
    signs = {Head: "^", End: "$", Leave: "!", faults.Stall: "~", Slow: "/", Wait: "_", Garbage: "?"}
    return "".join(step.data.decode() if isinstance(step, Send) else signs[type(step)] for step in steps)


def test_a_reply_without_a_fault_is_head_frames_and_end() -> None:
    assert sent(plan()) == "^start.block.one.two.blockend.delta.stop.$"
    assert plan()[0] == Head(200, (("request-id", "req_1"), ("content-type", "text/event-stream; charset=utf-8")))
    assert plan(frames=WHOLE)[0] == Head(
        200, (("request-id", "req_1"), ("content-type", "application/json"), ("content-length", "15"))
    )


@pytest.mark.parametrize(
    ("at", "text"),
    [
        ("before_headers", "!"),
        ("first_event", "^!"),
        ("after_events:0", "^!"),
        ("after_events:2", "^start.block.!"),
        ("after_events:7", "^start.block.one.two.blockend.delta.stop.!"),
        ("after_deltas:0", "^start.block.!"),
        ("after_deltas:1", "^start.block.one.!"),
        ("after_deltas:2", "^start.block.one.two.!"),
        ("after_bytes:0", "^!"),
        ("after_bytes:8", "^start.bl!"),
        ("after_bytes:12", "^start.block.!"),
        ("after_bytes:40", "^start.block.one.two.blockend.delta.stop.!"),
        ("before_block_stop", "^start.block.one.two.!"),
        ("before_message_delta", "^start.block.one.two.blockend.!"),
        ("before_message_stop", "^start.block.one.two.blockend.delta.!"),
    ],
)
def test_a_fault_comes_at_its_position(at: str, text: str) -> None:
    assert sent(plan(faults.Cut(at=at))) == text


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (faults.End(at="after_deltas:1"), "^start.block.one.$"),
        (faults.HalfEvent(at="before_block_stop"), "^start.block.one.two.bloc$"),
        (faults.Insert(at="after_deltas:1", sse=b"new."), "^start.block.one.new.two.blockend.delta.stop.$"),
        (faults.Duplicate(at="before_message_stop"), "^start.block.one.two.blockend.delta.stop.stop.$"),
        (faults.Stall(at="after_deltas:1"), "^start.block.one.~two.blockend.delta.stop.$"),
        (faults.Stall(at="before_headers"), "~^start.block.one.two.blockend.delta.stop.$"),
        (faults.Trickle(at="after_events:1"), "^start./block.one.two.blockend.delta.stop.$"),
        (faults.Trickle(at="before_headers"), "/^start.block.one.two.blockend.delta.stop.$"),
    ],
)
def test_each_fault_leaves_what_it_should(fault: Fault, text: str) -> None:
    assert sent(plan(fault)) == text


def test_a_reset_is_no_polite_end() -> None:
    assert plan(faults.Reset(at="after_deltas:1"))[-1] == Leave(is_reset=True)
    assert plan(faults.Cut(at="after_deltas:1"))[-1] == Leave()


def test_an_error_event_ends_the_stream() -> None:
    *_, error, end = plan(faults.ErrorEvent(at="after_deltas:1"))

    assert error == Send(
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    )
    assert end == End()


def test_a_block_cut_in_the_middle_was_not_delivered() -> None:
    steps = plan(faults.Cut(at="after_bytes:25"))

    assert [step.ends_block for step in steps if isinstance(step, Send)] == [None] * 5


@pytest.mark.parametrize(
    ("by_bytes", "length", "text"),
    [(5, "20", '^{"content": []}!'), (-3, "12", '^{"content": $?!')],
)
def test_a_wrong_length_is_announced(by_bytes: int, length: str, text: str) -> None:
    head, *rest = plan(faults.WrongLength(by_bytes=by_bytes), frames=WHOLE)

    assert isinstance(head, Head)
    assert dict(head.headers)["content-length"] == length
    assert sent([head, *rest]) == text


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (faults.Cut(at="after_deltas:1"), '^{"conte!'),
        (faults.Cut(at="first_event"), "^!"),
        (faults.Cut(at="after_bytes:4"), '^{"co!'),
        (faults.End(at="before_message_stop"), '^{"conte$'),
        (faults.HalfEvent(), '^{"conte$'),
        (faults.Stall(), '^~{"content": []}$'),
    ],
)
def test_a_reply_that_is_not_streamed_breaks_in_its_middle(fault: Fault, text: str) -> None:
    assert sent(plan(fault, frames=WHOLE)) == text


@pytest.mark.parametrize(
    ("fault", "frames", "reason"),
    [
        (faults.Cut(at="after_events:8"), FRAMES, "the reply has 7 of the 8 events"),
        (faults.Cut(at="after_deltas:3"), FRAMES, "the reply has 2 of the 3 events"),
        (faults.Cut(at="after_bytes:41"), FRAMES, "fewer than the 41 bytes"),
        (faults.Cut(at="before_block_stop"), FRAMES[:1], "the reply has no content_block_stop"),
        (faults.End(at="before_headers"), FRAMES, "End cannot come before the headers"),
        (faults.HalfEvent(at="after_events:7"), FRAMES, "HalfEvent needs an event behind it"),
        (faults.Duplicate(at="after_events:7"), FRAMES, "Duplicate needs an event behind it"),
        (faults.Insert(sse=b"new."), WHOLE, "Insert needs a reply that is streamed"),
        (faults.WrongLength(by_bytes=-99), WHOLE, "cannot be announced as -99 bytes off"),
    ],
)
def test_a_fault_that_does_not_fit_is_an_error(fault: Fault, frames: list[Frame], reason: str) -> None:
    is_stream = frames is not WHOLE
    with pytest.raises(Unplayable, match=reason):
        planned(frames, headers=(), is_stream=is_stream, fault=fault)


def test_deltas_are_paced() -> None:
    assert sent(plan(interval_s=0.1)) == "^start.block._one._two.blockend.delta.stop.$"


def test_a_plain_response_is_one_piece() -> None:
    assert plain(404, b"{}", headers=(("request-id", "req_1"),)) == [
        Head(404, (("request-id", "req_1"), ("content-type", "application/json"), ("content-length", "2"))),
        Send(b"{}"),
        End(),
    ]
