"""What stands in the way of a connection, in words for whoever waits for it. Pure."""

import os
import re
import ssl
from typing import Final

from websockets.exceptions import InvalidMessage, InvalidStatus
from websockets.frames import CloseCode
from websockets.http11 import Response

from torpor.client.failures import CertificateOfOther, CertificateUntrusted, ServerRefused

_WORDS_MAX_CHARS: Final = 300
_STATUS: Final = re.compile(r"HTTP/\d(?:\.\d)? (\d{3})\b")
_OTHER_NAME: Final = frozenset({62, 64})
"""Of the codes in OpenSSL's ``x509_vfy.h``: the host's name, and its number."""
_NOT_VOUCHED_FOR: Final = frozenset({2, 18, 19, 20, 21, 27})
"""Of the same: by none that is known or trusted here, such as itself."""
_NO_TLS: Final = ("wrong version number", "record layer failure")
"""What OpenSSL says of an answer that is none of TLS; newer ones the latter."""


def in_words(exc: Exception) -> str:
    """Why a connection was not opened, or has ended."""
    match exc:
        case InvalidStatus():
            return f"it answered {answer_of(exc.response)}"
        case InvalidMessage():
            answer = status_of(exc)
            return f"it answered HTTP {answer}" if answer else "it closed the connection without an answer in HTTP"
        case EOFError() | ConnectionResetError():
            return "it cut the connection"
        case TimeoutError():
            return "it did not answer in time"
        case ssl.SSLError():
            return f"TLS failed, {(exc.reason or str(exc)).lower().replace('_', ' ')}"
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number).lower()
        case _:
            return str(exc) or type(exc).__name__


def answer_of(response: Response) -> str:
    """The status, with the server's words where they are for people who read no page."""
    is_plain = response.headers.get("Content-Type", "").lower().startswith("text/plain")
    words = " ".join(bytes(response.body).decode(errors="replace").split()) if is_plain else ""
    return f"HTTP {response.status_code}" + (f" ({words[:_WORDS_MAX_CHARS]})" if words else "")


def ended(code: int | None, reason: str | None) -> str:
    """How a connection ended, by what it was closed with."""
    if code is None or code == CloseCode.ABNORMAL_CLOSURE:
        return "the connection was cut"
    return f"the connection was closed ({code}{', ' if reason else ''}{reason or ''})"


def status_of(exc: InvalidMessage) -> int | None:
    """Of an answer in another version of HTTP than the library reads; None when it is no HTTP, or none at all."""
    found = _STATUS.search(str(exc.__cause__))
    return int(found[1]) if found else None


def certificate_refused(url: str, exc: ssl.SSLCertVerificationError) -> ServerRefused:
    """The error for it: others than the two that have a name are for who keeps the server to mend."""
    if exc.verify_code in _OTHER_NAME:
        return CertificateOfOther(url, why=exc.verify_message)
    if exc.verify_code in _NOT_VOUCHED_FOR:
        return CertificateUntrusted(url, why=exc.verify_message)
    return ServerRefused(f"certificate of {url!r} is not good: {exc.verify_message}")


def is_no_tls(exc: ssl.SSLError) -> bool:
    """Whether what came back in place of a TLS handshake is nothing of TLS."""
    return any(words in str(exc) for words in _NO_TLS)


def is_no_http(exc: InvalidMessage) -> bool:
    """Whether a whole line came that is no HTTP, rather than an end."""
    return isinstance(exc.__cause__, ValueError) and status_of(exc) is None
