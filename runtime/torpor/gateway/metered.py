"""A connection whose bytes are parsed a little at a time, and which ends when its frames do not.

Above: the intake, which makes the kind that the server hands to ``websockets``. The library parses whatever one read
brings in one go, which may be 40,000 frames without content, and answers every ping among them; nobody else is served
meanwhile. Here a turn of the event loop parses some of it, the rest waits, and nothing more is read until it is done.

A client may say more, or that this was all, before its request is answered. Both wait for the answer: the library would
take them for an end of the connection, and give none.

Sessions count messages. What they never see is counted here: control frames, pieces of messages, and everything that
comes once the session has closed the connection.
"""

from asyncio import BaseTransport, Handle, Timeout, Transport, timeout
from collections.abc import Callable
from typing import Any, ClassVar, Final

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import InvalidMessage
from websockets.frames import DATA_OPCODES, Frame
from websockets.http11 import Request, Response
from websockets.protocol import State

from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.handshake import METHOD_BYTES_MAX, TLS_BEGINS, refused_body, refused_tls
from torpor.gateway.options import GatewayOptions

_PIECE_BYTES: Final = 512
"""Parsed without a look at how many frames it was; at most 85."""
_FRAMES_A_TURN: Final = 64
"""After so many of them everybody else has their turn. One long frame counts as one, so it is not held up."""
_LATE_FRAMES_MAX: Final = 64
"""Of a client that flooded, until it must have heard that it is closed."""


def _before_hello() -> CloseReason:
    return CloseReason.HELD_TOO_MUCH


