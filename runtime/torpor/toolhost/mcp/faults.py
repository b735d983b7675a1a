"""Why a server cannot be reached, in words that hold nothing of what was sent: no path, no value, no page.

Above: ``sdk``. Its own words for most faults are the class of an error deep inside a group.
"""

import re
import socket
import ssl
from typing import Final

import httpx2
import mcp_types as types
from mcp import MCPError

_TERMINATED: Final = (types.INVALID_REQUEST, "Session terminated")
"""As the SDK tells of a 404 within a session that says no more."""
_OF_SESSIONS: Final = re.compile(r"\bsession\b|not initialized", re.IGNORECASE)
"""As servers say in a 400 that they know none."""


class Statuses:
    """Hears how requests are answered; the SDK tells of most faults that there was one."""

    def __init__(self) -> None:
        self.refused = 0
        """The last status that was none of success; 0 for none."""

    async def heed(self, response: httpx2.Response) -> None:
        if response.request.method == "POST":  # what else is asked for, a server need not have
            self.refused = response.status_code if response.status_code >= 300 else 0


def is_session_gone(exc: MCPError, statuses: Statuses) -> bool:
    """Whether a server that was restarted knows no session of before it; then it has done nothing."""
    match statuses.refused:
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
        case httpx2.ConnectError():
            return _why_not_connected(exc)
        case httpx2.TimeoutException():
            return "it cannot be reached in time"
    return ""


def _remedy(status: int) -> str:
    if status in {401, 403}:
        return "; look at headers, and at what they refer to"
    return "; look at the path of url" if status in {301, 302, 307, 308, 404, 405} else ""


def _why_not_connected(exc: BaseException | None) -> str:
    while exc is not None:
        match exc:
            case ssl.SSLCertVerificationError():
                return "its certificate cannot be verified"
            case ssl.SSLError():
                return "it cannot be spoken to by TLS; perhaps its url begins with http://"
            case socket.gaierror():
                return "there is no such host"
        exc = exc.__cause__ or exc.__context__
    return "nothing answers at its address"
