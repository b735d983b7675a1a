"""Tokens of an issuer whose keys come over HTTP or out of a file, on its good and its bad days."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus

from tests.support.gateway_house import Caller, House, gateway_house
from tests.support.gateway_line import SECRET, ManualClock, token_for
from tests.support.issuer import AUDIENCE, ISSUER, Issuer, issued, issuer, issuer_options, key_set, public_jwk
from torpor.clock import SystemClock
from torpor.errors import ConfigError
from torpor.gateway.auth import mint
from torpor.gateway.auth_options import AuthOptions
from torpor.gateway.authenticator import Authenticator, Trusted
from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.door import Door, door_problems, open_door
from torpor.gateway.key_keeper import KeyKeeper, KeysUnreadable
from torpor.gateway.key_loaders import address_loader, check_auth_options
from torpor.gateway.options import GatewayOptions
from torpor.records.frames import Accepted, ErrorFrame, Hello, ListJobs, Result, Send, Welcome
from torpor.records.ids import MessageId

QUICK = {"jwks_pause_s": 0.0, "jwks_deadline_s": 1.0, "jwks_refresh_s": 3_600.0}


@pytest.fixture
async def provider() -> AsyncIterator[Issuer]:
    async with issuer() as it:
        yield it


@asynccontextmanager
async def guarded(provider: Issuer, **more: Any) -> AsyncIterator[House]:
    """A gateway that trusts the provider, whose answers are loaded over HTTP."""
    options = issuer_options(provider.url, **QUICK | more)
    keeper = KeyKeeper(address_loader(provider.url), source="provider", options=options)
    async with keeper.running(), gateway_house(trusted=Trusted(keys=keeper, options=options)) as house:
        yield house


async def greeted(caller: Caller, token: str) -> Any:
    await caller.say(Hello(token=token))
    return await caller.hear()


async def test_a_token_of_the_issuer_opens_a_conversation_by_header_and_by_hello(provider: Issuer) -> None:
    async with guarded(provider) as house:
        token = issued(house.clock, scope="chat", tenant="clinic")
        async with house.call(None) as caller:
            welcome = await greeted(caller, token)
            assert (welcome.principal, welcome.tenant, welcome.scopes) == ("ada", "clinic", ("chat",))
        async with house.call(None, additional_headers={"Authorization": f"Bearer {token}"}) as caller:
            await caller.say(Send(conversation="c1", message_id=MessageId("m1"), text="hello"))
            await caller.hear_a(Accepted)
    assert provider.asked == 1


async def test_a_key_that_came_up_since_is_fetched_when_a_token_names_it(provider: Issuer) -> None:
    async with guarded(provider) as house:
        provider.body = key_set(public_jwk("ES256", "next"), public_jwk("RS256"))
        token = issued(house.clock, "ES256", "next")
        async with house.call(None) as caller:
            assert isinstance(await greeted(caller, token), Welcome)
        async with house.call(None, additional_headers={"Authorization": f"Bearer {token}"}) as caller:
            await caller.say(Send(conversation="c1", message_id=MessageId("m1"), text="hello"))
            await caller.hear_a(Accepted)
        async with house.call(None) as caller:
            assert isinstance(await greeted(caller, issued(house.clock)), Welcome)
    assert provider.asked == 2


async def test_frames_behind_such_a_hello_wait_for_it_in_order(provider: Issuer) -> None:
    async with guarded(provider) as house, house.call(None) as caller:
        provider.body = key_set(public_jwk("ES256", "next"))
        await caller.say(Hello(token=issued(house.clock, "ES256", "next", scope="operator")))
        await caller.say(ListJobs(ref="1"))
        await caller.say(Send(ref="2", conversation="c1", message_id=MessageId("m1"), text="hello"))

        await caller.hear_a(Welcome)
        assert {type(await caller.hear()) for _ in range(2)} == {Result, Accepted}


async def test_a_withdrawn_key_opens_nothing_and_closes_with_the_code_of_a_foreign_token(provider: Issuer) -> None:
    async with guarded(provider) as house, house.call(None) as caller:
        provider.body = key_set(public_jwk("ES256", "next"))
        await greeted(caller, issued(house.clock, "ES256", "next"))
        async with house.call(None) as other:
            assert (await greeted(other, issued(house.clock))).code == "unauthenticated"
            assert (await other.closed())[0] == CloseReason.UNAUTHENTICATED.code


@pytest.mark.parametrize("day", ["fails", "hangs", "talks nonsense", "redirects", "is endless", "hangs up"])
async def test_on_a_bad_day_known_keys_go_on_and_unknown_ones_are_told_to_come_again(
    day: str, provider: Issuer
) -> None:
    async with guarded(provider) as house:
        match day:
            case "fails":
                provider.status = "503 Service Unavailable"
            case "hangs":
                provider.hangs = True
            case "talks nonsense":
                provider.body = b"<html>log in here</html>"
            case "redirects":
                provider.status = "302 Found\r\nlocation: http://127.0.0.1:1/keys"
            case "is endless":
                provider.body = b" " * 300_000 + provider.body
            case "hangs up":
                provider.hangs_up = True
        unknown = issued(house.clock, "ES256", "next")
        with capture_logs() as logs:
            async with house.call(None) as caller:
                error = await greeted(caller, unknown)
                assert (error.code, error.retry_after_s) == ("keys_unavailable", 1.0)
                assert (await caller.closed())[0] == CloseReason.KEYS_UNAVAILABLE.code
            with pytest.raises(InvalidStatus) as refusal:
                async with house.call(None, additional_headers={"Authorization": f"Bearer {unknown}"}):
                    pass
            assert refusal.value.response.status_code == 503
            assert refusal.value.response.headers["Retry-After"] == "1"
        assert {line["event"] for line in logs} >= {"auth.keys_kept"}
        async with house.call(None) as caller:
            assert isinstance(await greeted(caller, issued(house.clock)), Welcome)


async def test_a_newer_token_that_cannot_be_checked_leaves_the_connection_as_it_was(provider: Issuer) -> None:
    async with guarded(provider) as house, house.call(None) as caller:
        await greeted(caller, issued(house.clock))
        provider.status = "503 Service Unavailable"
        await caller.say(Hello(ref="h", token=issued(house.clock, "ES256", "next")))
        await caller.say(Send(conversation="c1", message_id=MessageId("m1"), text="hello"))

        # Served while the key is looked for, so either may come first.
        heard = {type(frame): frame for frame in [await caller.hear(), await caller.hear()]}
        assert Accepted in heard
        assert isinstance(refused := heard[ErrorFrame], ErrorFrame)
        assert refused.code == "keys_unavailable"


async def test_made_up_keys_do_not_make_us_a_nuisance_to_the_issuer(provider: Issuer) -> None:
    async with guarded(provider, jwks_pause_s=1.0) as house:

        async def knock(number: int) -> None:
            async with house.call(None) as caller:
                await greeted(caller, issued(house.clock, "ES256", "eve", headers={"kid": f"made-up-{number}"}))

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(knock, number)

    assert provider.asked <= 3


@asynccontextmanager
async def door(home: Path, auth: AuthOptions, **gateway: Any) -> AsyncIterator[Door]:
    options = GatewayOptions(**gateway)
    async with open_door(
        SECRET, gateway=options, auth=auth, home=home, environ={"KEY": "k" * 32, "SHORT": "k"}, clock=SystemClock()
    ) as opened:
        yield opened


class Now(ManualClock):
    """The real time, so that a door with the real clock agrees."""

    def __init__(self) -> None:
        self.us = SystemClock().now_us()


async def test_keys_in_a_file_are_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(public_jwk("RS256")))
    async with door(tmp_path, issuer_options("keys.json", **QUICK)) as opened:
        authenticator: Authenticator = opened.authenticator
        assert not opened.is_development
        assert authenticator.authenticate(issued(Now())).subject == "ada"
        newer = tmp_path / "newer"
        newer.write_bytes(key_set(public_jwk("EdDSA", "next")))
        newer.replace(file)

        with anyio.fail_after(20):
            assert (await authenticator.identify(issued(Now(), "EdDSA", "next"))).subject == "ada"


async def test_a_changed_file_is_noticed_without_a_token_that_asks_for_it(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(public_jwk("RS256")))
    with capture_logs() as logs:
        async with door(tmp_path, issuer_options("keys.json", **QUICK)):
            file.write_bytes(key_set(public_jwk("RS256"), public_jwk("EdDSA", "next")))
            with anyio.fail_after(20):
                while not any(line.get("keys") == ["one", "next"] for line in logs):  # noqa: ASYNC110 - logs have no event
                    await anyio.sleep(0.01)


async def test_with_nothing_configured_this_machine_is_all_there_is(tmp_path: Path) -> None:
    async with door(tmp_path, AuthOptions()) as opened:
        assert opened.is_development
        assert opened.authenticator.authenticate(token_for("ada", clock=Now())).subject == "ada"


@pytest.mark.parametrize("options", [{"secret_env": "KEY"}, {"secret_file": "secret"}])
async def test_a_given_secret_comes_from_a_variable_or_a_file(options: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("k" * 32 + "\n")
    token = mint(b"k" * 32, subject="ada", now_us=SystemClock().now_us(), lifetime_s=60)
    async with door(tmp_path, AuthOptions(**options)) as opened:  # type: ignore[arg-type]  # a table of texts
        assert opened.authenticator.authenticate(token).subject == "ada"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"secret_env": "GONE"}, "auth.secret_env is GONE, which is not set"),
        ({"secret_env": "SHORT"}, "a secret of 1 bytes, expected at least 32 bytes"),
        ({"secret_file": "gone"}, "no such file"),
        ({"secret_file": "short"}, "a secret of 5 bytes"),
        ({"secret_file": "."}, "is a directory"),
        ({"secret_file": "short", "secret_env": "KEY"}, "expected either it or secret_file"),
        ({"jwks": "keys.json", "audience": AUDIENCE}, "expected the 'iss' of the tokens"),
        ({"jwks": "keys.json", "issuer": ISSUER}, "expected the 'aud' of the tokens"),
        ({"jwks": "http://login.example.org/keys"}, "expected an https address"),
        ({"jwks": "https://user:hunter2@login.example.org/keys"}, "expected an https address"),
        ({"jwks": "file:///etc/keys"}, "expected an https address"),
        ({"jwks": "https://[::1"}, "expected an https address"),
        ({"jwks": "gone.json"}, "no such file"),
        ({"jwks": "short"}, "not JSON"),
        ({"jwks": "secret.json"}, "is secret"),
        ({"jwks": "none.json"}, "without keys"),
    ],
)
async def test_what_cannot_be_used_is_told_at_the_start(options: dict[str, str], reason: str, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("short")
    (tmp_path / "secret.json").write_bytes(key_set({"kty": "oct", "k": "c2VjcmV0"}))
    (tmp_path / "none.json").write_bytes(key_set())
    if "jwks" in options and not options.keys() & {"issuer", "audience"}:
        options = {**options, "issuer": ISSUER, "audience": AUDIENCE}

    with pytest.raises((ConfigError, ExceptionGroup)) as refusal:
        async with door(tmp_path, AuthOptions(**options)):  # type: ignore[arg-type]  # likewise
            pass

    fault: BaseException = refusal.value
    while isinstance(fault, BaseExceptionGroup):
        (fault,) = fault.exceptions
    assert isinstance(fault, ConfigError)
    assert reason in str(fault)
    assert "hunter2" not in str(fault)


async def test_an_issuer_that_is_down_at_the_start_is_asked_again(tmp_path: Path, provider: Issuer) -> None:
    provider.status = "500 Internal Server Error"
    async with door(tmp_path, issuer_options(provider.url, **QUICK)) as opened:
        provider.status = "200 OK"

        assert (await opened.authenticator.identify(issued(Now()))).subject == "ada"


def test_what_checks_public_keys_is_named_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torpor.gateway.key_loaders.has_crypto", False)

    with pytest.raises(ConfigError, match=r"the extra 'jwks', in a checkout: make \.venv/\.jwks"):
        check_auth_options(issuer_options())


async def test_an_issuer_that_does_not_listen_is_told_in_words() -> None:
    with pytest.raises(KeysUnreadable, match="ConnectError"):
        await address_loader("http://127.0.0.1:1/keys")()


async def test_the_check_of_a_home_tells_all_of_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torpor.gateway.key_loaders.has_crypto", False)
    problems = door_problems(
        GatewayOptions(host="0.0.0.0", origins=("app", "https://app.example", "/"), tls_key="k.pem", tls="terminated"),
        AuthOptions(secret_file="gone", secret_env="GONE", jwks="keys.json"),
        home=tmp_path,
        environ={},
    )

    assert [problem.key for problem in problems] == [
        "auth.secret_env",
        "auth.issuer",
        "auth.audience",
        "auth.jwks",
        "auth.secret_env",
        "gateway.origins",
        "gateway.origins",
        "gateway.tls_certificate",
        "gateway.tls",
    ]


async def test_own_tokens_count_for_clients_on_this_machine_unless_a_proxy_speaks_for_another(
    provider: Issuer,
) -> None:
    async with guarded(provider) as house:
        token = token_for("developer", clock=house.clock, scopes=("operator",))
        async with house.call(None) as caller:
            assert isinstance(await greeted(caller, token), Welcome)
        async with house.call(None, additional_headers={"X-Forwarded-For": "203.0.113.9"}) as caller:
            assert (await greeted(caller, token)).code == "unauthenticated"
    async with guarded(provider, local_tokens=False) as house, house.call(None) as caller:
        assert (await greeted(caller, token_for("developer", clock=house.clock))).code == "unauthenticated"
