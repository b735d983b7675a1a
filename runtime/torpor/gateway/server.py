"""Sockets: with the writer, the only module here that knows asyncio and ``websockets``.

Above: the composition root, which starts and stops it. Below: one ``Session``, one ``Outbox`` and one ``Writer`` for
each connection, with one task that reads. GET on the same port serves ``/healthz`` (the process answers) and
``/readyz`` (it takes work).

A client that does not read would hold a send for ever, and keep-alive does not help against it, since its pings wait
in the same line: every send has a deadline, and after it the connection is cut without ceremony.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, urlsplit
from weakref import WeakKeyDictionary

import anyio
import msgspec
import structlog
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from torpor.clock import Clock
from torpor.errors import KeysUnavailable, Unauthenticated
from torpor.gateway.attachment_route import AttachmentRoute
from torpor.gateway.auth import Principal
from torpor.gateway.authenticator import Authenticator
from torpor.gateway.close_reasons import CloseReason, closed_by_library
from torpor.gateway.downloads import Downloads
from torpor.gateway.exposure import is_loopback_address, reachable_here
from torpor.gateway.floods import FLOODS, Floods
from torpor.gateway.handshake import is_local, not_allowed, refusal, without_room
from torpor.gateway.intake import counted_by, open_intake
from torpor.gateway.limits import Limits
from torpor.gateway.metered import Metered
from torpor.gateway.metrics_route import PATH as METRICS_PATH
from torpor.gateway.metrics_route import MetricsRoute
from torpor.gateway.options import GatewayOptions
from torpor.gateway.origins import Origins, own_origins
from torpor.gateway.outbox import Outbox
from torpor.gateway.refusals import Refusals
from torpor.gateway.session import Session
from torpor.gateway.subscription import Ports
from torpor.gateway.upload_frames import LINK_PATH
from torpor.gateway.writer import Writer
from torpor.records.frames import SUBPROTOCOL

SOCKET_PATH: Final = "/"
_PAGES: Final = frozenset({"/healthz", "/readyz"})
_READING: Final = frozenset({"GET", "HEAD"})
_NO_HEADERS: Final = Headers()
_ORIGIN_CHARS_MAX: Final = 200
"""Of what a client calls its page, in the log."""
_log = structlog.get_logger()


class GatewayStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What is now, then counts since the start."""

    connections: int
    waiting_bytes: int
    """In all outboxes together."""
    opened: int
    refused: int
    """Handshakes answered with an error, and connections beyond what there is room for, which were cut at once."""
    cut: int
    """Connections cut because the client did not take a frame, or its own close, in time."""
    dropped: int
    """Deltas and progress frames for which there was no room."""
    errors: Mapping[str, int]
    """Error frames by their code."""
    closed: Mapping[str, int]
    """Connections that the gateway closed while it went on, by why; in words of ``CloseReason``, or of
    ``closed_by_library``."""
    joined: Mapping[str, int]
    """Subscriptions that began, by the frame that said so: ``resumed`` or ``reload``."""
    downloads: int
    """Files that are fetched by their links."""
    downloads_refused: int
    downloads_ended: Mapping[str, int]
    """By how; in words of ``Ending``."""


