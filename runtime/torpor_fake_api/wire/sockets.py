"""TCP with the socket in our own hands, on either event loop: a stream that can be reset, a port that can refuse.

anyio's streams close politely and as their backend likes, so both are made here on top of ``wait_readable`` and
``wait_writable``.
"""

import errno
import socket
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

RECEIVE_BYTES: Final = 65_536
SEND_TIMEOUT_S: Final = 60.0
BACKLOG: Final = 1024

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_BROKEN: Final = (ConnectionError, anyio.ClosedResourceError)
_OUT_OF_HANDLES: Final = frozenset({errno.EMFILE, errno.ENFILE})


class Gone(Exception):
    """The peer closed or reset the connection."""


class Stream:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def is_open(self) -> bool:
        return self._sock.fileno() >= 0

    async def receive(self) -> bytes:
        """What came next; nothing when the peer has finished. Raises: Gone: it was reset."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        try:
            while True:
                with suppress(BlockingIOError):
                    return self._sock.recv(RECEIVE_BYTES)
                await anyio.wait_readable(self._sock)
        except _BROKEN as exc:
            raise Gone(str(exc)) from exc

    async def send(self, data: bytes) -> None:
        """Raises: Gone: the peer left. TimeoutError: it reads nothing."""
        await anyio.lowlevel.checkpoint()
        try:
            sent = self._send_now(data)
            if sent < len(data):
                await self._send_rest(memoryview(data)[sent:])
        except _BROKEN as exc:
            raise Gone(str(exc)) from exc

    def _send_now(self, data: bytes | memoryview) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0

    async def _send_rest(self, data: memoryview) -> None:
        with anyio.fail_after(SEND_TIMEOUT_S):
            while data:
                await anyio.wait_writable(self._sock)
                data = data[self._send_now(data) :]

    def close(self, *, is_reset: bool = False) -> None:
        """Close it; with ``is_reset`` the peer is told that the connection broke."""
        if not self.is_open:
            return
        if is_reset:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        anyio.notify_closing(self._sock)
        self._sock.close()


class Listener:
    """A port that may be closed and opened again."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        """Where 0 is given, the port that was found."""
        self._sock: socket.socket | None = None
        self._accepting = anyio.CancelScope()

    def __repr__(self) -> str:
        state = "open" if self._sock else "closed"
        return f"<Listener {self.host}:{self.port} {state}>"

    @property
    def is_open(self) -> bool:
        return self._sock is not None

    def open(self, group: TaskGroup, serve: Callable[[Stream], Coroutine[Any, Any, None]]) -> None:
        """Bind, listen, and start ``serve`` in ``group`` for each connection. Raises: OSError: the port is taken."""
        sock = socket.socket()
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self.host, self.port))
            sock.listen(BACKLOG)
            sock.settimeout(0)
        except OSError:
            sock.close()
            raise
        self.port = sock.getsockname()[1]
        self._sock, self._accepting = sock, anyio.CancelScope()
        accept = partial(_accept, sock, scope=self._accepting, group=group, serve=serve)
        group.start_soon(accept, name="fake_api.listener")

    def close(self) -> None:
        """Refuse connections from now on."""
        if self._sock is None:
            return
        self._accepting.cancel()
        anyio.notify_closing(self._sock)
        self._sock.close()
        self._sock = None


async def _accept(
    sock: socket.socket,
    *,
    scope: anyio.CancelScope,
    group: TaskGroup,
    serve: Callable[[Stream], Coroutine[Any, Any, None]],
) -> None:
    with scope:
        while not scope.cancel_called:
            try:
                await anyio.wait_readable(sock)
                connection, _ = sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except anyio.ClosedResourceError:
                return
            except OSError as exc:
                if exc.errno not in _OUT_OF_HANDLES:
                    raise
                await anyio.sleep(0.05)  # until others have closed
                continue
            group.start_soon(serve, Stream(connection), name="fake_api.connection")
