"""Whose tokens count beside this machine's own, and what nobody can make of a public key."""

import base64
import contextlib
import hashlib
import hmac
import json
from typing import Any

import anyio
import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.gateway_line import SECRET, ManualClock, token_for
from tests.support.issuer import (
    ALGORITHMS,
    AUDIENCE,
    ISSUER,
    issued,
    issuer_options,
    key_set,
    private_key,
    public_jwk,
    public_pem,
)
from torpor.errors import ConfigError, KeysUnavailable, TokenExpired, Unauthenticated
from torpor.gateway.auth import mint
from torpor.gateway.auth_options import AuthOptions
from torpor.gateway.authenticator import Authenticator, Trusted, UnknownKey
from torpor.gateway.key_set import KeySet, read_key_set

GIVEN = b"another secret that somebody made on purpose"


class Shelf:
    """Keys that a test puts there; implements ``Keys``."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys: KeySet = read_key_set(key_set(*keys))
        self.newer: KeySet | None = self.keys
        """What a look finds; None for nothing."""
        self.looks = 0

    async def renewed(self) -> bool:
        await anyio.lowlevel.checkpoint()
        self.looks += 1
        if self.newer is not None:
            self.keys = self.newer
        return self.newer is not None


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(*(public_jwk(algorithm, f"key-{algorithm}") for algorithm in ALGORITHMS))


def trusting(
    clock: ManualClock, shelf: Shelf | None = None, *, secret: bytes | None = None, **more: Any
) -> Authenticator:
    options = issuer_options(**more) if shelf is not None else AuthOptions(**more)
    trusted = Trusted(secret=secret, keys=shelf, options=options)
    return Authenticator(SECRET, clock=clock, leeway_s=5, trusted=trusted)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_the_issuer_names_its_principal(algorithm: str, shelf: Shelf, clock: ManualClock) -> None:
    token = issued(clock, algorithm, f"key-{algorithm}", owner="ward-7", tenant="clinic", scope="chat operator")

    principal = trusting(clock, shelf).authenticate(token)

    assert (principal.subject, principal.owner, principal.tenant) == ("ada", "ward-7", "clinic")
    assert principal.scopes == ("chat", "operator")
    assert principal.expires_us == (clock.now_us() // 1_000_000 + 3_600) * 1_000_000


@pytest.mark.parametrize(
    ("claims", "error", "reason"),
    [
        ({"iss": ...}, Unauthenticated, "no claim 'iss'"),
        (
            {"iss": "https://login.example.com"},
            Unauthenticated,
            f"'iss' is 'https://login.example.com', expected '{ISSUER}', see auth.issuer",
        ),
        ({"iss": ISSUER + "/"}, Unauthenticated, f"'iss' is '{ISSUER}/', expected '{ISSUER}'"),
        ({"aud": ...}, Unauthenticated, "no claim 'aud'"),
        ({"aud": "mail"}, Unauthenticated, f"'aud' is 'mail', expected '{AUDIENCE}', see auth.audience"),
        ({"aud": ["mail", "files"]}, Unauthenticated, r"'aud' is \['mail', 'files'\], expected"),
        ({"aud": "m" * 10_000}, Unauthenticated, "'aud' is 'm{199}…, expected"),
        ({"aud": []}, Unauthenticated, "no claim 'aud'"),
        ({"sub": ...}, Unauthenticated, "no claim 'sub'"),
        ({"exp": ...}, Unauthenticated, "never expires"),
        ({"exp": ..., "iss": "torpor-dev"}, Unauthenticated, "'iss' is 'torpor-dev'"),
        ({"exp": 1}, TokenExpired, "expired"),
        ({"nbf": 4_000_000_000}, Unauthenticated, "not valid yet"),
        ({"tenant": "a b"}, Unauthenticated, "'tenant' is not a name"),
    ],
)
def test_claims_of_the_issuer_that_do_not_do_are_refused(
    claims: dict[str, Any], error: type[Exception], reason: str, shelf: Shelf, clock: ManualClock
) -> None:
    with pytest.raises(error, match=reason) as refusal:
        trusting(clock, shelf).authenticate(issued(clock, "RS256", "key-RS256", **claims))

    assert type(refusal.value) is error


def test_one_of_several_audiences_will_do(shelf: Shelf, clock: ManualClock) -> None:
    token = issued(clock, "RS256", "key-RS256", aud=["mail", AUDIENCE])

    assert trusting(clock, shelf).authenticate(token).subject == "ada"


def test_the_clock_of_the_issuer_may_differ_by_the_leeway(shelf: Shelf, clock: ManualClock) -> None:
    now = clock.now_us() // 1_000_000
    token = issued(clock, "RS256", "key-RS256", exp=now + 60, nbf=now + 4)
    authenticator = trusting(clock, shelf)

    principal = authenticator.authenticate(token)
    clock.advance(64.9)
    assert not authenticator.is_expired(principal)
    clock.advance(0.2)
    with pytest.raises(TokenExpired):
        authenticator.authenticate(token)


def test_an_issuer_may_call_the_claims_otherwise_and_then_its_own_words_for_ours_mean_nothing(
    shelf: Shelf, clock: ManualClock
) -> None:
    authenticator = trusting(clock, shelf, owner_claim="org", tenant_claim="tid", scope_claim="scp")
    renamed = issued(
        clock, "RS256", "key-RS256", org="ward-7", tid="clinic", scp=["chat"], scope="operator", owner="x", tenant="y"
    )
    bare = issued(clock, "RS256", "key-RS256", scope="operator", owner="x", tenant="y")

    told, plain = authenticator.authenticate(renamed), authenticator.authenticate(bare)

    assert (told.owner, told.tenant, told.scopes) == ("ward-7", "clinic", ("chat",))
    assert (plain.owner, plain.tenant, plain.scopes) == ("ada", "default", ("chat",))


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(clock: ManualClock, header: dict[str, Any], *, key: bytes = b"") -> str:
    """A token with whatever header, and a signature that HS256 makes with ``key``."""
    claims = {
        "sub": "eve",
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": clock.now_us() // 1_000_000 + 60,
        "scope": "operator",
    }
    signed = f"{part(header)}.{part(claims)}"
    return f"{signed}.{part(hmac.new(key, signed.encode(), hashlib.sha256).digest()) if key else ''}"


def attacks(clock: ManualClock) -> dict[str, str]:
    """What somebody tries who has read the public keys and holds no private one."""
    pem = public_pem("RS256", "key-RS256")
    jwk = json.dumps(public_jwk("RS256", "key-RS256")).encode()
    own = {"alg": "RS256", "jwk": public_jwk("RS256", "of eve")}
    return {
        "no algorithm": forged(clock, {"alg": "none", "kid": "key-RS256"}),
        "no algorithm in capitals": forged(clock, {"alg": "NONE", "kid": "key-RS256"}),
        "no algorithm named": forged(clock, {"kid": "key-RS256"}),
        "an empty algorithm": forged(clock, {"alg": "", "kid": "key-RS256"}),
        "an algorithm that is none": forged(clock, {"alg": None, "kid": "key-RS256"}),
        "a list of algorithms": forged(clock, {"alg": ["RS256"], "kid": "key-RS256"}),
        "the public key as a secret": forged(clock, {"alg": "HS256", "kid": "key-RS256"}, key=pem),
        "the public key without its last line break": forged(clock, {"alg": "HS256"}, key=pem.strip()),
        "the published key as a secret": forged(clock, {"alg": "HS256", "kid": "key-RS256"}, key=jwk),
        "an empty secret": forged(clock, {"alg": "HS256"}, key=b"\0"),
        "another secret's algorithm": jwt.encode({"sub": "eve"}, SECRET * 2, "HS512"),
        "a signature of HS256 called RS256": forged(clock, {"alg": "RS256", "kid": "key-RS256"}, key=SECRET),
        "another kind of key under its name": issued(clock, "ES256", "of eve", headers={"kid": "key-RS256"}),
        "another key of its kind": issued(clock, "RS256", "of eve", headers={"kid": "key-RS256"}),
        "a key of its own in the header": issued(clock, "RS256", "of eve", headers={**own, "kid": "key-RS256"}),
        "an address of keys in the header": issued(
            clock, "RS256", "of eve", headers={"kid": "key-RS256", "jku": "https://eve.example.org/keys"}
        ),
        "a longer hash": jwt.encode(
            {"sub": "eve", "iss": ISSUER, "aud": AUDIENCE, "exp": 4_000_000_000},
            private_key("RS256", "key-RS256"),
            "RS512",
            headers={"kid": "key-RS256"},
        ),
        "an extension that must be understood": issued(
            clock, "RS256", "key-RS256", headers={"kid": "key-RS256", "crit": ["exp"], "exp": 1}
        ),
        "a signature cut off": issued(clock, "RS256", "key-RS256").rpartition(".")[0] + ".",
        "no kid and a foreign key": issued(clock, "RS256", "of eve", headers={}),
        "a kid that is a path": forged(clock, {"alg": "HS256", "kid": "../../dev/null"}, key=b"\0"),
        "a kid that is a number": forged(clock, {"alg": "RS256", "kid": 7}),
    }


_JWS = jwt.PyJWS()


def odd_tokens(clock: ManualClock) -> dict[str, str]:
    """Text that is no token, and that whoever parses it may stumble over."""
    claims = part({"sub": "eve"})
    return {
        "a header without end": f"{part(b'[' * 5_000)}.{claims}.x",
        "a header of objects without end": f"{part(b'[{},' * 1_200)}.{claims}.x",
        "claims without end": _JWS.encode(b"[" * 100_000, SECRET, "HS256"),
        "claims that are no object": _JWS.encode(b"[]", SECRET, "HS256"),
        "claims that are no text": _JWS.encode(b"\xff\xfe", SECRET, "HS256"),
        "a number without end": _JWS.encode(b'{"sub": "eve", "exp": ' + b"9" * 5_000 + b"}", SECRET, "HS256"),
        "a header that is no text": f"{part(bytes([255, 254]))}.{claims}.x",
        "a header that is a number": f"{part(7)}.{claims}.x",
        "surrogates": "\ud800.\udfff.\ud800",
        "a null": "\0",
        "dots": "." * 1_000,
        "two parts": f"{part({'alg': 'HS256'})}.{claims}",
        "a detached body": f"{part({'alg': 'HS256', 'b64': False, 'crit': ['b64']})}..x",
        "long": "a" * 1_000_000,
    }


@pytest.mark.parametrize("kind", odd_tokens(ManualClock()))
def test_text_that_is_no_token_is_refused_like_a_foreign_one(kind: str, shelf: Shelf, clock: ManualClock) -> None:
    with pytest.raises(Unauthenticated):
        trusting(clock, shelf, secret=GIVEN).authenticate(odd_tokens(clock)[kind], is_local=True)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["HS256", "RS256"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    header=st.dictionaries(st.sampled_from(["alg", "kid", "crit", "b64", "typ", "jwk"]), _JSON),
    claims=st.dictionaries(st.sampled_from(["sub", "exp", "nbf", "iat", "iss", "aud", "scope", "owner", "jti"]), _JSON),
    good=st.booleans(),
)
def test_whatever_stands_in_a_token_it_names_somebody_or_is_refused(
    header: dict[str, Any], claims: dict[str, Any], good: bool
) -> None:
    clock = ManualClock()
    authenticator = trusting(clock, Shelf(public_jwk("ES256")), secret=GIVEN)
    signed = f"{part({'alg': 'HS256'} | header)}.{part(claims)}"
    key = SECRET if good else b"x"
    token = f"{signed}.{part(hmac.new(key, signed.encode(), hashlib.sha256).digest())}"

    with contextlib.suppress(Unauthenticated):
        assert (authenticator.authenticate(token, is_local=True).subject, good) == (claims["sub"], True)


@pytest.mark.parametrize("kind", attacks(ManualClock()))
def test_nobody_makes_a_token_out_of_public_keys(kind: str, shelf: Shelf, clock: ManualClock) -> None:
    authenticator = trusting(clock, shelf, secret=GIVEN)
    token = attacks(clock)[kind]

    with pytest.raises(Unauthenticated) as refusal:
        authenticator.authenticate(token, is_local=True)

    assert refusal.value.code == "unauthenticated"
    assert all(piece not in str(refusal.value) for piece in token.split(".") if len(piece) > 8)


def test_a_token_without_kid_is_tried_with_every_key_of_its_algorithm(clock: ManualClock) -> None:
    shelf = Shelf(public_jwk("RS256", "old"), public_jwk("RS256", "new"), public_jwk("ES256", "other"))

    assert trusting(clock, shelf).authenticate(issued(clock, "RS256", "new", headers={})).subject == "ada"


async def test_an_unknown_key_is_looked_for_once(shelf: Shelf, clock: ManualClock) -> None:
    shelf.newer = read_key_set(key_set(public_jwk("ES256", "new")))
    authenticator = trusting(clock, shelf)
    token = issued(clock, "ES256", "new")
    with pytest.raises(UnknownKey):
        authenticator.authenticate(token)

    assert (await authenticator.identify(token)).subject == "ada"
    assert (await authenticator.identify(token)).subject == "ada"
    assert shelf.looks == 1


async def test_a_key_that_the_issuer_does_not_know_either_is_refused(shelf: Shelf, clock: ManualClock) -> None:
    with pytest.raises(UnknownKey, match="does not tell of"):
        await trusting(clock, shelf).identify(issued(clock, "ES256", "made up"))


async def test_an_issuer_that_cannot_be_asked_says_nothing_of_the_token(shelf: Shelf, clock: ManualClock) -> None:
    shelf.newer = None

    with pytest.raises(KeysUnavailable) as refusal:
        await trusting(clock, shelf).identify(issued(clock, "ES256", "made up"))
    assert refusal.value.retry_after_s is not None


async def test_a_withdrawn_key_checks_nothing_any_more(shelf: Shelf, clock: ManualClock) -> None:
    authenticator = trusting(clock, shelf)
    token = issued(clock, "RS256", "key-RS256")
    authenticator.authenticate(token)
    shelf.keys = shelf.newer = read_key_set(key_set(public_jwk("ES256", "new")))

    with pytest.raises(UnknownKey):
        await authenticator.identify(token)


@pytest.mark.parametrize(("is_local", "local_tokens"), [(False, True), (True, False), (False, False)])
def test_beside_an_issuer_own_tokens_count_on_this_machine_alone(
    is_local: bool, local_tokens: bool, shelf: Shelf, clock: ManualClock
) -> None:
    authenticator = trusting(clock, shelf, local_tokens=local_tokens)
    endless = mint(SECRET, subject="developer", now_us=clock.now_us(), scopes=("operator",))

    for token in (endless, token_for("ada", clock=clock)):
        with pytest.raises(Unauthenticated, match="this machine's own"):
            authenticator.authenticate(token, is_local=is_local)
        assert trusting(clock, shelf).authenticate(token, is_local=True).subject in {"developer", "ada"}


def test_a_given_secret_counts_for_everybody_and_makes_no_token_that_never_ends(clock: ManualClock) -> None:
    authenticator = trusting(clock, secret=GIVEN)
    good = mint(GIVEN, subject="ada", now_us=clock.now_us(), lifetime_s=60)
    endless = mint(GIVEN, subject="ada", now_us=clock.now_us())

    assert authenticator.authenticate(good).subject == "ada"
    with pytest.raises(Unauthenticated, match="never expires"):
        authenticator.authenticate(endless, is_local=True)


def test_a_given_secret_asks_for_issuer_and_audience_where_they_are_set(clock: ManualClock) -> None:
    authenticator = trusting(clock, secret=GIVEN, issuer=ISSUER, audience=AUDIENCE)
    bare = mint(GIVEN, subject="ada", now_us=clock.now_us(), lifetime_s=60)
    whole = mint(GIVEN, subject="ada", now_us=clock.now_us(), lifetime_s=60, more={"iss": ISSUER, "aud": AUDIENCE})

    assert authenticator.authenticate(whole).subject == "ada"
    with pytest.raises(Unauthenticated, match="no claim"):
        authenticator.authenticate(bare)


def test_a_given_secret_that_is_short_is_refused(clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match="31 bytes"):
        trusting(clock, secret=GIVEN[:31])
