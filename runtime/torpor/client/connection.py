"""One socket after the other, for as long as the server can be hoped for. Knows asyncio and ``websockets``.

Above: ``TorporClient``. Below: ``ClientCore``, which is told what arrives and says what to send.
"""

import logging
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import anyio
from anyio.abc import TaskGroup
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus, InvalidURI, WebSocketException
from websockets.typing import Subprotocol

from torpor.client.core import ClientCore, ResendLater
from torpor.client.failures import NoToken, OtherPerson, ServerRefused
from torpor.client.options import ClientOptions
from torpor.client.tls_probe import speaks_tls
from torpor.client.trouble import answer_of, certificate_refused, ended, in_words, is_no_http, is_no_tls, status_of
from torpor.clock import Clock
from torpor.errors import ClientError, TokenExpired, Unauthenticated
from torpor.records.frames import SUBPROTOCOL, Welcome

FINAL_CLOSE_CODES: Final = frozenset({1009, 4401, 4413})
"""After these the same client would be closed again; see docs/protocol.md, "Closing"."""
_UNAUTHENTICATED: Final = 4401
_TOKEN_EXPIRED: Final = 4440
_PASSING_STATUS: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_EXPECTED: Final = "expected the WebSocket of a Torpor server"
_log = logging.getLogger(__name__)
"""The standard library's, since what a program does with its logs is none of our business; silent unless asked."""


def wait_s(failures: int, *, options: ClientOptions, chance: float) -> float:
    """How long to wait before the next attempt. Args: failures: in a row. chance: in [0, 1)."""
    doublings = min(max(failures - 1, 0), 32)
    return min(options.backoff_s * 2.0**doublings, options.backoff_max_s) * (1 - chance / 2)