class Gateway:
    """A server that listens; made by ``open_gateway``."""

    def __init__(
        self,
        *,
        ports: Ports,
        authenticator: Authenticator,
        clock: Clock,
        options: GatewayOptions,
        is_ready: Callable[[], bool],
        tls: ssl.SSLContext | None = None,
        metrics: MetricsRoute | None = None,
    ) -> None:
        self._ports = ports
        self._authenticator = authenticator
        self._clock = clock
        self._options = options
        self._is_ready = is_ready
        self._tls = tls
        self._origins = Origins(options.origins)
        self._own_origins = frozenset[str]()
        """Known once it listens."""
        self.port = options.port
        """The one it listens on, also when the options left the choice to the system."""
        self._server: Server | None = None
        self._next_sweep: asyncio.TimerHandle | None = None
        self._intake = open_intake(options)
        self._limits = Limits(options, now_s=clock.monotonic_s)
        self._floods = Floods()
        self._refusals = Refusals()
        self._downloads = Downloads(options)
        self._attachments = AttachmentRoute(ports.uploads, downloads=self._downloads, options=options)
        self._sessions: dict[Session, Outbox] = {}
        self._principals = WeakKeyDictionary[ServerConnection, Principal]()
        """Of connections between their handshake and their session."""
        self._opened = 0
        self._refused = 0
        self._cut = 0
        self._dropped = 0
        self._metrics = metrics
        self._pages = _PAGES if metrics is None else _PAGES | {METRICS_PATH}
        self._errors = Counter[str]()
        self._closed = Counter[str]()
        self._joined = Counter[str]()

    @property
    def url(self) -> str:
        """For clients on the same machine: ``ws://host:port``, or ``wss``."""
        host = reachable_here(self._options.host)
        scheme = "ws" if self._tls is None else "wss"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    def statistics(self) -> GatewayStatistics:
        return GatewayStatistics(
            connections=len(self._sessions),
            waiting_bytes=sum(outbox.size_bytes for outbox in self._sessions.values()),
            opened=self._opened,
            refused=self._refused + self._intake.turned_away,
            cut=self._cut,
            dropped=self._dropped + sum(outbox.dropped for outbox in self._sessions.values()),
            errors=dict(self._errors),
            closed=dict(self._closed),
            joined=dict(self._joined),
            downloads=self._downloads.under_way,
            downloads_refused=self._downloads.refused,
            downloads_ended=self._downloads.ended,
        )

    async def stop(self, reason: CloseReason = CloseReason.GOING_AWAY) -> None:
        """Listen no more, close every connection with ``reason`` and wait for their ends; stopping twice is once.

        Takes at most the close deadline, after which connections are cut. Commands that were posted go on.
        """
        self._downloads.stop()
        if self._server is not None:
            self._server.close(code=reason.code, reason=reason.text)
            await self._server.wait_closed()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        options = self._options
        self._server = server = await serve(
            self._converse,
            options.host,
            options.port,
            ssl=self._tls,
            ssl_handshake_timeout=options.hello_deadline_s if self._tls is not None else None,
            process_request=self._admit,
            select_subprotocol=_select_subprotocol,
            compression=None,
            max_size=options.frame_bytes_max,
            open_timeout=None,  # see ``Metered.handshake``
            ping_interval=options.ping_interval_s,
            ping_timeout=options.ping_deadline_s,
            close_timeout=options.close_deadline_s,
            server_header=None,
            backlog=self._intake.backlog,
            create_connection=counted_by(self._intake, bounds=options),
        )
        try:
            addresses = [socket.getsockname() for socket in server.sockets]
            self.port = addresses[0][1]
            self._own_origins = own_origins(
                host=options.host,
                port=self.port,
                is_tls=self._tls is not None,
                is_loopback=all(is_loopback_address(address[0]) for address in addresses),
            )
            self._sweep()
            yield
        finally:
            await self._end()
            self._floods.tell()
            self._refusals.tell()
            if self._next_sweep is not None:
                self._next_sweep.cancel()

    async def _end(self) -> None:
        """Stop, then cut what has not ended by then, such as a request that never gets to its end."""
        for cut in (False, True):
            if cut:
                self._intake.cut()
            with anyio.move_on_after(2 * self._options.close_deadline_s, shield=True):
                await self.stop()
                return
        _log.error("gateway.not_ended", sockets=self._intake.sockets, connections=len(self._sessions))

    async def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """The HTTP answer; None opens the WebSocket."""
        response = await self._respond(connection, request)
        if response is not None and request.method == "HEAD":
            response.body = b""  # RFC 9110, 9.3.2: with the headers of a GET
        return response

    async def _respond(self, connection: ServerConnection, request: Request) -> Response | None:
        try:
            url = urlsplit(request.path)
        except ValueError:
            return connection.respond(HTTPStatus.BAD_REQUEST, "the address cannot be read\n")
        is_link = url.path.startswith(LINK_PATH)
        if (url.path in self._pages or is_link) and request.method not in _READING:
            return not_allowed(connection)
        if self._metrics is not None and url.path == METRICS_PATH:
            return await self._metrics.answer(connection, request)
        if is_link:
            return await self._attachments.answer(connection, request, ticket=url.path.removeprefix(LINK_PATH))
        response = self._answer(connection, request, url=url) or await self._authenticate(connection, request)
        if response is not None and url.path == SOCKET_PATH:
            self._refused += 1
            self._refusals.note(
                response.body.decode().strip(),
                address=connection.remote_address,
                origin=", ".join(request.headers.get_all("Origin"))[:_ORIGIN_CHARS_MAX],
            )
        return response

    def _answer(self, connection: ServerConnection, request: Request, *, url: SplitResult) -> Response | None:
        if url.path == "/healthz":
            return connection.respond(HTTPStatus.OK, "ok\n")
        if url.path == "/readyz":
            ready = self._is_ready()
            return connection.respond(
                HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, "ready\n" if ready else "not ready\n"
            )
        if url.path != SOCKET_PATH:
            return connection.respond(HTTPStatus.NOT_FOUND, f"nothing here, the WebSocket is at {SOCKET_PATH}\n")
        if url.query:
            # URLs are logged everywhere; a token there is a leak, and nothing else is expected there.
            return connection.respond(
                HTTPStatus.BAD_REQUEST,
                "no query is expected; a token belongs in the Authorization header or in hello\n",
            )
        if not self._origins.admit(request.headers.get_all("Origin"), own=self._own_origins):
            return connection.respond(HTTPStatus.FORBIDDEN, "this page may not connect, see gateway.origins\n")
        if len(self._sessions) >= self._intake.connections_max:
            return without_room(connection, retry_after_s=self._options.connections_retry_s)
        return None

    async def _authenticate(self, connection: ServerConnection, request: Request) -> Response | None:
        headers = request.headers.get_all("Authorization")
        if not headers:
            return None  # the token comes in hello
        scheme, _, token = headers[0].partition(" ")
        try:
            if len(headers) > 1 or scheme.lower() != "bearer":
                raise Unauthenticated("expected one Authorization header with a Bearer token")
            self._principals[connection] = await self._authenticator.identify(
                token.strip(), is_local=is_local(connection, request)
            )
        except (Unauthenticated, KeysUnavailable) as exc:
            return refusal(connection, exc)
        return None

    async def _converse(self, connection: ServerConnection) -> None:
        self._opened += 1
        outbox = Outbox(self._options, errors=self._errors, joined=self._joined)
        async with anyio.create_task_group() as tasks:
            session = Session(
                ports=self._ports,
                authenticator=self._authenticator,
                outbox=outbox,
                tasks=tasks,
                clock=self._clock,
                options=self._options,
                limits=self._limits,
                principal=self._principals.pop(connection, None),
                is_local=is_local(connection, connection.request),
            )
            _forget_headers(connection)
            self._sessions[session] = outbox
            assert isinstance(connection, Metered)
            connection.on_flood = session.flooded
            writer = Writer(connection, outbox, tasks=tasks, options=self._options, on_cut=self._count_cut)
            try:
                await _read(connection, session, outbox=outbox)
            finally:
                del self._sessions[session]
                session.end()
                self._dropped += outbox.dropped
                if (why := _why_closed(connection, outbox)) is not None:
                    self._closed[why] += 1
                if outbox.closing in FLOODS:
                    self._floods.note(address=connection.remote_address, principal=session.principal)
                if session.refusal:
                    self._refusals.note(session.refusal, address=connection.remote_address)
                writer.stop()
                tasks.cancel_scope.cancel()

    def _count_cut(self) -> None:
        self._cut += 1

    def _sweep(self) -> None:
        # A timer of the loop, since a task group around the caller's block would wrap whatever is raised in it.
        self._next_sweep = asyncio.get_running_loop().call_later(self._options.sweep_s, self._sweep)
        for session in tuple(self._sessions):
            session.check()
        self._limits.sweep()
        self._floods.tell()
        self._refusals.tell()


