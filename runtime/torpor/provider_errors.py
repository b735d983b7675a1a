"""What a model host answers instead of a reply: one branch of the tree in ``errors``.

Adapters translate whatever a host or its client library says into these; everything above knows no others.
"""

from typing import ClassVar, Final, Self

from torpor.errors import Retry, TorporError


class ProviderError(TorporError):
    """What a model host answered instead of a reply; the turn loop has one defined answer to each."""

    code = "model_failed"
    is_of_host: ClassVar[bool] = False
    """Whether it speaks against the host as a whole, not against this request; opens the host's circuit."""

    def __init__(self, detail: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
        """What the host asked to wait; None when it did not say."""

    def worded(self, detail: str) -> Self:
        """The same in other words."""
        return type(self)(detail, retry_after_s=self.retry_after_s)


class ProviderUnavailable(ProviderError):
    """The host cannot be reached, or failed on its side."""

    code = "model_unavailable"
    retry = Retry.SAFE
    is_of_host = True


class RateLimited(ProviderError):
    """Too many requests or tokens for this key."""

    code = "model_rate_limited"
    retry = Retry.SAFE


class Overloaded(ProviderError):
    """The host has no capacity for this model now."""

    code = "model_overloaded"
    retry = Retry.SAFE


class StreamLost(ProviderError):
    """The reply began and did not arrive whole: cut, stalled, unreadable, or ended too early."""

    code = "model_stream_lost"
    retry = Retry.SAFE


class ModelTimedOut(ProviderError):
    """The whole reply did not come within the deadline of a call; asking again at once would take as long."""

    code = "model_timed_out"


class ContextTooLong(ProviderError):
    """The request does not fit into the model's window."""

    code = "model_context_too_long"


class RequestInvalid(ProviderError):
    """The host refused the request itself; the same request fails again."""

    code = "model_request_invalid"

    def __init__(self, detail: str, *, retry_after_s: float | None = None, is_of_messages: bool = True) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.is_of_messages = is_of_messages
        """Whether what was said may be at fault; not where the host names another part of the request."""

    def worded(self, detail: str) -> Self:
        return type(self)(detail, retry_after_s=self.retry_after_s, is_of_messages=self.is_of_messages)


class AttachmentNotTaken(RequestInvalid):
    """The host refused the request for a file in it."""

    code = "attachment_not_taken"

    def __init__(
        self, detail: str, *, at: tuple[int, int] | None = None, is_of_picture: bool = False, takes_none: bool = False
    ) -> None:
        super().__init__(detail)
        self.at = at
        """Message and block, from 0; None when the host did not say."""
        self.is_of_picture = is_of_picture
        """It speaks of pictures; otherwise of documents."""
        self.takes_none = takes_none
        """The model takes no file of the kind, whichever it is."""

    def worded(self, detail: str) -> Self:
        return type(self)(detail, at=self.at, is_of_picture=self.is_of_picture, takes_none=self.takes_none)


class AttachmentMissing(ProviderError):
    """Files of the request are not there any more; the host was not asked."""

    code = "attachment_missing"
    how: ClassVar[str] = "not stored any more"

    def __init__(self, places: tuple[int, ...]) -> None:
        super().__init__(f"attachments of the request are {self.how}, {len(places)} of them")
        self.places = places
        """Which of the attachments in the request, from 0."""


class AttachmentDamaged(AttachmentMissing):
    """What is stored of them is not what they were; the host was not asked."""

    code = "attachment_damaged"
    how = "stored with other bytes than they had"


class AttachmentsUnavailable(ProviderError):
    """Files of the request cannot be read now; the host was not asked."""

    code = "attachments_unavailable"
    retry = Retry.SAFE

    def __init__(self, detail: str, *, retry_after_s: float | None = None, waited_s: float = 0.0) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.waited_s = waited_s
        """Until that was known."""


class RequestTooLarge(ProviderError):
    """The request has more bytes than the host takes."""

    code = "model_request_too_large"


class KeyRefused(ProviderError):
    """The key is missing, wrong, or not allowed to do this."""

    code = "model_key_refused"


class BillingRefused(ProviderError):
    """The account cannot pay for this."""

    code = "model_billing_refused"


class ModelUnknown(ProviderError):
    """The host has no model of this name."""

    code = "model_unknown"


NOT_ASKED: Final = frozenset({AttachmentMissing.code, AttachmentDamaged.code, AttachmentsUnavailable.code})
"""Codes that speak of what is stored here, and not of a host."""
