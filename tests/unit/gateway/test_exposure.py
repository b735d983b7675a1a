"""What an address needs that others can reach."""

from typing import Any

import pytest

from torpor.errors import ConfigError
from torpor.gateway.auth_options import AuthOptions
from torpor.gateway.exposure import (
    check_exposure,
    is_loopback,
    is_loopback_address,
    is_loopback_name,
    reachable_here,
)
from torpor.gateway.options import GatewayOptions

FILES = {"tls_certificate": "c.pem", "tls_key": "k.pem"}


@pytest.mark.parametrize(
    ("gateway", "auth", "missing"),
    [
        ({}, {}, ["gateway.tls_certificate", "gateway.tls = 'terminated'", "auth.secret_file", "auth.jwks"]),
        (FILES, {}, ["auth.secret_file", "auth.secret_env", "auth.jwks"]),
        ({"tls": "terminated"}, {}, ["auth.secret_file"]),
        ({}, {"secret_env": "S"}, ["gateway.tls_certificate"]),
        ({}, {"jwks": "keys.json"}, ["gateway.tls_certificate"]),
    ],
)
def test_what_is_missing_is_told_whole_and_what_is_there_is_not(
    gateway: dict[str, Any], auth: dict[str, Any], missing: list[str]
) -> None:
    options = GatewayOptions(host="10.0.0.7", **gateway)

    with pytest.raises(ConfigError) as refusal:
        check_exposure(options, AuthOptions(**auth), is_loopback=False)

    told = str(refusal.value)
    assert told.startswith("address to listen on: gateway.host is '10.0.0.7', which others can reach, expected ")
    assert [word for word in missing if word not in told] == []
    assert ("TLS here" in told, "secret of your own" in told) == (not gateway, not auth)


@pytest.mark.parametrize(("gateway", "auth"), [({}, {}), (FILES, {}), ({}, {"secret_env": "S"})])
def test_on_this_machine_alone_nothing_is_missing(gateway: dict[str, Any], auth: dict[str, Any]) -> None:
    check_exposure(GatewayOptions(host="127.0.0.1", **gateway), AuthOptions(**auth), is_loopback=True)


def test_a_proxy_before_it_brings_others_to_the_loopback_address() -> None:
    options = GatewayOptions(host="127.0.0.1", tls="terminated")

    with pytest.raises(
        ConfigError, match=r"which others can reach by the proxy of gateway\.tls = 'terminated', expected a"
    ):
        check_exposure(options, AuthOptions(), is_loopback=True)
    check_exposure(options, AuthOptions(secret_env="S"), is_loopback=True)


@pytest.mark.parametrize("gateway", [FILES, {"tls": "terminated"}])
@pytest.mark.parametrize("auth", [{"secret_file": "s"}, {"secret_env": "S"}, {"jwks": "https://login.example.org"}])
def test_with_both_any_address_will_do(gateway: dict[str, Any], auth: dict[str, Any]) -> None:
    check_exposure(GatewayOptions(host="0.0.0.0", **gateway), AuthOptions(**auth), is_loopback=False)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("", False),
        ("a socket", False),
    ],
)
def test_this_machine_is_known_by_its_addresses(address: str, expected: bool) -> None:
    assert is_loopback_address(address) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("0", False), ("", False), ("::", False)],
)
async def test_a_host_is_this_machine_when_all_its_addresses_are(host: str, expected: bool) -> None:
    assert await is_loopback(host) is expected


def test_a_name_that_would_have_to_be_asked_for_is_not_taken_for_this_machine() -> None:
    assert is_loopback_name("localhost")
    assert not is_loopback_name("localhost.example.org")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("", "127.0.0.1"),
        ("::", "::1"),
        ("10.0.0.7", "10.0.0.7"),
        ("torpor.example.org", "torpor.example.org"),
    ],
)
def test_clients_here_are_told_an_address_that_they_can_connect_to(host: str, address: str) -> None:
    assert reachable_here(host) == address
