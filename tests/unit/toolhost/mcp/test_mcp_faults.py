"""Why a server cannot be reached is told in words that help, and that hold nothing of what was sent."""

import socket
import ssl

import httpx2
import pytest
from mcp import MCPError

from torpor.toolhost.mcp.faults import Refusal, Statuses, is_session_gone, why_unreachable

POST = httpx2.Request("POST", "http://x/secret")


def not_connected(cause: Exception) -> httpx2.ConnectError:
    exc = httpx2.ConnectError("secret")
    exc.__cause__ = cause
    return exc


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (401, "it answered HTTP 401; look at headers, and at what they refer to"),
        (404, "it answered HTTP 404; look at the path of url"),
        (500, "it answered HTTP 500"),
    ],
)
async def test_the_status_of_a_refusal_is_told_with_its_remedy(status: int, why: str) -> None:
    statuses = Statuses()
    await statuses.heed(httpx2.Response(status, request=POST))
    await statuses.heed(httpx2.Response(405, request=httpx2.Request("GET", "http://x/")))

    refusal = ExceptionGroup("g", [ExceptionGroup("h", [MCPError(-32603, "secret")])])
    assert why_unreachable(refusal, statuses) == why


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (MCPError(-32600, "Unexpected content type: secret"), "what answers there speaks no MCP"),
        (MCPError(-32600, "secret"), "the server refused with error -32600"),
        (not_connected(OSError("secret")), "nothing answers at its address"),
        (not_connected(socket.gaierror(-2, "secret")), "there is no such host"),
        (not_connected(ssl.SSLError(1, "secret")), "it cannot be spoken to by TLS"),
        (not_connected(ssl.SSLCertVerificationError(1, "secret")), "its certificate cannot be verified"),
        (httpx2.ConnectTimeout("secret"), "it cannot be reached in time"),
    ],
)
def test_what_went_wrong_is_told_by_its_kind(error: Exception, why: str) -> None:
    told = why_unreachable(ExceptionGroup("g", [error]), Statuses())
    assert told.startswith(why)
    assert "secret" not in told


def test_what_its_kind_alone_tells_is_left_to_others() -> None:
    assert why_unreachable(ExceptionGroup("g", [FileNotFoundError("x")]), Statuses()) == ""


@pytest.mark.parametrize(
    ("status", "error", "is_gone"),
    [
        (404, MCPError(-32600, "Session terminated"), True),
        (404, MCPError(-32001, "Session not found"), True),
        (404, MCPError(-32601, "Method not found"), False),
        (400, MCPError(-32000, "Bad Request: No valid session ID provided"), True),
        (400, MCPError(-32000, "Bad Request: Server not initialized"), True),
        (400, MCPError(-32602, "no such city"), False),
        (200, MCPError(-32000, "the session of the shop is over"), False),
        (500, MCPError(-32603, "Session not found"), False),
    ],
)
def test_a_session_that_a_server_knows_no_more_is_told_from_other_errors(
    status: int, error: MCPError, is_gone: bool
) -> None:
    assert is_session_gone(error, Refusal(status) if status >= 300 else None) == is_gone


async def test_each_request_has_the_status_of_its_own_answer() -> None:
    statuses = Statuses()
    for number, status in ((1, 401), (2, 200), ("a", 307)):
        request = httpx2.Request("POST", "http://x/", json={"jsonrpc": "2.0", "id": number, "method": "tools/call"})
        headers = {"Location": "https://me:secret@elsewhere/secret?key=secret"} if status == 307 else {}
        await statuses.heed(httpx2.Response(status, request=request, headers=headers))

    assert [statuses.refusal(number) for number in (1, 2, "a", 1, None)] == [
        Refusal(401), None, Refusal(307, "elsewhere"), None, None,
    ]  # fmt: skip
    assert [Refusal(status).is_of_whoever_asks for status in (401, 403, 404, 500)] == [True, True, False, False]