class Metered(ServerConnection):
    """See the module docstring."""

    # Beside what the library has in its dictionary: with these it would be too large to share its keys with others.
    __slots__ = (
        "_counts_all",
        "_frames",
        "_is_answered",
        "_is_deaf",
        "_method",
        "_opening",
        "_spent",
        "_spent_at_s",
        "_turn",
        "_unread",
        "has_said_all",
        "on_flood",
    )

    options: ClassVar[GatewayOptions]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_flood: Callable[[], CloseReason] = _before_hello
        """Told when too many frames came; says with which code the connection ends."""
        self._counts_all = False
        """Whether whole messages count as well, since nobody looks at them any more."""
        self._is_answered = False
        """Whether the request was, with a page, a refusal or a WebSocket."""
        self.has_said_all = False
        """Whether the client did before it was answered; it may be written to."""
        self._opening: Timeout | None = None
        """While the request is read and answered."""
        self._is_deaf = False
        """Whether nothing that still comes is looked at."""
        self._unread = b""
        self._turn: Handle | None = None
        """The next one, if something waits for it."""
        self._frames = 0
        """Parsed in this turn."""
        self._spent = 0.0
        """Frames that count, less those for which there was room since."""
        self._spent_at_s = self.loop.time()
        self._method: bytes | None = b""
        """The beginning of the request, until it is known."""

    def expect_little(self, *, is_flooder: bool) -> None:
        """The session has closed the connection: what still comes counts, whatever it is."""
        self._counts_all = True
        if is_flooder:
            self._spent = max(self._spent, float(self.options.control_frames_burst - _LATE_FRAMES_MAX))
            self._spent_at_s = self.loop.time()

    def given_away(self) -> Transport:
        """To whoever answers the request in their own time: they have the transport, and tell ``connection_lost``.

        What came behind the request is not looked at.
        """
        if self._opening is not None:
            self._opening.reschedule(None)
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._unread = b""
        self.transport.resume_reading()
        if self.protocol.close_expected():  # which was no HTTP, and has been refused
            self.transport.abort()
        return self.transport

    async def handshake(self, *args: Any, **kwargs: Any) -> None:
        """The library's own deadline holds for every answer, however long it is; this one can be lifted."""
        async with timeout(self.options.hello_deadline_s) as opening:
            self._opening = opening
            try:
                await super().handshake(*args, **kwargs)
            finally:
                self._opening = None

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        # What was read and not parsed waits as well while the messages before it find no reader.
        self.recv_messages.resume = self._go_on

    def connection_lost(self, exc: Exception | None) -> None:
        self._parse_rest()
        super().connection_lost(exc)
        if self.response is not None:
            self.response.body = b""  # a page; connections are cycles, which may stay for long

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        if self._method == b"" and data.startswith(TLS_BEGINS) and self.transport.can_write_eof():  # not within TLS
            self._refuse_tls()
            return
        if self._method is not None:
            self._method = None if self.request else (self._method + data[:METHOD_BYTES_MAX])[:METHOD_BYTES_MAX]
        self._unread += data
        if self._turn is None:
            self._parse()

    def eof_received(self) -> bool:  # type: ignore[override]  # who has a transport may keep it open
        if self._waits and self.transport.can_write_eof():  # with TLS nobody can be written to who has said all
            self.has_said_all = True
            return True
        self._parse_rest()
        super().eof_received()
        return False

    def process_event(self, event: Frame | Request | Response) -> None:
        if isinstance(event, Frame):
            self._frames += 1
            if self._counts_all or event.opcode not in DATA_OPCODES or not event.fin:
                self._spent += 1
        super().process_event(event)

    def send_data(self) -> None:
        exc = self.protocol.handshake_exc
        if self._method and isinstance(exc, InvalidMessage):
            # The library refuses a request with a body without an answer.
            self.transport.write(refused_body(self._method, why=exc.__cause__))
            self._method = None
        super().send_data()
        if not self._is_answered and (self.protocol.eof_sent or self.protocol.state is not State.CONNECTING):
            self._is_answered = True
            self.loop.call_soon(self._after_answer)

    @property
    def _waits(self) -> bool:
        """Whether what the client says waits for the answer to its request."""
        return self.request is not None and not self._is_answered

    def _after_answer(self) -> None:
        if self.has_said_all:
            super().eof_received()
            self.transport.close()
        elif self._unread:
            self._go_on()

    def _parse(self) -> None:
        """One turn."""
        self._turn = None
        self._frames = at = 0
        unread = self._unread
        while at < len(unread) and self._frames < _FRAMES_A_TURN and not self.recv_messages.paused and not self._waits:
            end = at + _PIECE_BYTES
            if self.request is None and not self.protocol.eof_sent:  # which ends with a line
                end = unread.find(b"\n", at, end) + 1 or end
            super().data_received(unread[at:end])
            at = end
            if self._is_too_much():
                self._end_flood()
                return
        self._unread = unread[at:]
        if self._unread:
            self.transport.pause_reading()
        self._go_on()

    def _go_on(self) -> None:
        if self.recv_messages.paused:
            return
        if not self._unread:
            self.transport.resume_reading()
        elif self._turn is None and not self._waits:
            self._turn = self.loop.call_soon(self._parse)

    def _parse_rest(self) -> None:
        """What came before the end, as far as it is not too much; nobody waits for the end of it."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        unread, self._unread = b"" if self._waits else self._unread, b""
        self._counts_all = self._counts_all or bool(unread)
        for at in range(0, len(unread), _PIECE_BYTES):
            super().data_received(unread[at : at + _PIECE_BYTES])
            if self._is_too_much():
                self._end_flood()
                return

    def _is_too_much(self) -> bool:
        options = self.options
        if self._spent > options.control_frames_burst:
            now_s = self.loop.time()
            self._spent = max(self._spent - (now_s - self._spent_at_s) * options.control_frames_per_s, 0.0)
            self._spent_at_s = now_s
        return self._spent > options.control_frames_burst

    def _refuse_tls(self) -> None:
        """At once, since no line of a request would ever end."""
        self._is_deaf = True
        self.transport.write(refused_tls())
        self.transport.write_eof()  # a close over what is still sent would take the answer along
        self.loop.call_later(self.options.close_deadline_s, self.transport.abort)

    def _end_flood(self) -> None:
        """Say why, and look at nothing more that comes."""
        self._is_deaf = True
        self._unread = b""
        reason = self.on_flood()
        if self.protocol.state is State.CONNECTING:
            self.transport.abort()
        elif self.protocol.state is not State.CLOSED:
            self.protocol.fail(reason.code, reason.text)
            self.send_data()
            # What is still sent is read and thrown away meanwhile: a socket closed over it would take the code along.
            self.loop.call_later(self.options.close_deadline_s, self.transport.abort)
            self.transport.resume_reading()
