"""``GET /metrics``: the numbers of the server, for whoever may read them.

Above: the server, which hands in requests for this path. Below: whatever makes the page; what is on it is no business
of a gateway. They name agents, tools and models, and tell how much is done: not for everybody on a network.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Literal, Protocol, TypeAlias

from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from torpor.errors import KeysUnavailable, Unauthenticated
from torpor.gateway.auth import Scope
from torpor.gateway.authenticator import Authenticator
from torpor.gateway.exposure import is_loopback_address
from torpor.gateway.handshake import is_local, names_this_machine, refusal
from torpor.gateway.options import GatewayOptions

PATH: Final = "/metrics"
Access: TypeAlias = Literal["loopback", "operator", "open"]
"""``loopback``: anybody on this machine who asks for it by a name like ``localhost``, where the server listens there
only and no proxy stands before it; everybody else as with ``operator``, by a token with that scope."""


class Page(Protocol):
    """What is answered."""

    @property
    def content_type(self) -> str: ...

    @property
    def body(self) -> bytes: ...


class MetricsRoute:
    """See the module docstring."""

    def __init__(
        self,
        page: Callable[[str], Awaitable[Page]],
        *,
        access: Access,
        authenticator: Authenticator,
        options: GatewayOptions,
    ) -> None:
        """Args: page: makes one in the format that an ``Accept`` header asks for."""
        self._page = page
        self._access = access
        self._authenticator = authenticator
        is_private = options.host == "localhost" or is_loopback_address(options.host)
        self._trusts_near = access == "loopback" and is_private and options.tls != "terminated"

    async def answer(self, connection: ServerConnection, request: Request) -> Response:
        """The page, or why not."""
        near = is_local(connection, request)
        if self._access != "open" and not (self._trusts_near and near and names_this_machine(request)):
            refused = await self._refused(connection, request, is_local=near)
            if refused is not None:
                return refused
        page = await self._page(", ".join(request.headers.get_all("Accept")))
        response = connection.respond(HTTPStatus.OK, "")
        for name, value in (("Content-Type", page.content_type), ("Content-Length", str(len(page.body)))):
            del response.headers[name]
            response.headers[name] = value
        response.body = page.body
        return response

    async def _refused(self, connection: ServerConnection, request: Request, *, is_local: bool) -> Response | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            if scheme.lower() != "bearer":
                raise Unauthenticated("the numbers are for operators, expected an Authorization header with a token")
            principal = await self._authenticator.identify(token.strip(), is_local=is_local)
        except (Unauthenticated, KeysUnavailable) as exc:
            return refusal(connection, exc)
        if not principal.may(Scope.OPERATOR):
            return connection.respond(HTTPStatus.FORBIDDEN, "the numbers are for tokens with the scope operator\n")
        return None
