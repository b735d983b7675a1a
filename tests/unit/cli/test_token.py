"""Tokens signed on the command line are those that the gateway takes."""

from pathlib import Path

import msgspec
import pytest

from torpor.cli.main import main
from torpor.clock import SystemClock
from torpor.gateway.auth import Principal
from torpor.gateway.authenticator import Authenticator
from torpor.local_files import keep_secret, make_data_folder

SECRET = b"s" * 32


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which a server ran once."""
    make_data_folder(tmp_path / ".torpor")
    keep_secret(tmp_path / ".torpor", fresh=SECRET)
    return tmp_path


def principal_of(token: str) -> Principal:
    return Authenticator(SECRET, clock=SystemClock(), leeway_s=0).authenticate(token)


def test_token_says_who_acts_for_whom(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--subject", "ada", "--owner", "clinic", "--tenant", "north", "--scope", "operator"]

    assert main(["token", *arguments, "--home", str(home)]) == 0

    principal = principal_of(capsys.readouterr().out.strip())
    assert (principal.subject, principal.owner, principal.tenant) == ("ada", "clinic", "north")
    assert principal.scopes == ("operator",)


def test_subject_alone_is_its_own_owner_and_may_chat(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "--subject", "ada", "--home", str(home)]) == 0

    principal = principal_of(capsys.readouterr().out.strip())
    assert (principal.owner, principal.tenant, principal.scopes) == ("ada", "default", ("chat",))


@pytest.mark.parametrize(("ttl", "lifetime_s"), [("90", 90), ("90s", 90), ("2m", 120), ("8h", 28_800), ("7d", 604_800)])
def test_token_ends_when_it_was_told_to(
    home: Path, ttl: str, lifetime_s: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before_us = SystemClock().now_us()

    assert main(["token", "--subject", "ada", "--ttl", ttl, "--home", str(home), "--json"]) == 0

    facts = msgspec.json.decode(capsys.readouterr().out)
    assert facts["expires_at_us"] - before_us >= lifetime_s * 1_000_000
    assert principal_of(facts["token"]).expires_us is not None
    assert (facts["subject"], facts["owner"], facts["scopes"]) == ("ada", "ada", ["chat"])


@pytest.mark.parametrize("ttl", ["0", "-1", "soon", "1y"])
def test_lifetime_that_is_none_is_used_wrongly(home: Path, ttl: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "--subject", "ada", "--ttl", ttl, "--home", str(home)]) == 2
    assert f"{ttl!r} is not a lifetime" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--subject", "--owner", "--tenant"])
@pytest.mark.parametrize("name", ["a b", "", "a/b/c", "x" * 129])
def test_name_that_cannot_be_one_is_used_wrongly(
    option: str, name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subject = [] if option == "--subject" else ["--subject", "ada"]
    assert main(["token", *subject, option, name, "--home", str(home)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"torpor: invalid value for '{option}': {name!r} is not a name, expected 1 to 128")
    assert "an option of its own" not in told


def test_owner_with_a_tenant_before_it_is_told_how_to_say_that(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "--subject", "ada", "--owner", "north/ann", "--home", str(home)]) == 2
    assert "; the tenant is an option of its own: --tenant north --owner ann; see" in capsys.readouterr().err


def test_home_that_was_never_served_gets_the_secret_of_its_first_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").mkdir()

    assert main(["token", "--subject", "ada", "--home", str(tmp_path)]) == 0

    shown = capsys.readouterr()
    assert shown.err.startswith(f"torpor: new secret in {tmp_path}/.torpor, as of a first start: `")
    assert shown.err.endswith(f"serve --home {tmp_path}`\n")
    secret = keep_secret(tmp_path / ".torpor", fresh=SECRET)  # as a start finds it
    assert secret != SECRET
    assert Authenticator(secret, clock=SystemClock(), leeway_s=0).authenticate(shown.out.strip()).subject == "ada"


def test_what_is_no_home_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "--subject", "ada", "--home", str(tmp_path)]) == 1

    shown = capsys.readouterr().err
    assert shown.startswith(f"torpor: no secret in {tmp_path}/.torpor, and {tmp_path} is no agent home; name an agent ")
    assert shown.endswith(f" init {tmp_path}`\n")
    assert list(tmp_path.iterdir()) == []
