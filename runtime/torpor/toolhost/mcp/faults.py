"""Why a server cannot be reached, in words that hold nothing of what was sent: no path, no value, no page.

Above: ``sdk``. Its own words for most faults are the class of an error deep inside a group.
"""

import re
import socket
import ssl
from typing import Final

import httpx2
import mcp_types as types
import msgspec
from mcp import MCPError

_REFUSALS_MAX: Final = 256
_HOST_CHARS: Final = 255
_TERMINATED: Final = (types.INVALID_REQUEST, "Session terminated")
"""As the SDK tells of a 404 within a session that says no more."""
_OF_SESSIONS: Final = re.compile(r"\bsession\b|not initialized", re.IGNORECASE)
"""As servers say in a 400 that they know none."""


class Refusal(msgspec.Struct, frozen=True):
    """How a request was answered, that was not answered with success."""

    status: int
    """Of HTTP."""
    host: str = ""
    """Where it was sent to instead."""
    unsent: str = ""
    """Why nothing of it was sent at all."""

    @property
    def is_of_whoever_asks(self) -> bool:
        return self.status in {401, 403}


class Statuses:
    """Hears how requests are answered; the SDK tells of most faults that there was one."""

    def __init__(self) -> None:
        self.is_open = False
        """The session is, so that what cannot be sent is one call's fault."""
        self.refused = 0
        """The last status that was none of success; 0 for none."""
        self._refusals: dict[int | str, Refusal] = {}
        """By the id of the request, of which several are under way."""

    async def heed(self, response: httpx2.Response) -> None:
        if response.request.method != "POST":  # what else is asked for, a server need not have
            return
        self.refused = response.status_code if response.status_code >= 300 else 0
        if self.refused and (asked := _id_of(response.request)) is not None:
            self._note(asked, Refusal(self.refused, _host_of(response)))

    def never_sent(self, request: httpx2.Request, why: str) -> bool:
        """Note that there was no connection for ``request``; false where that is not the fault of one call."""
        asked = _id_of(request) if self.is_open and request.method == "POST" else None
        if asked is not None:
            self._note(asked, Refusal(0, unsent=why))
        return asked is not None

    def refusal(self, asked: int | str | None) -> Refusal | None:
        """Of the request of this id, once."""
        return None if asked is None else self._refusals.pop(asked, None)

    def _note(self, asked: int | str, refusal: Refusal) -> None:
        if len(self._refusals) >= _REFUSALS_MAX:
            self._refusals.pop(next(iter(self._refusals)))
        self._refusals[asked] = refusal


class _Request(msgspec.Struct):
    id: int | str | None = None


def _id_of(request: httpx2.Request) -> int | str | None:
    try:
        return msgspec.json.decode(request.content, type=_Request).id
    except (httpx2.RequestNotRead, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _host_of(response: httpx2.Response) -> str:
    try:
        return httpx2.URL(response.headers.get("Location", "")).host[:_HOST_CHARS]
    except (httpx2.InvalidURL, ValueError):
        return ""


def is_session_gone(exc: MCPError, refusal: Refusal | None) -> bool:
    """Whether a server that was restarted knows no session of before it; then it has done nothing."""
    match refusal.status if refusal is not None else 0:
        case 404:
            return exc.code != types.METHOD_NOT_FOUND
        case 400:
            return _OF_SESSIONS.search(exc.message) is not None
    return (exc.code, exc.message) == _TERMINATED


def why_unreachable(exc: BaseException, statuses: Statuses) -> str:
    """Empty for what its kind alone tells. Args: exc: what opening a session ended with, as it is or in groups."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    match exc:
        case MCPError() | httpx2.HTTPStatusError() if statuses.refused:
            return f"it answered HTTP {statuses.refused}{_remedy(statuses.refused)}"
        case MCPError() if str(exc.message).startswith("Unexpected content type"):
            return "what answers there speaks no MCP; look at the path of url"
        case MCPError():
            return f"the server refused with error {exc.code}"
        case httpx2.ConnectError() | httpx2.TimeoutException():
            return why_not_connected(exc)
    return ""


def _remedy(status: int) -> str:
    if status in {401, 403}:
        return "; look at headers, and at what they refer to"
    return "; look at the path of url" if status in {301, 302, 307, 308, 404, 405} else ""


def why_not_connected(exc: BaseException | None) -> str:
    """Args: exc: of whoever tried."""
    while exc is not None:
        match exc:
            case httpx2.TimeoutException():
                return "it cannot be reached in time"
            case ssl.SSLCertVerificationError():
                return "its certificate cannot be verified"
            case ssl.SSLError():
                return "it cannot be spoken to by TLS; perhaps its url begins with http://"
            case socket.gaierror():
                return "there is no such host"
        exc = exc.__cause__ or exc.__context__
    return "nothing answers at its address"
