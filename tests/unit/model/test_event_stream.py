"""Events are found however the body is cut into reads, and whatever ends its lines."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.model import event_stream
from torpor.model.event_stream import EventSplitter, ServerEvent
from torpor.provider_errors import StreamLost

BODY = (
    b': hello\n\nevent: message_start\ndata: {"a": 1}\nid: 7\n\n\n\ndata:first\ndata: second\n\n'
    b"event: ping\n\nevent:\xc3\xa9\ndata: caf\xc3\xa9: two\n\n"
)
EVENTS = [
    ServerEvent(b"message_start", b'{"a": 1}'),
    ServerEvent(b"", b"first\nsecond"),
    ServerEvent("é".encode(), "café: two".encode()),
]


def read(*reads: bytes) -> list[ServerEvent]:
    splitter = EventSplitter()
    return [event for each in reads for event in splitter.take(each)]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@given(cuts=st.lists(st.integers(0, 2 * len(BODY)), max_size=20))
def test_events_are_the_same_however_the_body_is_cut(line_end: bytes, cuts: list[int]) -> None:
    body = BODY.replace(b"\n", line_end)
    assert read(*(body[start:end] for start, end in pairwise(sorted({0, *cuts, len(body)})))) == EVENTS


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_events_are_the_same_byte_by_byte(line_end: bytes) -> None:
    body = BODY.replace(b"\n", line_end)
    assert read(*(body[at : at + 1] for at in range(len(body)))) == EVENTS


def test_half_an_event_is_none() -> None:
    assert read(b'event: message_stop\ndata: {"type": "message_stop"}\n') == []


def test_nothing_read_changes_nothing() -> None:
    assert read(b"data: a\r", b"", b"\n\r\n") == [ServerEvent(b"", b"a")]


def test_an_event_without_end_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "EVENT_BYTES_MAX", 20)
    assert read(b"data: 345678\n\n", b"data: 345678") == [ServerEvent(b"", b"345678")]
    with pytest.raises(StreamLost, match="longer than 20 bytes"):
        read(b"data: 345678", b"90123456789")
