"""Why the gateway closes a connection: every code it uses, and what a client should make of it.

Codes from 4400 are this protocol's own and follow the HTTP status they resemble. A client that is closed for a
reason with ``resume`` connects again and goes on from its cursors; without it, doing the same again fails again. 440
is no status of HTTP's own: web servers answer it when a login has timed out.
"""

from enum import Enum
from typing import Final, Self

_PING_TIMEOUT: Final = "keepalive ping timeout"
"""What the reason of a close frame says in which the code, 1011, does not."""
_OF_WEBSOCKET: Final = {1002: "protocol_error", 1007: "bad_text", 1009: "frame_too_big", 1011: "internal"}
"""The codes with which the library ends a connection on its own."""


class CloseReason(Enum):
    """``code`` and ``text`` go into the close frame."""

    code: int
    text: str
    resume: bool

    GOING_AWAY = (1001, "the server is stopping", True)
    RESTARTING = (1012, "the server is restarting", True)
    UNAUTHENTICATED = (4401, "the token is missing or invalid", False)
    HELLO_OVERDUE = (4408, "no hello within the deadline", True)
    HELD_TOO_MUCH = (4413, "too much was sent before hello", False)
    OVERFLOW = (4429, "what was sent was not read fast enough, resume from your cursors", True)
    TOO_MANY_CONNECTIONS = (4430, "this principal has too many connections", True)
    TOO_MANY_FRAMES = (4431, "frames kept coming faster than allowed", True)
    IDLE = (4432, "nothing was said or watched for too long", True)
    TOKEN_EXPIRED = (4440, "the token has expired, resume with a newer one", True)
    INTERNAL = (4500, "the server failed, resume from your cursors", True)
    KEYS_UNAVAILABLE = (4502, "the keys of the token's issuer cannot be had now, resume later", True)
    UNAVAILABLE = (4503, "a journal cannot be read now, resume later", True)

    def __new__(cls, code: int, text: str, resume: bool) -> Self:
        reason = object.__new__(cls)
        reason._value_ = code
        reason.code = code
        reason.text = text
        reason.resume = resume
        return reason


def closed_by_library(code: int, reason: str) -> str | None:
    """Why the library closed a connection, in a word; None for codes that are not the library's own."""
    return "ping_timeout" if reason == _PING_TIMEOUT else _OF_WEBSOCKET.get(code)
