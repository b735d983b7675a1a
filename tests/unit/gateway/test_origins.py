"""Which pages may open a WebSocket, whatever they call themselves."""

import pytest

from torpor.errors import ConfigError
from torpor.gateway.origins import Origins, normal, own_origins

OWN = own_origins(host="127.0.0.1", port=8765, is_tls=False, is_loopback=True)


@pytest.mark.parametrize(
    ("origin", "is_welcome"),
    [
        ("https://app.example.org", True),
        ("https://APP.example.org", True),
        ("https://app.example.org:443", True),
        ("https://other.example.org:8443", True),
        ("http://app.example.org", False),
        ("https://app.example.org:444", False),
        ("https://app.example.org.evil.example", False),
        ("https://evil.example?https://app.example.org", False),
        ("https://app.example.org@evil.example", False),
        ("https://evil.example#https://app.example.org", False),
        ("https://app.example.org/", False),
        ("https://app.example.org\\evil.example", False),
        ("app.example.org", False),
        ("null", False),
        ("", False),
        ("http://127.0.0.1:8765", True),
        ("http://localhost:8765", True),
        ("http://[::1]:8765", True),
        ("https://localhost:8765", False),
        ("http://localhost:3000", False),
        ("http://localhost", False),
        ("http://evil.example:8765", False),
        ("http://[::1", False),
        ("http://localhost:port", False),
        ("file://", False),
    ],
)
def test_a_page_is_welcome_when_it_is_listed_or_our_own(origin: str, is_welcome: bool) -> None:
    origins = Origins(["https://app.example.org", "https://Other.example.org:8443"])

    assert origins.admit([origin], own=OWN) is is_welcome


def test_programs_name_no_origin_and_pass() -> None:
    assert Origins([]).admit([], own=OWN)


def test_two_origins_are_none() -> None:
    assert not Origins(["https://a.example"]).admit(["https://a.example", "https://a.example"], own=OWN)


def test_pages_without_an_origin_may_be_listed() -> None:
    assert Origins(["null"]).admit(["null"])


@pytest.mark.parametrize("listed", ["*", "app.example.org", "https://app.example.org/chat", "https://", ""])
def test_what_is_listed_and_is_no_origin_is_told(listed: str) -> None:
    with pytest.raises(ConfigError, match="expected origins like 'https://app"):
        Origins([listed])


def test_a_server_that_others_reach_goes_by_its_own_name_alone() -> None:
    assert own_origins(host="torpor.example.org", port=443, is_tls=True, is_loopback=False) == {
        "https://torpor.example.org"
    }
    assert normal("http://example.org:80") == "http://example.org"
