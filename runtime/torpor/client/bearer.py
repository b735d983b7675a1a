"""The token of a client, and whom it speaks for: one person and owner, for as long as there is the client.

Below ``ClientCore``, which tells what the server said. A token is read without being checked, which is the server's
business; one that cannot be read says nothing of whose it is.
"""

import base64
import binascii
from typing import Final

import msgspec

from torpor.client.failures import OtherPerson, ServerRefused
from torpor.records.frames import Welcome
from torpor.records.ids import DEFAULT_TENANT

_PARTS: Final = 3
"""Of a JSON Web Token: how it is signed, its claims, the signature."""


class Person(msgspec.Struct, frozen=True):
    """Who acts, and whose conversations are meant by a bare id."""

    subject: str
    tenant: str
    owner: str

    def __str__(self) -> str:
        return f"{self.subject!r} of {f'{self.tenant}/{self.owner}'!r}"


class Bearer:
    """Holds the token that the server has welcomed, and a newer one until it has said what it takes it for."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._newer = ""
        self._first = token
        """Said by the ``hello`` that began the connection."""
        self._renewals = 0
        self._person: Person | None = None
        """As the server has told it."""

    @property
    def token(self) -> str:
        """The newest one."""
        return self._newer or self._token

    def connected(self) -> str:
        """The token for the ``hello`` that begins a connection, which has no ``ref``."""
        self._first = self.token
        return self._first

    @property
    def ref(self) -> str:
        """Of a later ``hello``, with the newer token."""
        return f"renewal:{self._renewals}"

    @property
    def is_doubtful(self) -> bool:
        """Whether the server, which knows whom we speak for, may take the next token for somebody else's."""
        return bool(self._newer) and self._person is not None

    def renew(self, token: str) -> None:
        """Raises: OtherPerson: it is not of the person that the server, or the token before, has named."""
        known, named = self._person or _named_in(self.token), _named_in(token)
        if known is not None and named is not None and named != known:
            raise OtherPerson(found=str(named), expected=str(known))
        self._newer = token
        self._renewals += 1

    def is_renewing(self, ref: str) -> bool:
        """Whether ``ref`` is of the ``hello`` with the newer token, which the server has not answered yet."""
        return bool(self._newer) and ref == self.ref

    def refused(self) -> None:
        """The newer token is none for us; the one before stays."""
        self._newer = ""

    def welcomed(self, welcome: Welcome) -> None:
        """Raises: ServerRefused: as somebody else than before."""
        welcomed = self._newer if self.is_renewing(welcome.ref) else self._first
        told = Person(welcome.principal, welcome.tenant, welcome.owner)
        if self._person is not None and told != self._person:
            raise ServerRefused(f"server takes this client for {told}, expected {self._person} as before")
        self._person, self._token = told, welcomed
        if self._newer == welcomed:
            self._newer = ""


class _Claims(msgspec.Struct):
    sub: str
    tenant: str = DEFAULT_TENANT
    owner: str = ""


_CLAIMS: Final = msgspec.json.Decoder(_Claims)


def _named_in(token: str) -> Person | None:
    """See docs/protocol.md, "Who is speaking"."""
    parts = token.split(".")
    if len(parts) != _PARTS:
        return None
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = _CLAIMS.decode(text)
    except (binascii.Error, ValueError, RecursionError):  # msgspec's own are ValueErrors
        return None
    return Person(claims.sub, claims.tenant, claims.owner or claims.sub)
