"""HTTP/1.1 over one connection, by h11: requests come in whole, responses go out step by step."""

from collections.abc import Sequence
from http.client import responses
from typing import Final, NamedTuple

import anyio
import h11

from torpor_fake_api.wire.sockets import Gone, Stream

IDLE_TIMEOUT_S: Final = 600.0
"""Of a connection between two requests."""
REQUEST_TIMEOUT_S: Final = 60.0
"""From the head of a request to its end."""
KEPT_BYTES: Final = 33 * 1024 * 1024
"""Of a body; what is longer is read and dropped, since it is refused anyway."""


class Request(NamedTuple):
    """One request, read."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    size_bytes: int
    """Of the body, also where it was too long to keep."""


class BadRequest(Exception):
    """What came is no HTTP."""


class Exchange:
    """One connection and the state of HTTP on it."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.SERVER)
        self._slow = (0, 0.0)

    async def receive(self) -> Request | None:
        """The next request; None when the client is done. Raises: BadRequest, Gone, TimeoutError."""
        try:
            with anyio.fail_after(IDLE_TIMEOUT_S):
                head = await self._next_event()
            if not isinstance(head, h11.Request):
                return None
            with anyio.fail_after(REQUEST_TIMEOUT_S):
                return await self._read_rest(head)
        except h11.RemoteProtocolError as exc:
            raise BadRequest(str(exc)) from exc

    async def _read_rest(self, head: h11.Request) -> Request:
        if self._http.they_are_waiting_for_100_continue:
            await self.send_event(h11.InformationalResponse(status_code=100, headers=[]))
        parts, size = [], 0
        while not isinstance(event := await self._next_event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise Gone("the client left in the middle of its request")
            size += len(event.data)
            if size <= KEPT_BYTES:
                parts.append(bytes(event.data))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        body = b"".join(parts) if size <= KEPT_BYTES else b""
        return Request(head.method.decode(), head.target.decode("latin-1"), headers, body, size)

    async def _next_event(self) -> h11.Event | None:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self.stream.receive())
            else:
                return event if isinstance(event, h11.Event) else None

    async def send_head(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        reason = responses.get(status, "Overloaded")
        await self.send_event(h11.Response(status_code=status, headers=list(headers), reason=reason.encode()))

    async def send_data(self, data: bytes) -> None:
        await self.send_event(h11.Data(data=data))

    async def end(self) -> None:
        """Complete the response."""
        await self.send_event(h11.EndOfMessage())

    def restart(self) -> bool:
        """Make ready for the next request, if there can be one."""
        is_done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if not is_done or not self.stream.is_open:
            return False
        self._http.start_next_cycle()
        self._slow = (0, 0.0)
        return True

    def slow_down(self, size_bytes: int, interval_s: float) -> None:
        """Send so many bytes at a time until the response ends."""
        self._slow = (size_bytes, interval_s)

    async def send_event(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            await self.send_raw(data)

    async def send_raw(self, data: bytes) -> None:
        """Bytes outside HTTP's framing, or with it."""
        size, interval_s = self._slow
        if not size:
            await self.stream.send(data)
            return
        for at in range(0, len(data), size):
            await self.stream.send(data[at : at + size])
            if interval_s:
                await anyio.sleep(interval_s)

    async def client_left(self) -> None:
        """Wait until the client closes the connection; what it sends meanwhile is kept for the next request."""
        try:
            while data := await self.stream.receive():
                self._http.receive_data(data)
        except Gone:
            return
