"""What the server says of a file, signed, so that a client can say it back and nothing has to be looked up. Pure.

A ticket is for one owner and for a time. One that is forged, of another owner, of another purpose or too old is no
ticket; which of these, nobody learns.
"""

import base64
import hashlib
import hmac
from typing import Final, TypeVar

import msgspec

from torpor.attachment_errors import UnknownAttachment
from torpor.records.attachments import Attachment

_MAC_BYTES: Final = 16
TICKET_CHARS_MAX: Final = 2_048
_T = TypeVar("_T")


class Sendable(msgspec.Struct, frozen=True, array_like=True, tag="send"):
    """May be named by a message."""

    tenant: str
    owner: str
    expires_us: int
    upload: str
    attachment: Attachment


class Linked(msgspec.Struct, frozen=True, array_like=True, tag="link"):
    """May be fetched by whoever has the link."""

    tenant: str
    owner: str
    expires_us: int
    blob: str


class Tickets:
    """Of one server, or of all that share its secret."""

    def __init__(self, secret: bytes) -> None:
        self._key = hashlib.sha256(b"attachments\0" + secret).digest()

    def sealed(self, ticket: Sendable | Linked) -> str:
        """As text that may stand in an address."""
        body = msgspec.json.encode(ticket)
        return base64.urlsafe_b64encode(self._mac(body) + body).decode("ascii").rstrip("=")

    def opened(self, text: str, kind: type[_T], *, now_us: int) -> _T:
        """Raises: UnknownAttachment."""
        try:
            if len(text) > TICKET_CHARS_MAX:
                raise ValueError(text[:_MAC_BYTES])
            sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            mac, body = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
            if not hmac.compare_digest(mac, self._mac(body)):
                raise ValueError(text[:_MAC_BYTES])
            ticket = msgspec.json.decode(body, type=Sendable | Linked)
        except (ValueError, UnicodeError) as exc:
            raise UnknownAttachment from exc
        if not isinstance(ticket, kind) or ticket.expires_us < now_us:
            raise UnknownAttachment
        return ticket

    def _mac(self, body: bytes) -> bytes:
        return hmac.new(self._key, body, hashlib.sha256).digest()[:_MAC_BYTES]
