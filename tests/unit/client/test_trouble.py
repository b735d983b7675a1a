"""What stands in the way of a connection, in words."""

import errno
import ssl

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import InvalidMessage, InvalidStatus, InvalidUpgrade
from websockets.http11 import Response

from torpor.client.trouble import certificate_refused, ended, in_words, is_no_tls, status_of


def answer(body: str, *, media_type: str) -> InvalidStatus:
    return InvalidStatus(Response(503, "", Headers({"Content-Type": media_type}), body.encode()))


def tls(reason: str) -> ssl.SSLError:
    return ssl.SSLError(1, f"[SSL: {reason.upper().replace(' ', '_')}] {reason} (_ssl.c:1006)")


@pytest.mark.parametrize(
    ("exc", "words"),
    [
        (
            answer("too many\n  connections\n", media_type="text/plain; charset=utf-8"),
            "HTTP 503 (too many connections)",
        ),
        (answer("<p>", media_type="text/html"), "HTTP 503"),
        (answer("x" * 999, media_type="text/plain"), f"HTTP 503 ({'x' * 300})"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"), "connection refused"),
        (OSError("Multiple exceptions: one, other"), "Multiple exceptions: one, other"),
        (ConnectionResetError(), "it cut the connection"),
        (TimeoutError("timed out during opening handshake"), "it did not answer in time"),
        (InvalidUpgrade("Connection", None), "missing Connection header"),
    ],
)
def test_trouble_is_told_in_a_line(exc: Exception, words: str) -> None:
    assert in_words(exc).removeprefix("it answered ") == words


def test_an_end_is_told_with_its_reason_where_it_has_one() -> None:
    ends = [ended(1001, "restarting"), ended(1000, ""), ended(1006, ""), ended(None, None)]

    assert ends[:2] == ["the connection was closed (1001, restarting)", "the connection was closed (1000)"]
    assert ends[2:] == ["the connection was cut"] * 2


def test_a_status_of_an_older_http_is_found() -> None:
    exc = InvalidMessage("did not receive a valid HTTP response")
    assert status_of(exc) is None
    exc.__cause__ = ValueError("unsupported protocol; expected HTTP/1.1: HTTP/1.0 404 File not found")
    assert status_of(exc) == 404


@pytest.mark.parametrize(
    ("reason", "is_none"),
    [("wrong version number", True), ("record layer failure", True), ("tlsv1 alert protocol version", False)],
)
def test_an_answer_that_is_no_tls_is_known_by_what_either_openssl_says(reason: str, is_none: bool) -> None:
    assert is_no_tls(tls(reason)) is is_none


def test_a_certificate_that_has_ended_is_no_matter_of_who_vouches_for_it() -> None:
    exc = ssl.SSLCertVerificationError()
    exc.verify_code, exc.verify_message = 10, "certificate has expired"

    error = certificate_refused("wss://x", exc)

    assert (error.code, str(error)) == ("refused", "certificate of 'wss://x' is not good: certificate has expired")
