"""Tokens into principals: JSON Web Tokens, signed with a secret (HS256) or with an issuer's private key.

Above: the server (``Authorization: Bearer``) and the session (``hello``). Below: the public keys, which somebody keeps
fresh. A token is never logged and never part of an error's text. Its ``alg`` only chooses between the secrets and the
public keys; what a key is good for is decided by the key.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol

import jwt
import msgspec

from torpor.clock import Clock
from torpor.errors import KeysUnavailable, TokenExpired, Unauthenticated
from torpor.gateway.auth import HMAC, MICROSECONDS, Principal, long_enough, principal_of, time_us
from torpor.gateway.auth_options import AuthOptions
from torpor.gateway.key_set import ASYMMETRIC, KeySet, VerifyingKey

_FOREIGN: Final = "token is not signed with this server's secret, or with a key that it trusts"
_TOLD_CHARS_MAX: Final = 200
_ASKS_FOR_NOTHING: Final = AuthOptions()
"""Of tokens that are signed with the data folder's own secret."""
_CLOCK_IS_OURS: Final[Any] = {"require": ["sub"], "verify_exp": False, "verify_nbf": False, "verify_iat": False}


class UnknownKey(Unauthenticated):
    """The token names a key that its issuer has not told of, or not yet."""

    def __init__(self) -> None:
        super().__init__("token is signed with a key that its issuer does not tell of")


class Keys(Protocol):
    """The public keys of an issuer, as ``KeyKeeper`` keeps them."""

    @property
    def keys(self) -> KeySet: ...

    async def renewed(self) -> bool:
        """Look for newer ones; whether that was possible. Bounded in time and in how often it asks the issuer."""
        ...


class Trusted(msgspec.Struct, frozen=True, kw_only=True):
    """Whose tokens count beside those of the data folder's own secret."""

    secret: bytes | None = None
    keys: Keys | None = None
    options: AuthOptions = AuthOptions()
    """What such tokens must claim, and under which names."""


