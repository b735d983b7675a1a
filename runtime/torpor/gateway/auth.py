"""Tokens into principals: HS256 JSON Web Tokens, signed with the secret of this installation.

Above: the server (``Authorization: Bearer``) and the session (``hello``). A token is never logged and never part of an
error's text. Claims:

    sub     who acts; required
    owner   whose conversations; default: sub. People who share conversations hold tokens with the same owner.
    tenant  default: ``default``
    scope   words separated by blanks, or a list; default: ``chat``
    exp     when it ends, seconds since 1970; nbf likewise, when it begins

A token without ``exp`` is good for ever, which an issuer can do by mistake. It is accepted only with ``iss`` =
``torpor-dev``, which ``mint`` writes into the development token that the first start of a home makes.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import jwt
import msgspec

from torpor.clock import Clock
from torpor.errors import ConfigError, Unauthenticated
from torpor.records.ids import DEFAULT_TENANT, OWNER_ID

SECRET_BYTES_MIN: Final = 32
"""RFC 7518, 3.2: a key as long as the hash."""
DEVELOPMENT_ISSUER: Final = "torpor-dev"
_ALGORITHM: Final = "HS256"
_MICROSECONDS: Final = 1_000_000
_CLOCK_IS_OURS: Final[Any] = {"require": ["sub"], "verify_exp": False, "verify_nbf": False, "verify_iat": False}


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


class Authenticator:
    """Checks tokens against one secret.

    Raises: ConfigError: the secret is shorter than ``SECRET_BYTES_MIN``.
    """

    def __init__(self, secret: bytes, *, clock: Clock, leeway_s: float) -> None:
        self._secret = _long_enough(secret)
        self._clock = clock
        self._leeway_us = round(leeway_s * _MICROSECONDS)

    def authenticate(self, token: str) -> Principal:
        """Raises: Unauthenticated: the token is malformed, of another secret or algorithm, or not valid now."""
        try:
            claims = jwt.decode(token, self._secret, algorithms=[_ALGORITHM], options=_CLOCK_IS_OURS)
        except (jwt.InvalidTokenError, ValueError) as exc:  # ValueError: text that is not ASCII, absurd numbers
            raise Unauthenticated(_reason(exc)) from exc
        principal = _principal(claims)
        if self.is_expired(principal):
            raise Unauthenticated("token has expired")
        if (begins_us := _time_us(claims, "nbf")) is not None and begins_us > self._clock.now_us() + self._leeway_us:
            raise Unauthenticated("token is not valid yet")
        return principal

    def is_expired(self, principal: Principal) -> bool:
        return principal.expires_us is not None and principal.expires_us + self._leeway_us <= self._clock.now_us()


def mint(
    secret: bytes,
    *,
    subject: str,
    now_us: int,
    owner: str | None = None,
    tenant: str | None = None,
    scopes: Iterable[str] = (Scope.CHAT,),
    lifetime_s: float | None = None,
) -> str:
    """A signed token; without a lifetime a development token, which never expires.

    Raises:
        ConfigError: the secret is too short.
        ValueError: a name cannot be one, in the words of ``Unauthenticated``.
    """
    claims: dict[str, Any] = {"sub": subject, "scope": " ".join(scopes), "iat": now_us // _MICROSECONDS}
    claims |= {name: value for name, value in (("owner", owner), ("tenant", tenant)) if value is not None}
    if lifetime_s is None:
        claims["iss"] = DEVELOPMENT_ISSUER
    else:
        claims["exp"] = now_us // _MICROSECONDS + round(lifetime_s)
    try:
        _principal(claims)
    except Unauthenticated as exc:
        raise ValueError(str(exc)) from exc
    return jwt.encode(claims, _long_enough(secret), algorithm=_ALGORITHM)


def _long_enough(secret: bytes) -> bytes:
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(
            "token secret", key="length", found=f"{len(secret)} bytes", expected=f"at least {SECRET_BYTES_MIN} bytes"
        )
    return secret


def _reason(exc: Exception) -> str:
    match exc:
        case jwt.MissingRequiredClaimError():
            return "token has no claim 'sub', expected who acts"
        case jwt.InvalidSignatureError() | jwt.InvalidAlgorithmError():
            return "token is not signed with this server's secret"
        case jwt.InvalidAudienceError():
            return "token is meant for another audience"
        case _:
            return "token is not a valid token, expected a JSON Web Token signed with HS256"


def _principal(claims: dict[str, Any]) -> Principal:
    subject = _name(claims.get("sub"), claim="sub")
    expires_us = _time_us(claims, "exp")
    if expires_us is None and claims.get("iss") != DEVELOPMENT_ISSUER:
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


def _time_us(claims: dict[str, Any], claim: str) -> int | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unauthenticated(f"token claim {claim!r} is not a time, expected seconds since 1970")
    try:
        return int(value * _MICROSECONDS)
    except (OverflowError, ValueError):
        raise Unauthenticated(f"token claim {claim!r} is not a time, expected seconds since 1970") from None
