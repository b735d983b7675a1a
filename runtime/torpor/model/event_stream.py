"""Server-sent events out of the bytes of a body, as they come: pure.

Above: the adapter, which hands in what it read. A read may hold several events, half of one, or the middle of a
character; whatever is not complete waits for the next read. Fields other than ``event`` and ``data`` mean nothing here.

Source: the HTML standard, "Server-sent events".
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from torpor.provider_errors import StreamLost

EVENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""An event without end must not fill the memory; the largest real ones are blocks that server-side tools leave."""


class ServerEvent(NamedTuple):
    """One event; the name is empty when it has none."""

    name: bytes
    data: bytes


class EventSplitter:
    """Takes the body read by read."""

    def __init__(self) -> None:
        self._rest = b""
        self._had_return = False

    def take(self, read: bytes) -> list[ServerEvent]:
        """The events that are complete now. Raises: StreamLost: one is longer than any can be."""
        before = len(self._rest)
        self._rest += self._with_plain_line_ends(read)
        if self._rest.find(b"\n\n", max(before - 1, 0)) < 0:
            if len(self._rest) > EVENT_BYTES_MAX:
                raise StreamLost(f"an event of the stream is longer than {EVENT_BYTES_MAX} bytes")
            return []
        *blocks, self._rest = self._rest.split(b"\n\n")
        return list(_events(blocks))

    def _with_plain_line_ends(self, read: bytes) -> bytes:
        if self._had_return and read.startswith(b"\n"):
            read = read[1:]  # the second half of a line's end whose first half has been counted
        self._had_return = read.endswith(b"\r")
        return read.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in read else read


def _events(blocks: list[bytes]) -> Iterator[ServerEvent]:
    for block in blocks:
        name, data = b"", []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif field == b"event":
                name = value.removeprefix(b" ")
        if data:
            yield ServerEvent(name, data[0] if len(data) == 1 else b"\n".join(data))
