"""The public keys of an issuer, out of its JSON Web Key Set. Pure.

Above: ``KeyKeeper``, which has the text from somewhere; ``Authenticator``, which checks signatures. A key is good for
one algorithm, which its own kind decides and never the token: a public key cannot be taken for a secret, nor a key of
one kind for another. Keys of no use here (for encryption, too short, secret, of another kind) are passed over.
"""

from typing import Any, Final, TypeAlias

import jwt
import msgspec

KEY_SET_BYTES_MAX: Final = 262_144
KEYS_MAX: Final = 100
RSA_BITS_MIN: Final = 2048
"""NIST SP 800-131A: shorter ones may not sign any more."""
_ALGORITHMS: Final = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
"""By kind and curve."""
ASYMMETRIC: Final = tuple(_ALGORITHMS.values())
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "k"})

PublicKey: TypeAlias = Any
"""What ``cryptography`` makes of it, a package that not every installation has."""


class KeyUnusable(ValueError):
    """A key, or a whole set, is of no use here; says why, in words for an operator."""


class VerifyingKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key and the one algorithm it is for."""

    kid: str
    """Empty for a key without a name."""
    algorithm: str
    key: PublicKey


class KeySet(msgspec.Struct, frozen=True, kw_only=True):
    """What an issuer tells of its keys."""

    keys: tuple[VerifyingKey, ...] = ()
    passed_over: tuple[str, ...] = ()
    """A reason for each key that is of no use here."""

    def named(self, kid: str | None) -> tuple[VerifyingKey, ...]:
        """The keys that a token may mean: those of this name, else those without one; all for a token that names
        none."""
        if kid is None:
            return self.keys
        return tuple(key for key in self.keys if key.kid == kid) or tuple(key for key in self.keys if not key.kid)


def read_key_set(data: bytes) -> KeySet:
    """The set that ``data`` is the JSON of. Raises: KeyUnusable: it is no key set at all."""
    try:
        told = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise KeyUnusable("not JSON") from None
    entries = told.get("keys") if isinstance(told, dict) else None
    if not isinstance(entries, list):
        raise KeyUnusable("no JSON object with a list 'keys'")
    if len(entries) > KEYS_MAX:
        raise KeyUnusable(f"{len(entries)} keys, which is more than {KEYS_MAX}")
    keys, passed_over = [], []
    for place, entry in enumerate(entries, start=1):
        try:
            keys.append(_key(entry))
        except KeyUnusable as exc:
            passed_over.append(f"key {place}: {exc}")
    return KeySet(keys=tuple(keys), passed_over=tuple(passed_over))


def _key(entry: object) -> VerifyingKey:
    """Raises: KeyUnusable."""
    if not isinstance(entry, dict):
        raise KeyUnusable("no JSON object")
    algorithm = _algorithm(entry)
    kid = entry.get("kid", "")
    if not isinstance(kid, str):
        raise KeyUnusable("its 'kid' is no text")
    try:
        key: PublicKey = jwt.PyJWK(entry, algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError) as exc:
        raise KeyUnusable("cannot be read") from exc
    if algorithm == "RS256" and key.key_size < RSA_BITS_MIN:
        raise KeyUnusable(f"has {key.key_size} bits, expected at least {RSA_BITS_MIN}")
    return VerifyingKey(kid=kid, algorithm=algorithm, key=key)


def _algorithm(entry: dict[str, Any]) -> str:
    kind, curve = entry.get("kty"), entry.get("crv")
    if kind == "oct" or _PRIVATE & entry.keys():
        raise KeyUnusable("is secret, and a key set is public: the issuer must replace it")
    if not (isinstance(kind, str) and (curve is None or isinstance(curve, str))):
        raise KeyUnusable("has no kind")
    algorithm = _ALGORITHMS.get((kind, curve if kind != "RSA" else None))
    if algorithm is None:
        raise KeyUnusable(f"is of kind {kind[:20]} {(curve or '')[:20]}".rstrip())
    if entry.get("alg", algorithm) != algorithm:
        raise KeyUnusable(f"is for another algorithm than {algorithm}")
    if entry.get("use", "sig") != "sig" or "verify" not in _operations(entry):
        raise KeyUnusable("is not for signatures")
    return algorithm


def _operations(entry: dict[str, Any]) -> list[Any]:
    operations = entry.get("key_ops", ["verify"])
    return operations if isinstance(operations, list) else []
