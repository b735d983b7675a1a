"""What a server answers over HTTP, bounded, and mended before the library reads it.

Above: ``sdk``. What cannot be mended the library tells by an error at once, as it does not over a program's output.
"""

from collections.abc import AsyncIterator
from typing import Final

import httpx2

from torpor.toolhost.mcp.lines import TooLong, readable

_DATA: Final = b"data:"


async def bound(response: httpx2.Response, *, most: int) -> None:
    """Have a body be mended, and end where it is too long; of a stream of events each one has its own bound."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise TooLong("a packed answer, which was not asked for")
    if isinstance(response.stream, httpx2.AsyncByteStream):
        is_stream = response.headers.get("Content-Type", "").startswith("text/event-stream")
        response.stream = (_MendedEvents if is_stream else _MendedBody)(response.stream, most)


class _MendedBody(httpx2.AsyncByteStream):
    """As whole as the library reads it. Raises: TooLong."""

    def __init__(self, body: httpx2.AsyncByteStream, most: int) -> None:
        self._body = body
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        whole = bytearray()
        async for piece in self._body:
            whole += piece
            if len(whole) > self._most:
                raise TooLong(f"an answer of more than {self._most:,} bytes")
        yield readable(bytes(whole))

    async def aclose(self) -> None:
        await self._body.aclose()


class _MendedEvents(_MendedBody):
    """Line by line; what is too long for one the library refuses."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = bytearray()
        async for piece in self._body:
            rest += piece
            if b"\n" in piece:
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    yield _mended_event(bytes(line)) + b"\n"
            if len(rest) > self._most:
                yield bytes(rest)
                rest.clear()
        yield _mended_event(bytes(rest))


def _mended_event(line: bytes) -> bytes:
    head, said = line[: len(_DATA)], line[len(_DATA) :]
    return head + readable(said) if head == _DATA and said.strip() else line
