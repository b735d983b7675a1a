"""What logs call the place that keys come from, and a secret that others may read."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from torpor.clock import SystemClock
from torpor.gateway.auth_options import AuthOptions
from torpor.gateway.door import open_door
from torpor.gateway.key_loaders import secret_readable_by_others, shown
from torpor.gateway.options import GatewayOptions


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


OPTIONS = AuthOptions(secret_file="secret.txt")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret.txt"
    file.write_text("s" * 48)
    return file


@pytest.mark.parametrize(("mode", "is_told"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
def test_a_secret_that_others_may_read_is_told_with_its_mode(mode: int, is_told: bool, secret: Path) -> None:
    secret.chmod(mode)
    told = secret_readable_by_others(OPTIONS, home=secret.parent)

    assert told == (
        f"{secret} has mode {mode:04o}, so that others may read it and sign tokens, expected 0600: chmod 600 {secret}"
        if is_told
        else ""
    )


def test_where_there_is_no_such_file_nobody_may_read_it(tmp_path: Path) -> None:
    assert secret_readable_by_others(AuthOptions(), home=tmp_path) == ""
    assert secret_readable_by_others(OPTIONS, home=tmp_path) == ""


@pytest.fixture(params=[0o600, 0o644])
def mode(request: pytest.FixtureRequest, secret: Path) -> int:
    """Of the file."""
    secret.chmod(request.param)
    return int(request.param)


async def test_the_start_warns_of_it_and_goes_on(mode: int, secret: Path) -> None:
    with capture_logs() as logs:
        async with open_door(
            b"o" * 32,
            gateway=GatewayOptions(),
            auth=OPTIONS,
            home=secret.parent,
            environ={},
            clock=SystemClock(),
        ):
            pass

    told = [line["log_level"] for line in logs if line["event"] == "auth.secret_readable"]
    assert told == (["warning"] if mode == 0o644 else [])
