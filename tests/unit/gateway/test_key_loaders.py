"""What logs call the place that keys come from."""

import pytest

from torpor.gateway.key_loaders import shown


@pytest.mark.parametrize(
    ("jwks", "told"),
    [
        ("jwks.json", "jwks.json"),
        ("/etc/torpor/jwks.json", "/etc/torpor/jwks.json"),
        ("https://login.example.org/keys?tenant=7", "https://login.example.org/keys"),
        ("https://user:word@login.example.org/keys", "https://login.example.org/keys"),
    ],
)
def test_a_file_is_called_by_its_path_and_an_address_without_what_may_be_secret(jwks: str, told: str) -> None:
    assert shown(jwks) == told
