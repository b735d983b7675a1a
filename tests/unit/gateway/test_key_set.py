"""What of an issuer's key set is of use, and for which algorithm."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.support.issuer import ALGORITHMS, key_set, public_jwk
from torpor.gateway.key_set import KEYS_MAX, KeyUnusable, read_key_set


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "more", [{}, {"alg": ...}, {"use": ...}, {"key_ops": ["verify"], "use": ...}, {"x5c": ["junk"]}]
)
def test_a_public_key_is_for_the_algorithm_of_its_kind(algorithm: str, more: dict[str, Any]) -> None:
    told = read_key_set(key_set(public_jwk(algorithm, **more)))

    assert [(key.kid, key.algorithm) for key in told.keys] == [("one", algorithm)]
    assert told.passed_over == ()


def short_rsa() -> dict[str, Any]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    told: dict[str, Any] = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {"kty": "RSA", "n": told["n"], "e": told["e"]}


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("text", "no JSON object"),
        ({}, "has no kind"),
        ({"kty": ["RSA"]}, "has no kind"),
        ({"kty": "oct", "k": "c2VjcmV0"}, "is secret"),
        (public_jwk("RS256", d="AQAB"), "is secret"),
        (public_jwk("RS256", k="AQAB"), "is secret"),
        (public_jwk("RS256", alg="HS256"), "is for another algorithm than RS256"),
        (public_jwk("RS256", alg="none"), "is for another algorithm than RS256"),
        (public_jwk("RS256", alg="RS512"), "is for another algorithm than RS256"),
        (public_jwk("ES256", alg="RS256"), "is for another algorithm than ES256"),
        (public_jwk("ES256", crv="P-521"), "is of kind EC P-521"),
        (public_jwk("EdDSA", crv="X25519"), "is of kind OKP X25519"),
        (public_jwk("RS256", use="enc"), "is not for signatures"),
        (public_jwk("RS256", key_ops=["encrypt"]), "is not for signatures"),
        (public_jwk("RS256", key_ops="verify"), "is not for signatures"),
        (public_jwk("RS256", n="!"), "cannot be read"),
        (public_jwk("RS256", n=...), "cannot be read"),
        (public_jwk("ES256", x="AAAA"), "cannot be read"),
        (public_jwk("RS256", kid=7), "its 'kid' is no text"),
        (short_rsa(), "has 1024 bits, expected at least 2048"),
    ],
)
def test_a_key_of_no_use_is_passed_over_with_its_reason_and_costs_no_other_key(key: Any, reason: str) -> None:
    told = read_key_set(key_set(key, public_jwk("ES256", "two")))

    assert [found.kid for found in told.keys] == ["two"]
    (why,) = told.passed_over
    assert why.startswith(f"key 1: {reason}")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no JSON object with a list 'keys'"),
        (b'{"keys": {}}', "no JSON object with a list 'keys'"),
        (b'{"error": "down"}', "no JSON object with a list 'keys'"),
        (json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode(), "101 keys"),
    ],
)
def test_what_is_no_key_set_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(KeyUnusable, match=reason):
        read_key_set(data)


def test_a_token_means_the_keys_of_its_kid_else_those_without_one() -> None:
    told = read_key_set(key_set(public_jwk("RS256"), public_jwk("ES256", "two"), public_jwk("EdDSA", "three", kid=...)))

    assert [key.algorithm for key in told.named("two")] == ["ES256"]
    assert [key.algorithm for key in told.named("else")] == ["EdDSA"]
    assert len(told.named(None)) == 3
