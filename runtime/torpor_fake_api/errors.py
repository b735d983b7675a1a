"""The error envelope, and which type of error goes with which status."""

from typing import Final

import msgspec

TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Refusal(Exception):
    """A request that is answered by an error.

    Attributes: status: of HTTP.  error_type: by default that of the status.  message: for people.
    """

    def __init__(self, status: int, message: str, *, error_type: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.error_type = error_type or type_of(status)


def type_of(status: int) -> str:
    """The type of error that goes with a status; other statuses of the client count as invalid requests."""
    return TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")


def envelope(error_type: str, message: str, *, request_id: str) -> bytes:
    """The body of an error."""
    error = {"type": error_type, "message": message}
    return msgspec.json.encode({"type": "error", "error": error, "request_id": request_id})
