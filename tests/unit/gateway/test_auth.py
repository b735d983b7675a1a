import base64
import json
from typing import Any

import jwt
import pytest

from tests.support.gateway_line import SECRET, ManualClock
from torpor.errors import ConfigError, Unauthenticated
from torpor.gateway.auth import Principal, Scope, mint
from torpor.gateway.authenticator import Authenticator


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def authenticator(clock: ManualClock) -> Authenticator:
    return Authenticator(SECRET, clock=clock, leeway_s=5)


def signed(clock: ManualClock, **claims: Any) -> str:
    everything = {"sub": "alice", "exp": clock.now_us() // 1_000_000 + 60, **claims}
    return jwt.encode({name: value for name, value in everything.items() if value is not ...}, SECRET, "HS256")


def test_a_minted_token_names_its_principal_with_the_defaults(authenticator: Authenticator, clock: ManualClock) -> None:
    token = mint(SECRET, subject="alice", now_us=clock.now_us(), lifetime_s=60)

    assert authenticator.authenticate(token) == Principal(
        subject="alice", tenant="default", owner="alice", scopes=("chat",), expires_us=clock.now_us() + 60_000_000
    )


def test_a_minted_token_carries_owner_tenant_and_scopes(authenticator: Authenticator, clock: ManualClock) -> None:
    token = mint(
        SECRET, subject="alice", owner="ward-7", tenant="clinic", scopes=("chat", "operator"), now_us=clock.now_us()
    )

    principal = authenticator.authenticate(token)

    assert (principal.owner, principal.tenant, principal.scopes) == ("ward-7", "clinic", ("chat", "operator"))
    assert principal.expires_us is None


def test_a_name_that_cannot_be_one_is_not_minted(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="'sub' is not a name"):
        mint(SECRET, subject="a/b", now_us=clock.now_us())


def test_a_short_secret_is_refused_for_checking_and_for_minting(clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match="31 bytes"):
        Authenticator(SECRET[:31], clock=clock, leeway_s=0)
    with pytest.raises(ConfigError, match="at least 32 bytes"):
        mint(b"short", subject="alice", now_us=0)


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("chat operator", ("chat", "operator")),
        (["chat", "operator"], ("chat", "operator")),
        (["chat", "chat"], ("chat",)),
        ("", ()),
        (..., ("chat",)),
    ],
)
def test_scopes_are_words_or_a_list(
    scope: object, expected: tuple[str, ...], authenticator: Authenticator, clock: ManualClock
) -> None:
    assert authenticator.authenticate(signed(clock, scope=scope)).scopes == expected


def test_the_operator_scope_includes_chat_and_not_the_other_way_round(
    authenticator: Authenticator, clock: ManualClock
) -> None:
    operator = authenticator.authenticate(signed(clock, scope="operator"))
    chatter = authenticator.authenticate(signed(clock, scope="chat"))

    assert operator.may(Scope.CHAT)
    assert operator.may(Scope.OPERATOR)
    assert chatter.may(Scope.CHAT)
    assert not chatter.may(Scope.OPERATOR)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"sub": ...}, "no claim 'sub'"),
        ({"sub": None}, "no claim 'sub'"),
        ({"sub": ""}, "'sub' is not a name"),
        ({"sub": "a/b"}, "'sub' is not a name"),
        ({"sub": "a b"}, "'sub' is not a name"),
        ({"sub": "a\x00"}, "'sub' is not a name"),
        ({"sub": "a\u200b"}, "'sub' is not a name"),
        ({"sub": "x" * 129}, "'sub' is not a name"),
        ({"owner": ""}, "'owner' is not a name"),
        ({"owner": "*/x"}, "'owner' is not a name"),
        ({"owner": None}, "'owner' is not a name"),
        ({"owner": ["alice"]}, "'owner' is not a name"),
        ({"tenant": "a\nb"}, "'tenant' is not a name"),
        ({"tenant": 7}, "'tenant' is not a name"),
        ({"scope": 7}, "'scope' is not a scope"),
        ({"scope": None}, "'scope' is not a scope"),
        ({"scope": ["chat", 7]}, "'scope' is not a scope"),
        ({"exp": ...}, "never expires"),
        ({"exp": ..., "iss": "somebody"}, "never expires"),
        ({"exp": "soon"}, "'exp' is not a time"),
        ({"exp": True}, "'exp' is not a time"),
        ({"exp": float("inf")}, "'exp' is not a time"),
        ({"exp": float("nan")}, "'exp' is not a time"),
        ({"exp": 1e300}, "'exp' is not a time, expected seconds since 1970, before the year 10000"),
        ({"exp": 1_800_000_000_000}, "'exp' is not a time"),
        ({"exp": 10**400}, "'exp' is not a time"),
        ({"exp": -(10**400)}, "'exp' is not a time"),
        ({"nbf": 1e300}, "'nbf' is not a time"),
        ({"exp": 0}, "has expired"),
        ({"aud": "elsewhere"}, "'aud' is 'elsewhere', expected none, see auth.audience"),
    ],
)
def test_claims_that_do_not_name_a_principal_are_refused(
    claims: dict[str, Any], reason: str, authenticator: Authenticator, clock: ManualClock
) -> None:
    with pytest.raises(Unauthenticated, match=reason):
        authenticator.authenticate(signed(clock, **claims))


def test_a_token_ends_with_its_exp_plus_the_leeway(authenticator: Authenticator, clock: ManualClock) -> None:
    token = mint(SECRET, subject="alice", now_us=clock.now_us(), lifetime_s=60)
    clock.advance(64.9)
    principal = authenticator.authenticate(token)
    clock.advance(0.2)

    assert authenticator.is_expired(principal)
    with pytest.raises(Unauthenticated, match="has expired"):
        authenticator.authenticate(token)


def test_a_token_begins_with_its_nbf_less_the_leeway(authenticator: Authenticator, clock: ManualClock) -> None:
    token = signed(clock, nbf=clock.now_us() // 1_000_000 + 10)
    with pytest.raises(Unauthenticated, match="not valid yet"):
        authenticator.authenticate(token)
    clock.advance(5)

    assert authenticator.authenticate(token).subject == "alice"


def unsigned(algorithm: str, clock: ManualClock) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    claims = {"sub": "alice", "exp": clock.now_us() // 1_000_000 + 60}
    return f"{part({'alg': algorithm, 'typ': 'JWT'})}.{part(claims)}."


@pytest.mark.parametrize("algorithm", ["none", "None", "HS512", "RS256", ""])
def test_a_token_of_another_algorithm_or_of_none_is_refused(
    algorithm: str, authenticator: Authenticator, clock: ManualClock
) -> None:
    with pytest.raises(Unauthenticated):
        authenticator.authenticate(unsigned(algorithm, clock))


def test_a_token_of_another_secret_is_refused(authenticator: Authenticator, clock: ManualClock) -> None:
    token = mint(b"another secret of 32 bytes, also", subject="alice", now_us=clock.now_us(), lifetime_s=60)

    with pytest.raises(Unauthenticated, match="not signed with this server's secret"):
        authenticator.authenticate(token)


@pytest.mark.parametrize("token", ["", "xyzzy", "a.b.c", "é.é.é", "\ud83d", "." * 9999, "null", "e30.e30.e30"])
def test_what_is_no_token_is_refused_and_not_repeated(token: str, authenticator: Authenticator) -> None:
    with pytest.raises(Unauthenticated) as refusal:
        authenticator.authenticate(token)

    assert not token or token not in str(refusal.value)
