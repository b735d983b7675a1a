"""What went wrong at a Messages API host, as one of the engine's errors.

Decided by status and ``error.type``, which are the contract; wording only where there is nothing else: a request that
is too long, and an account without credit, is a 400 like any other. Faults inside a stream come with status 200 and are
told by their type alone.
"""

import email.utils
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from torpor.provider_errors import (
    AttachmentNotTaken,
    BillingRefused,
    ContextTooLong,
    KeyRefused,
    ModelUnknown,
    Overloaded,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    RequestInvalid,
    RequestTooLarge,
)

_TOO_LONG: Final = ("prompt is too long", "exceed context limit")
_NO_CREDIT: Final = ("reached your specified API usage limits", "credit balance is too low")
_OF_FILE: Final = re.compile(
    r"messages\.(?P<message>\d{1,6})\.content\.(?P<block>\d{1,6})\.(image|document)"
    r"|\b(images?|pdfs?|documents?)\b",
    re.IGNORECASE,
)
"""A file in the request, and where it is if the host tells."""
_OF_OTHERS: Final = re.compile(
    r"(max_tokens|metadata|model|output_config|stop_sequences|stream|system|temperature|thinking|tool_choice|tools|top_[kp]"
    r"|messages\.\d+\.content\.\d+\.(text|thinking|tool_use))\b[^\s:]*: "
)
"""How a message begins that is about a part of the request in which no file is."""
_WAIT_S_MAX: Final = 1e9
_NO_MESSAGE: Final = "no message"
_TYPES_BY_STATUS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def fault_of(*, status: int, body: bytes, headers: Mapping[str, str], model: str, now_us: int) -> ProviderError:
    """The engine's word for an error answer, before or inside a stream.

    Args: body: the error envelope, or whatever came in its place.
    """
    if 300 <= status < 400:
        place = headers.get("location") or "an address that it does not tell"
        return RequestInvalid(f"the host redirects to {place}: name the address in model.base_url, none is followed")
    kind, message = _told(body)
    kind = kind or _TYPES_BY_STATUS.get(status, "")
    retry_after_s = retry_after_of(headers, now_us=now_us)
    match kind:
        case "rate_limit_error":
            return RateLimited(message, retry_after_s=retry_after_s)
        case "overloaded_error":
            return Overloaded(message, retry_after_s=retry_after_s)
        case "authentication_error" | "permission_error":
            return KeyRefused(message)
        case "billing_error":
            return BillingRefused(message)
        case "not_found_error":
            return ModelUnknown(f"{message} (model {model!r})")
        case "exceed_context_size_error":  # llama.cpp
            return ContextTooLong(message)
        case "request_too_large":
            return RequestTooLarge(message)
        case "invalid_request_error" if any(words in message for words in _NO_CREDIT):
            return BillingRefused(message)
        case "invalid_request_error" if any(words in message for words in _TOO_LONG):
            return ContextTooLong(message)
    is_of_messages = not _OF_OTHERS.match(message)
    if kind == "invalid_request_error" and is_of_messages and (found := _OF_FILE.search(message)):
        return _not_taken(message, found)
    if kind == "invalid_request_error" or (400 <= status < 500 and status not in {408, 409}):
        return RequestInvalid(message, is_of_messages=is_of_messages)
    if (found := _OF_FILE.search(message)) and _takes_none(message):  # llama.cpp has a model without eyes fail there
        return _not_taken(message, found)
    return ProviderUnavailable(message, retry_after_s=retry_after_s)


def _not_taken(message: str, found: re.Match[str]) -> AttachmentNotTaken:
    at = (int(found["message"]), int(found["block"])) if found["message"] else None
    is_of_picture = "image" in found[0].lower()
    return AttachmentNotTaken(
        message, at=at, is_of_picture=is_of_picture, takes_none=at is None and _takes_none(message)
    )


def _takes_none(message: str) -> bool:
    return "support" in message


def retry_after_of(headers: Mapping[str, str], *, now_us: int) -> float | None:
    """Seconds from ``retry-after-ms`` or ``retry-after``, which is a number or a date; None when there is neither."""
    if (text := headers.get("retry-after-ms")) and (value := _number(text)) is not None:
        return value / 1_000
    text = headers.get("retry-after", "")
    if (value := _number(text)) is not None:
        return value
    try:
        left_s = email.utils.parsedate_to_datetime(text).timestamp() - now_us / 1_000_000
    except (ValueError, OverflowError, OSError):  # no date, or one that no clock has
        return None
    return max(left_s, 0.0) if left_s < _WAIT_S_MAX else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < _WAIT_S_MAX else None


def _told(body: bytes) -> tuple[str, str]:
    """Type and message of the envelope; hosts that only resemble the API leave parts of it out."""
    text = body.decode(errors="replace").strip()
    try:
        told: Any = json.loads(text)
    except (ValueError, RecursionError):
        return "", text or _NO_MESSAGE
    error = told.get("error") if isinstance(told, dict) else None
    if isinstance(error, str):
        return "", error or _NO_MESSAGE
    if not isinstance(error, dict):
        return "", text
    kind, message = error.get("type"), error.get("message")
    kind = kind if isinstance(kind, str) else ""
    if isinstance(message, str) and message:
        return kind, message
    return kind, text if message else _NO_MESSAGE