async def _read(connection: Metered, session: Session, *, outbox: Outbox) -> None:
    is_closing = False
    try:
        async for message in connection:
            if isinstance(message, str):
                session.receive(message)
            else:
                session.receive_binary(message)
            if outbox.closing is not None and not is_closing:
                is_closing = True
                connection.expect_little(is_flooder=outbox.closing in FLOODS)
    except ConnectionClosed:
        return  # without a closing handshake, which is how clients vanish


def _why_closed(connection: ServerConnection, outbox: Outbox) -> str | None:
    """In a word; None where the client left, or the whole server ends."""
    if outbox.closing is not None:
        return outbox.closing.name.lower()
    sent = connection.protocol.close_sent
    is_ours = sent is not None and not connection.protocol.close_rcvd_then_sent
    return closed_by_library(sent.code, sent.reason) if sent is not None and is_ours else None


def _forget_headers(connection: ServerConnection) -> None:
    """Those of the handshake would be a fifth of what an idle connection costs, and nobody reads them again."""
    for message in (connection.request, connection.response):
        if message is not None:
            message.headers = _NO_HEADERS


def _select_subprotocol(_connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Ours when it is offered; a client that offers none, or others only, decides by the answer whether to stay."""
    return Subprotocol(SUBPROTOCOL) if SUBPROTOCOL in offered else None


@asynccontextmanager
async def open_gateway(
    *,
    ports: Ports,
    authenticator: Authenticator,
    clock: Clock,
    options: GatewayOptions,
    is_ready: Callable[[], bool] = lambda: True,
    tls: ssl.SSLContext | None = None,
    metrics: MetricsRoute | None = None,
) -> AsyncIterator[Gateway]:
    """Listen until the block is left, then stop with ``GOING_AWAY`` unless it was stopped before.

    Args:
        tls: what connections are encrypted with; none means that they are not.
        metrics: answers at ``/metrics``; without it nothing is there.

    Raises: OSError: the address cannot be listened on.
    """
    gateway = Gateway(
        ports=ports,
        authenticator=authenticator,
        clock=clock,
        options=options,
        is_ready=is_ready,
        tls=tls,
        metrics=metrics,
    )
    async with gateway._listening():
        yield gateway
