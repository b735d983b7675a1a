"""Of what a server writes, what can be read is read."""

from collections.abc import AsyncIterator

import httpx2
import mcp_types as types
import pytest

from torpor.toolhost.mcp.bodies import bound
from torpor.toolhost.mcp.lines import LEVELS_MAX, TooLong, Unreadable, mended, message_of, with_characters

HALF = rb"\ud83d"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"plain \xc3\xa9", b"plain \xc3\xa9"),
        (rb"\ud83d\ude00 \\ud83d \u00e9", rb"\ud83d\ude00 \\ud83d \u00e9"),
        (HALF, rb"\ufffd"),
        (HALF * 2 + rb"\ude00\ude00", rb"\ufffd\ud83d\ude00\ufffd"),
        (b"a\xff", "a\N{REPLACEMENT CHARACTER}".encode()),
    ],
)
def test_characters_that_are_none_are_replaced(text: bytes, expected: bytes) -> None:
    assert with_characters(text) == expected


def test_what_is_too_deep_or_too_long_is_left_out_alone() -> None:
    for opened, closed in ((b"[", b"]"), (b'{"a":', b"}")):
        line = b'{"a":%s,"b":"%s","c":%s}' % (opened * 300 + b"1" + closed * 300, b"[" * 300, b"7" * 500)
        kept = LEVELS_MAX - 2
        left_out = b'"[left out: too large for JSON]"'
        assert mended(line) == b'{"a":%s,"b":"%s","c":%s}' % (
            opened * kept + left_out + closed * kept, b"[" * 300, left_out
        )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b'{"jsonrpc":"2.0","id":5,"result":[}', 5),
        (b'{"jsonrpc":"2.0","result":[1,"id":7],"id":5}', 5),
        (b'{"jsonrpc":"2.0","id":"a","result":7}', "a"),
        (b'{"jsonrpc":"2.0","id":5,"method":[}', None),
        (b'{"jsonrpc":"2.0","id":5,"method":"x","params":7}', None),
        (b"this is no message", None),
    ],
)
def test_an_answer_that_cannot_be_read_is_told_to_whoever_waits_for_it(line: bytes, number: int | str | None) -> None:
    if number is None:
        with pytest.raises(ValueError, match=r"."):
            message_of(line)
        return
    message = message_of(line).message
    assert isinstance(message, types.JSONRPCError)
    assert (message.id, isinstance(message.error.data, Unreadable)) == (number, True)


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, *pieces: bytes) -> None:
        self._pieces = iter(pieces)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration


async def read(kind: str, *pieces: bytes, most: int = 100) -> bytes:
    response = httpx2.Response(200, headers={"Content-Type": kind}, stream=Pieces(*pieces))
    await bound(response, most=most)
    return await response.aread()


async def test_what_comes_over_http_is_mended_however_it_is_cut() -> None:
    assert await read("application/json", b'["', b"\\ud8", b'3d"]') == rb'["\ufffd"]'
    events = (b': x\ndata: ["\\ud8', b'3d"]\r\n\nda', b'ta: ["\xc3', b'\xa9"]\n', b"\n")
    assert await read("text/event-stream", *events) == b': x\ndata: ["\\ufffd"]\r\n\ndata: ["\xc3\xa9"]\n\n'


async def test_a_body_is_bounded_and_a_line_of_events_is_left_to_the_library() -> None:
    with pytest.raises(TooLong):
        await read("application/json", b"x" * 60, b"x" * 60)
    assert await read("text/event-stream", b"x" * 60, b"x" * 60) == b"x" * 120