class Connection:
    """See the module docstring.

    Args: jitter: gives numbers in [0, 1).  token_source: gives a token, and a newer one when that has expired; without
    it the core has the only one.  tls: what ``wss`` is checked with, instead of the system's own store.
    """

    def __init__(
        self,
        url: str,
        core: ClientCore,
        *,
        clock: Clock,
        jitter: Callable[[], float],
        options: ClientOptions,
        on_change: Callable[[Welcome | None], None],
        on_put_off: Callable[[str], None],
        token_source: Callable[[], Awaitable[str]] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = url
        self._core = core
        self._clock = clock
        self._jitter = jitter
        self._options = options
        self._on_change = on_change
        self._on_put_off = on_put_off
        self._token_source = token_source
        self._tls = (tls or True) if url.startswith("wss:") else None
        self._is_probed = False
        """Whether a plain address was asked for TLS."""
        self._outgoing: anyio.Event | None = None
        """Made by the writer when ``core.outgoing`` is empty."""
        self.opened = 0
        self.resent = 0
        self.final: ClientError | None = None
        """Why there is no point in it any more; known before ``on_change`` hears of the last connection's end."""
        self.trouble = ""
        """What stands in the way of a connection, or ended the last one; empty once the server has said welcome."""

    def wake(self) -> None:
        """Send what the core wants sent."""
        if self._outgoing is not None:
            self._outgoing.set()

    async def keep(self) -> ClientError:
        """Connect, and connect again whenever that ends; returns why there is no point in it any more."""
        failures = 0
        final: ClientError | None = await self._renewed() if self._token_source is not None else None
        while final is None:
            began_s = self._clock.monotonic_s()
            final = await self._connect_once()
            if self._is_renewable(final):
                final = await self._renewed()
            if final is not None:
                break
            is_stable = self._clock.monotonic_s() - began_s >= self._options.stable_s
            failures = 0 if is_stable else failures + 1
            await anyio.sleep(wait_s(failures, options=self._options, chance=self._jitter()))
        return final

    def _is_renewable(self, final: ClientError | None) -> bool:
        return isinstance(final, TokenExpired) and self._token_source is not None

    async def _renewed(self) -> NoToken | OtherPerson | None:
        """Have the source give a token; the error when it does not."""
        assert self._token_source is not None
        try:
            with anyio.fail_after(self._options.token_deadline_s):
                self._core.renew(await self._token_source())
        except OtherPerson as exc:
            return exc
        except Exception as exc:  # noqa: BLE001 - whatever our user's own function raises is why there is no token
            return NoToken(exc)
        return None

    async def _connect_once(self) -> ClientError | None:
        try:
            async with connect(
                self._url,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                compression=None,
                proxy=None,
                ssl=self._tls,
                max_size=self._options.frame_bytes_max,
                open_timeout=self._options.open_deadline_s,
                ping_interval=self._options.ping_interval_s,
                ping_timeout=self._options.ping_deadline_s,
                close_timeout=self._options.close_deadline_s,
            ) as socket:
                if socket.subprotocol != SUBPROTOCOL:
                    return ServerRefused(f"server at {self._url!r} does not speak {SUBPROTOCOL}")
                return await self._converse(socket)
        except InvalidURI as exc:
            if isinstance(exc.__context__, InvalidStatus):  # the server sent us to a page
                return self._answered(exc.__context__)
            return ServerRefused(f"{self._url!r} is no address of a server, expected ws://host:port")
        except ssl.SSLCertVerificationError as exc:
            if self.opened == 0:  # later on it may be what stands between for a while
                return certificate_refused(self._url, exc)
            self._note(exc)
            return None
        except InvalidStatus as exc:
            return self._answered(exc)
        except InvalidMessage as exc:
            return await self._no_answer(exc)
        except ssl.SSLError as exc:
            if self.opened == 0 and is_no_tls(exc):
                address = self._url.removeprefix("wss:")
                return ServerRefused(f"server at {self._url!r} speaks no TLS, expected the address ws:{address}")
            self._note(exc)
            return None
        except (OSError, EOFError, WebSocketException) as exc:  # TimeoutError is an OSError
            self._note(exc)
            return None

    def _note(self, exc: Exception) -> None:
        """It is tried again; why is kept for whoever asks."""
        self.trouble = in_words(exc)
        _log.debug("client.connection_failed url=%s why=%r", self._url, exc)

    def _answered(self, exc: InvalidStatus) -> ClientError | None:
        self._note(exc)
        return self._refusal(exc.response.status_code, answer=answer_of(exc.response))

    async def _no_answer(self, exc: InvalidMessage) -> ClientError | None:
        """What came back was nothing that the library reads."""
        self._note(exc)
        if (error := await self._wrong_scheme()) is not None:
            return error
        if (status := status_of(exc)) is not None:
            return self._refusal(status, answer=f"HTTP {status}")
        if self.opened == 0 and is_no_http(exc):
            return ServerRefused(f"server at {self._url!r} speaks no HTTP, {_EXPECTED}")
        return None

    async def _wrong_scheme(self) -> ServerRefused | None:
        """Once, before any connection, look whether what came back could have been TLS."""
        if self._tls is not None or self.opened or self._is_probed:
            return None
        self._is_probed = True
        if not await speaks_tls(self._url, deadline_s=self._options.open_deadline_s):
            return None
        address = self._url.removeprefix("ws:")
        return ServerRefused(f"server at {self._url!r} speaks TLS, expected the address wss:{address}")

    def _refusal(self, status: int, *, answer: str) -> ClientError | None:
        if status == HTTPStatus.UNAUTHORIZED:
            return Unauthenticated("the server does not accept the token")
        is_final = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
        if status < HTTPStatus.BAD_REQUEST:  # a page; after a connection it may be what stands between for a while
            is_final = self.opened == 0
        if is_final and status not in _PASSING_STATUS:
            return ServerRefused(f"server at {self._url!r} answered {answer}, {_EXPECTED}")
        return None

    async def _converse(self, socket: ClientConnection) -> ClientError | None:
        self.opened += 1
        self.trouble = "it has not said welcome"
        self._core.connected()
        final: ClientError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write, socket, name="client:write")
            try:
                final = await self._read(socket, tasks)
            finally:
                if not self._is_renewable(final):
                    self.final = final
                if self._core.welcome is not None:
                    self._on_change(None)
                self._core.disconnected()
                tasks.cancel_scope.cancel()
                await self._close(socket)
        return final

    async def _read(self, socket: ClientConnection, tasks: TaskGroup) -> ClientError | None:
        try:
            async for text in socket:
                before = self._core.welcome
                if (later := self._core.received(text)) is not None:
                    tasks.start_soon(self._resend, later, name="client:resend")
                if self._core.welcome is not before:
                    self.trouble = ""
                    self._on_change(self._core.welcome)
                if self._core.outgoing:
                    self.wake()
        except (Unauthenticated, ServerRefused) as exc:
            return exc
        except ConnectionClosed:
            _log.debug("client.connection_lost code=%s", socket.close_code)
        self.trouble = ended(socket.close_code, socket.close_reason)
        if socket.close_code == _TOKEN_EXPIRED:
            return TokenExpired()
        if socket.close_code == _UNAUTHENTICATED:
            return Unauthenticated(socket.close_reason or "the server does not accept the token")
        if socket.close_code in FINAL_CLOSE_CODES:
            return ServerRefused(f"server closed the connection for good: {socket.close_reason}")
        return None

    async def _write(self, socket: ClientConnection) -> None:
        try:
            while True:
                while self._core.outgoing:
                    with anyio.fail_after(self._options.send_deadline_s):
                        await socket.send(self._core.outgoing.popleft())
                self._outgoing = anyio.Event()
                await self._outgoing.wait()
        except ConnectionClosed:
            return  # the reader sees it as well
        except TimeoutError:
            socket.transport.abort()

    async def _resend(self, later: ResendLater) -> None:
        self._on_put_off(later.why)
        await anyio.sleep(later.after_s * (1 + self._jitter() / 4))
        self.resent += 1
        self._core.resend(later)
        self.wake()

    async def _close(self, socket: ClientConnection) -> None:
        with anyio.move_on_after(2 * self._options.close_deadline_s, shield=True) as closing:
            await socket.close()
        if closing.cancelled_caught:
            socket.transport.abort()
