"""What follows a request that is answered with many bytes: the socket alone, written to as fast as the client reads.

Above: the route of attachments. Below: the transport. ``websockets`` answers a request in one piece, all of which is
held until the client has read it, and the client has as long for that as for a handshake. So the connection gives its
transport away, and is told when that ends.
"""

import socket
from asyncio import Protocol
from contextlib import suppress
from typing import Final

import anyio

from torpor.gateway.metered import Metered

PIECE_BYTES: Final = 65_536
"""Given to the system at once; the next one waits until it has taken all of it."""
_SYSTEM_BYTES: Final = 131_072
"""What the system is asked to hold for the client. By itself it holds megabytes, and a client that reads slowly then
seems to stand still for minutes."""
_SAID_BYTES_MAX: Final = 4_096
"""What a client may say after its request, which is not looked at."""
_CUT_S: Final = 1.0


class Left(Exception):
    """The client ended the connection, or the network did."""


class Outflow(Protocol):
    """Takes the connection over; ``cut`` has to be called in the end."""

    def __init__(self, connection: Metered) -> None:
        self._connection = connection
        self._said_bytes = 0
        self._said_all = connection.has_said_all
        self._told_all = False
        self._gone = anyio.Event()
        self._room = anyio.Event()
        self._room.set()
        self._transport = connection.given_away()
        self._transport.set_protocol(self)
        self._transport.set_write_buffer_limits(high=1, low=0)  # with TLS, 0 is reached when nothing waits
        line = self._transport.get_extra_info("socket")
        with suppress(OSError):
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SYSTEM_BYTES)

    async def send(self, data: bytes | memoryview, *, stall_s: float) -> None:
        """Return when the system has taken ``data``.

        Raises: Left.  TimeoutError: the client read so little that it did not in ``stall_s``.
        """
        with anyio.fail_after(stall_s):
            if self._transport.is_closing():
                await self._gone.wait()
            else:
                self._transport.write(data)
                await self._room.wait()
        if self._gone.is_set():
            raise Left

    async def end(self, *, stall_s: float) -> None:
        """Say that this was all, and return when the client has left, or the system is left to give it the rest.

        Raises: TimeoutError: it did not leave in time, and the end may still wait here, which TLS does not tell.
        """
        self._told_all = True
        is_plain = self._transport.can_write_eof()
        if self._said_all:
            self._transport.close()
        elif is_plain and not self._transport.is_closing():
            self._transport.write_eof()
        with anyio.move_on_after(stall_s) as scope:
            await self._gone.wait()
        if scope.cancelled_caught and not is_plain:
            raise TimeoutError

    async def cut(self) -> None:
        """End the connection, as it is."""
        self._transport.abort()
        with anyio.move_on_after(_CUT_S, shield=True):
            await self._gone.wait()

    def pause_writing(self) -> None:
        self._room = anyio.Event()

    def resume_writing(self) -> None:
        self._room.set()

    def data_received(self, data: bytes) -> None:
        self._said_bytes += len(data)
        if self._said_bytes > _SAID_BYTES_MAX:
            self._transport.abort()

    def eof_received(self) -> bool:
        """Whether the client may still be written to; with TLS nobody can who has said all."""
        self._said_all = True
        return not self._told_all and self._transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        self._room.set()
        self._connection.connection_lost(exc)
