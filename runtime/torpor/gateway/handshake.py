"""What the HTTP request that becomes a WebSocket says of its client, and what is answered when it does not."""

from http import HTTPStatus
from typing import Final

from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from torpor.errors import KeysUnavailable, TokenExpired, Unauthenticated
from torpor.gateway.exposure import is_loopback_address

_OF_PROXIES: Final = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")
"""Headers by which a proxy says that it speaks for somebody."""


def is_local(connection: ServerConnection, request: Request | None) -> bool:
    """Whether the client is on this machine, and no proxy here says that it speaks for another one."""
    peer = connection.remote_address
    is_near = isinstance(peer, tuple) and bool(peer) and is_loopback_address(str(peer[0]))
    return is_near and request is not None and not any(name in request.headers for name in _OF_PROXIES)


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