class Authenticator:
    """Checks tokens against the data folder's own secret and what is ``trusted`` beside it.

    With something trusted, the own secret is for clients on this machine alone, and for nobody if the options say so.

    Raises: ConfigError: a secret is shorter than ``SECRET_BYTES_MIN``.
    """

    def __init__(self, secret: bytes, *, clock: Clock, leeway_s: float, trusted: Trusted | None = None) -> None:
        self._own = long_enough(secret)
        self._trusted = trusted
        self._given = long_enough(trusted.secret) if trusted is not None and trusted.secret is not None else None
        self._clock = clock
        self._leeway_us = round(leeway_s * MICROSECONDS)

    def authenticate(self, token: str, *, is_local: bool = False) -> Principal:
        """Who holds it. Args: is_local: the client is on this machine.

        Raises: Unauthenticated: the token is malformed, foreign, or not valid now. TokenExpired, UnknownKey.
        """
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") == HMAC:
                principal, claims = self._by_secret(token, is_local=is_local)
            elif self._trusted is not None and self._trusted.keys is not None:
                principal, claims = self._by_key(token, header, keys=self._trusted.keys.keys)
            else:
                raise Unauthenticated(_FOREIGN)
        except (jwt.InvalidTokenError, ValueError) as exc:  # ValueError: text that is not ASCII, absurd numbers
            raise Unauthenticated(_reason(exc)) from exc
        if self.is_expired(principal):
            raise TokenExpired
        if (begins_us := time_us(claims, "nbf")) is not None and begins_us > self._clock.now_us() + self._leeway_us:
            raise Unauthenticated("token is not valid yet")
        return principal

    async def identify(self, token: str, *, is_local: bool = False) -> Principal:
        """``authenticate``, after a look for newer keys when the token names one that is not known.

        Raises: as ``authenticate``. KeysUnavailable: there was no such look, so nothing is said of the token.
        """
        try:
            return self.authenticate(token, is_local=is_local)
        except UnknownKey:
            if self._trusted is None or self._trusted.keys is None:
                raise
            if not await self._trusted.keys.renewed():
                retry_after_s = self._trusted.options.jwks_pause_s + 1.0
                raise KeysUnavailable(retry_after_s=retry_after_s) from None
        return self.authenticate(token, is_local=is_local)

    def is_expired(self, principal: Principal) -> bool:
        return principal.expires_us is not None and principal.expires_us + self._leeway_us <= self._clock.now_us()

    def _by_secret(self, token: str, *, is_local: bool) -> tuple[Principal, dict[str, Any]]:
        try:
            claims = self._decoded(token, self._own, algorithm=HMAC, options=_ASKS_FOR_NOTHING)
        except jwt.InvalidSignatureError:
            if self._trusted is None or self._given is None:
                raise
            claims = self._decoded(token, self._given, algorithm=HMAC, options=self._trusted.options)
            return principal_of(claims, may_last=False), claims
        if self._trusted is not None and not (is_local and self._trusted.options.local_tokens):
            raise Unauthenticated("token is this machine's own, which is of no use to this client")
        return principal_of(claims, may_last=True), claims

    def _by_key(self, token: str, header: dict[str, Any], *, keys: KeySet) -> tuple[Principal, dict[str, Any]]:
        assert self._trusted is not None
        options = self._trusted.options
        kid, algorithm = header.get("kid"), header.get("alg")
        if algorithm not in ASYMMETRIC:
            raise jwt.InvalidAlgorithmError
        candidates = [key for key in keys.named(kid) if key.algorithm == algorithm]
        claims = self._first_decoded(token, candidates, options=options)
        if claims is None:
            if kid is not None and all(key.kid != kid for key in keys.keys):
                raise UnknownKey
            raise Unauthenticated(_FOREIGN)
        return principal_of(_renamed(claims, options), may_last=False), claims

    def _first_decoded(
        self, token: str, candidates: Iterable[VerifyingKey], *, options: AuthOptions
    ) -> dict[str, Any] | None:
        """The claims by the first key that signed them; None when none did."""
        for key in candidates:
            try:
                return self._decoded(token, key.key, algorithm=key.algorithm, options=options)
            except jwt.InvalidSignatureError:
                continue
        return None

    def _decoded(self, token: str, key: Any, *, algorithm: str, options: AuthOptions) -> dict[str, Any]:
        """The claims of a token that ``key`` signed. Raises: Unauthenticated: it is meant for others."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                options=_CLOCK_IS_OURS,
                audience=options.audience or None,
                issuer=options.issuer or None,
            )
        except jwt.InvalidIssuerError as exc:  # told after the signature was found good, so its sender may hear it
            raise Unauthenticated(_differs(token, "iss", expected=options.issuer, option="auth.issuer")) from exc
        except jwt.InvalidAudienceError as exc:
            raise Unauthenticated(_differs(token, "aud", expected=options.audience, option="auth.audience")) from exc
        return claims


def _renamed(claims: dict[str, Any], options: AuthOptions) -> dict[str, Any]:
    """The claims under our own names; what an issuer means by those itself, if others were configured, is not heard."""
    names = {"owner": options.owner_claim, "tenant": options.tenant_claim, "scope": options.scope_claim}
    rest = {name: value for name, value in claims.items() if name not in names}
    return rest | {ours: claims[theirs] for ours, theirs in names.items() if theirs in claims}


def _differs(token: str, claim: str, *, expected: str, option: str) -> str:
    """In words: a signed token claims something else than it should."""
    told = repr(jwt.decode(token, options={"verify_signature": False}).get(claim))
    shown = told if len(told) <= _TOLD_CHARS_MAX else f"{told[:_TOLD_CHARS_MAX]}…"
    return f"token claim {claim!r} is {shown}, expected {repr(expected) if expected else 'none'}, see {option}"


def _reason(exc: Exception) -> str:
    match exc:
        case jwt.MissingRequiredClaimError():
            expected = "who acts" if exc.claim == "sub" else "what this server is told to ask for"
            return f"token has no claim {exc.claim!r}, expected {expected}"
        case jwt.InvalidSignatureError() | jwt.InvalidAlgorithmError():
            return _FOREIGN
        case _:
            return "token is not a valid token, expected a JSON Web Token with a signature"
