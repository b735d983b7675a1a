"""What the HTTP request that becomes a WebSocket says of its client, and what is answered when it does not."""

from http import HTTPStatus
from math import ceil
from typing import Final
from urllib.parse import urlsplit

from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from torpor.errors import KeysUnavailable, TokenExpired, Unauthenticated
from torpor.gateway.exposure import is_loopback_address

_OF_PROXIES: Final = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")
"""Headers by which a proxy says that it speaks for somebody."""
TLS_BEGINS: Final = b"\x16"
"""The first byte of a TLS handshake, and of no HTTP."""
METHOD_BYTES_MAX: Final = 16
"""Of a request, enough for its method."""


def is_local(connection: ServerConnection, request: Request | None) -> bool:
    """Whether the client is on this machine, and no proxy here says that it speaks for another one."""
    peer = connection.remote_address
    is_near = isinstance(peer, tuple) and bool(peer) and is_loopback_address(str(peer[0]))
    return is_near and request is not None and not any(name in request.headers for name in _OF_PROXIES)


def names_this_machine(request: Request) -> bool:
    """Whether it was sent to a name that leads to this machine everywhere. A web page may have its own name lead here,
    and would then read answers as its own; what sends no name is no browser."""
    hosts = request.headers.get_all("Host")
    if len(hosts) != 1:
        return not hosts
    try:
        name = urlsplit(f"//{hosts[0]}").hostname or ""
    except ValueError:
        return False
    return name == "localhost" or name.endswith(".localhost") or is_loopback_address(name)


def not_allowed(connection: ServerConnection) -> Response:
    """The answer to a method that changes something, on a page that is only read."""
    response = connection.respond(HTTPStatus.METHOD_NOT_ALLOWED, "expected GET or HEAD\n")
    response.headers["Allow"] = "GET, HEAD"
    return response


def refused_body(beginning: bytes, *, why: BaseException | None) -> bytes:
    """The answer to a request that the library refuses to read, such as one with a body; empty for what is no HTTP.

    Args: beginning: of the request.
    """
    method, blank, _ = beginning.partition(b" ")
    is_http = bool(blank) and method.isalpha() and method.isupper()
    if not is_http or not isinstance(why, ValueError | NotImplementedError):
        return b""
    if method in {b"GET", b"HEAD"}:
        status, more, text = HTTPStatus.BAD_REQUEST, "", "the request cannot be read, expected one without a body\n"
    else:
        status, more, text = HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET, HEAD\r\n", "expected GET or HEAD\n"
    return _head(status, more, text=text) + (b"" if method == b"HEAD" else text.encode())


def _head(status: HTTPStatus, more: str, *, text: str) -> bytes:
    """Of an answer in ``text``, which is ASCII; the connection ends with it."""
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n{more}Connection: close\r\nContent-Length: {len(text)}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n\r\n"
    ).encode()


def refused_tls() -> bytes:
    """The answer to whoever speaks TLS to a socket that does not. It is no TLS either, by which clients of TLS know."""
    text = "no TLS is spoken here, expected an address with ws:// or http://\n"
    return _head(HTTPStatus.BAD_REQUEST, "", text=text) + text.encode()


def without_room(connection: ServerConnection, *, retry_after_s: float) -> Response:
    """The answer to a connection beyond what the server holds."""
    response = connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections, try again later\n")
    response.headers["Retry-After"] = f"{ceil(retry_after_s)}"
    return response


def refusal(connection: ServerConnection, error: KeysUnavailable | Unauthenticated) -> Response:
    """The answer to a request with a token that does not open the connection."""
    if isinstance(error, KeysUnavailable):
        response = connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n")
        response.headers["Retry-After"] = f"{error.retry_after_s:.0f}"
        return response
    response = connection.respond(HTTPStatus.UNAUTHORIZED, f"{error}\n")
    # RFC 6750, 3: a client with an expired token knows by this that a newer one would do.
    expired = ' error="invalid_token", error_description="token has expired"'
    response.headers["WWW-Authenticate"] = "Bearer" + (expired if isinstance(error, TokenExpired) else "")
    return response
