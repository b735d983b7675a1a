"""From one client's outbox to its socket, without a task while the socket takes what it is given.

Above: the server, which makes one for each connection. Below: the outbox, which says when something may leave. Beside
the server, the only module here that knows ``websockets``.

Most frames fit into what the system buffers for a socket, so they are written from a callback of the loop, all that
wait at once. A frame that does not, and the end of the connection, get a task, in which sending has a deadline.
"""

from asyncio import AbstractEventLoop, Handle
from collections.abc import Callable
from math import inf
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup
from websockets.asyncio.server import ServerConnection, broadcast
from websockets.exceptions import ConnectionClosed

from torpor.gateway.options import GatewayOptions
from torpor.gateway.outbox import Outbox, nobody_asks
from torpor.records.binary import is_binary

UNSENT_BYTES_MAX: Final = 32_768
"""Beyond what the system buffers; more than that waits for the client. The bound at which ``websockets`` waits."""
_log = structlog.get_logger()


class Writer:
    """See the module docstring. ``tasks`` belongs to the connection and ends with it; ``on_cut`` is told of a client
    that did not take a frame, or its own close, in time."""

    __slots__ = ("_connection", "_is_busy", "_is_next", "_next", "_on_cut", "_options", "_outbox", "_tasks")

    def __init__(
        self,
        connection: ServerConnection,
        outbox: Outbox,
        *,
        tasks: TaskGroup,
        options: GatewayOptions,
        on_cut: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._outbox = outbox
        self._tasks = tasks
        self._options = options
        self._on_cut = on_cut
        self._next: Handle | None = None
        """The next call of ``_write``."""
        self._is_next = False
        """Whether that is due at once."""
        self._is_busy = False
        """Whether a task sends, or the end has come."""
        outbox.on_ready = self.wake
        if outbox.pause_s() < inf:  # something was put in, or closed it, before anybody looked
            self.wake()

    def wake(self) -> None:
        """Something may leave, or the connection is to be closed."""
        if self._is_busy or self._is_next:
            return
        if self._next is not None:
            if self._outbox.pause_s() > 0:
                return
            self._next.cancel()
        self._is_next = True
        self._next = self._loop.call_soon(self._write)

    def stop(self) -> None:
        """The connection is gone: write nothing any more."""
        self._is_busy = True
        self._outbox.on_ready = nobody_asks
        if self._next is not None:
            self._next.cancel()

    @property
    def _loop(self) -> AbstractEventLoop:
        return self._connection.loop

    def _write(self) -> None:
        self._next, self._is_next = None, False
        transport = self._connection.transport
        while (data := self._outbox.take()) is not None:
            if transport.is_closing():
                return  # the client is gone: the reader sees it as well, and ends the session
            if transport.get_write_buffer_size() + len(data) > UNSENT_BYTES_MAX:
                self._send(data)
                return
            broadcast((self._connection,), data, text=not is_binary(data))
        if self._outbox.closing is not None:
            self._send(None)
        elif (pause_s := self._outbox.pause_s()) < inf:
            self._next = self._loop.call_later(pause_s, self._write)

    def _send(self, data: bytes | None) -> None:
        self._is_busy = True
        self._tasks.start_soon(self._send_all, data, name="gateway:write")

    async def _send_all(self, data: bytes | None) -> None:
        """Send ``data`` and what waits behind it, then close the connection if it is to be closed."""
        try:
            while data is not None:
                with anyio.fail_after(self._options.send_deadline_s):
                    await self._connection.send(data, text=not is_binary(data))
                data = self._outbox.take()
            if (reason := self._outbox.closing) is not None:
                with anyio.fail_after(2 * self._options.close_deadline_s):
                    await self._connection.close(reason.code, reason.text)
                return
        except ConnectionClosed:
            return  # the reader sees it as well, and ends the session
        except TimeoutError:
            self._on_cut()
            _log.warning("gateway.client_cut", outbox=repr(self._outbox), deadline_s=self._options.send_deadline_s)
            self._connection.transport.abort()
            return
        self._is_busy = False
        self.wake()
