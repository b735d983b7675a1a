"""Ways in which a host fails to deliver a reply, as data: what happens, and at which position."""

import msgspec

from torpor_fake_api.scripting.positions import BEFORE_HEADERS, BEFORE_MESSAGE_STOP, FIRST_EVENT

_RETRY_AFTER_SPELLINGS = ("seconds", "date", "ms")


class _Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """One fault; the tag is its name in files."""


class HttpError(_Fault, frozen=True, kw_only=True, tag="http_error"):
    """Another status in place of the reply."""

    status: int
    error_type: str = ""
    """By default that of the status."""
    message: str = ""
    retry_after_s: float | None = None
    retry_after_as: str = "seconds"
    """``seconds``, ``date`` or ``ms``: how the header spells it."""
    headers: dict[str, str] = {}
    page: str | None = None
    """An HTML page in place of the envelope, and no request id: the answer of a proxy before the host."""

    def __post_init__(self) -> None:
        if self.retry_after_as not in _RETRY_AFTER_SPELLINGS:
            raise ValueError(f"retry_after_as is {self.retry_after_as!r}, expected one of {_RETRY_AFTER_SPELLINGS}")


class ErrorEvent(_Fault, frozen=True, kw_only=True, tag="error_event"):
    """An ``error`` event, after which the stream ends."""

    at: str = FIRST_EVENT
    error_type: str = "overloaded_error"
    message: str = "Overloaded"


class Cut(_Fault, frozen=True, kw_only=True, tag="cut"):
    """The connection is closed in the middle of the body."""

    at: str = BEFORE_HEADERS


class Reset(_Fault, frozen=True, kw_only=True, tag="reset"):
    """The connection is reset."""

    at: str = BEFORE_HEADERS


class End(_Fault, frozen=True, kw_only=True, tag="end"):
    """The body ends here, properly as HTTP goes."""

    at: str = BEFORE_MESSAGE_STOP


class Stall(_Fault, frozen=True, kw_only=True, tag="stall"):
    """Nothing more comes, until the time is up, somebody releases it, or the client leaves; then the rest follows."""

    at: str = FIRST_EVENT
    name: str = ""
    """For ``reached`` and ``release``."""
    seconds: float | None = None
    """Without end by default."""
    pings_every_s: float | None = None
    """Pings while it lasts; silence by default."""


class Trickle(_Fault, frozen=True, kw_only=True, tag="trickle"):
    """From here on a few bytes at a time, framing included."""

    at: str = FIRST_EVENT
    size_bytes: int = 1
    interval_s: float = 0.0


class Insert(_Fault, frozen=True, kw_only=True, tag="insert"):
    """These bytes between two events; in files they are written in base64."""

    at: str = FIRST_EVENT
    sse: bytes


class HalfEvent(_Fault, frozen=True, kw_only=True, tag="half_event"):
    """The first half of the next event, then a proper end."""

    at: str = BEFORE_MESSAGE_STOP


class Duplicate(_Fault, frozen=True, kw_only=True, tag="duplicate"):
    """The next event comes twice."""

    at: str = FIRST_EVENT


class WrongLength(_Fault, frozen=True, kw_only=True, tag="wrong_length"):
    """A body with a content-length that is off by so many bytes: too long, and the connection closes before it is
    reached; too short, and the rest follows the response as garbage."""

    by_bytes: int


Fault = HttpError | ErrorEvent | Cut | Reset | End | Stall | Trickle | Insert | HalfEvent | Duplicate | WrongLength
