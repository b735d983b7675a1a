"""Who somebody is by the claims of a token, and tokens that say so.

Above: the authenticator, which has checked the signature, and everybody who asks what a principal may. Claims:

    sub     who acts; required
    owner   whose conversations; default: sub. People who share conversations hold tokens with the same owner.
    tenant  default: ``default``
    scope   words separated by blanks, or a list; default: ``chat``
    exp     when it ends, seconds since 1970; nbf likewise, when it begins

A token without ``exp`` is good for ever, which an issuer can do by mistake. It is accepted only of the data folder's
own secret and with ``iss`` = ``torpor-dev``, which ``mint`` writes into the development token of the first start.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import jwt
import msgspec

from torpor.errors import ConfigError, Unauthenticated
from torpor.misfits import Words
from torpor.records.bounds import MOMENT_MAX_US
from torpor.records.ids import DEFAULT_TENANT, OWNER_ID

SECRET_BYTES_MIN: Final = 32
"""RFC 7518, 3.2: a key as long as the hash."""
DEVELOPMENT_ISSUER: Final = "torpor-dev"
HMAC: Final = "HS256"
MICROSECONDS: Final = 1_000_000
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Scope(StrEnum):
    """What a token may be used for."""

    CHAT = "chat"
    """Its owner's conversations."""
    OPERATOR = "operator"
    """Everybody's conversations, and the frames of operators. Includes ``chat``."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts, and whose conversations are meant by a bare id."""

    subject: str
    tenant: str
    owner: str
    scopes: tuple[str, ...]
    expires_us: int | None
    """None for a development token."""

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.OPERATOR in self.scopes

    def is_same_as(self, other: "Principal") -> bool:
        """Whether both name the same person and owner; scopes and expiry may differ."""
        return (self.subject, self.tenant, self.owner) == (other.subject, other.tenant, other.owner)


def is_owner_name(value: str) -> bool:
    """Whether a tenant or an owner can be called so."""
    # isprintable refuses lone surrogates and invisible characters, which the pattern does not.
    return OWNER_ID.fullmatch(value) is not None and value.isprintable()


def mint(
    secret: bytes,
    *,
    subject: str,
    now_us: int,
    owner: str | None = None,
    tenant: str | None = None,
    scopes: Iterable[str] = (Scope.CHAT,),
    lifetime_s: float | None = None,
    more: Mapping[str, str] = _NOTHING,
) -> str:
    """A signed token; without a lifetime a development token, which never expires.

    Args: more: further claims, such as ``iss`` and ``aud``.

    Raises:
        ConfigError: the secret is too short.
        ValueError: a name cannot be one, in the words of ``Unauthenticated``.
    """
    claims: dict[str, Any] = {"sub": subject, "scope": " ".join(scopes), "iat": now_us // MICROSECONDS}
    claims |= {name: value for name, value in (("owner", owner), ("tenant", tenant)) if value is not None} | dict(more)
    if lifetime_s is None:
        claims["iss"] = DEVELOPMENT_ISSUER
    else:
        claims["exp"] = now_us // MICROSECONDS + round(lifetime_s)
    try:
        principal_of(claims, may_last=lifetime_s is None)
    except Unauthenticated as exc:
        raise ValueError(str(exc)) from exc
    return jwt.encode(claims, long_enough(secret), algorithm=HMAC)


def long_enough(secret: bytes) -> bytes:
    """``secret``. Raises: ConfigError: it is shorter than ``SECRET_BYTES_MIN``."""
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(
            "token secret",
            key="length",
            found=Words(f"{len(secret)} bytes"),
            expected=f"at least {SECRET_BYTES_MIN} bytes",
        )
    return secret


def principal_of(claims: dict[str, Any], *, may_last: bool) -> Principal:
    """Args: may_last: a development token is good for ever. Raises: Unauthenticated: a claim is missing or unusable."""
    subject = _name(claims.get("sub"), claim="sub")
    expires_us = time_us(claims, "exp")
    if expires_us is None and not (may_last and claims.get("iss") == DEVELOPMENT_ISSUER):
        raise Unauthenticated("token never expires, expected a claim 'exp'")
    return Principal(
        subject=subject,
        tenant=_name(claims.get("tenant", DEFAULT_TENANT), claim="tenant"),
        owner=_name(claims.get("owner", subject), claim="owner"),
        scopes=_scopes(claims.get("scope", Scope.CHAT)),
        expires_us=expires_us,
    )


def _name(value: object, *, claim: str) -> str:
    if isinstance(value, str) and is_owner_name(value):
        return value
    raise Unauthenticated(f"token claim {claim!r} is not a name, expected 1..128 characters without slash or blank")


def _scopes(value: object) -> tuple[str, ...]:
    words = value.split() if isinstance(value, str) else value
    if isinstance(words, list) and all(isinstance(word, str) and word.isprintable() for word in words):
        return tuple(dict.fromkeys(words))
    raise Unauthenticated("token claim 'scope' is not a scope, expected words separated by blanks, or a list of words")


def time_us(claims: dict[str, Any], claim: str) -> int | None:
    """A moment that a claim names. Raises: Unauthenticated: it is none."""
    value = claims.get(claim)
    if value is None:
        return None
    not_a_time = Unauthenticated(
        f"token claim {claim!r} is not a time, expected seconds since 1970, before the year 10000"
    )
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise not_a_time
    try:
        moment_us = int(value * MICROSECONDS)
    except (OverflowError, ValueError):
        raise not_a_time from None
    if abs(moment_us) > MOMENT_MAX_US:  # milliseconds, or a way to say never; calendars and clients end there
        raise not_a_time
    return moment_us
