"""What `torpor doctor` finds out about the models of a home."""

from pathlib import Path

import pytest

from tests.integration.model.real_host import KEY
from torpor.cli import doctor
from torpor.cli.doctor import Diagnosis, examined
from torpor.cli.main import main
from torpor.settings import read_settings
from torpor_fake_api.scripting.catalogue import misbehave
from torpor_fake_api.server import FakeApi, serving

AGENT = """
name = "clerk"
system = "You are a clerk."
[model]
kind = "anthropic"
model = "claude-haiku-4-5"
"""
REHEARSAL = '[[rule]]\n[[rule.step]]\nsay = "hello"\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for folder in ("agents", "rehearsals"):
        (tmp_path / "config" / folder).mkdir(parents=True)
    (tmp_path / "config" / "rehearsals" / "clerk.toml").write_text(REHEARSAL)
    return tmp_path


async def diagnosed(
    home: Path, options: str = "", *, api: FakeApi | None = None, key: str = KEY, agent: str = AGENT
) -> list[Diagnosis]:
    url = f'base_url = "{api.url}"\n' if api else ""
    (home / "config" / "agents" / "clerk.toml").write_text(agent + url + options)
    return await examined(read_settings(home, {}), {"ANTHROPIC_API_KEY": key} if key else {})


async def test_a_model_that_answers_is_told_with_its_window_and_costs_one_token(home: Path) -> None:
    async with serving(profile="strict", api_key=KEY) as api:
        (found,) = await diagnosed(home, api=api)
    assert (found.state, found.model, found.window_tokens, found.remedy) == ("ok", "claude-haiku-4-5", 200_000, "")
    assert [body["max_tokens"] for body in api.bodies] == [1]


async def test_a_window_that_differs_from_the_hosts_word_is_told(home: Path) -> None:
    async with serving(profile="strict") as api:
        (found,) = await diagnosed(home, "window_tokens = 9000\n", api=api)
    assert (found.state, found.window_tokens) == ("ok", 200_000)
    assert found.detail.endswith("9000 are assumed")
    assert found.remedy == "set model.window_tokens in config/agents/clerk.toml to 200000"


@pytest.mark.parametrize(
    ("name", "code", "remedy"),
    [
        ("not_authenticated", "model_key_refused", "put a valid key into ANTHROPIC_API_KEY"),
        ("billing", "model_billing_refused", "look at the account's credit and limits"),
        ("model_not_found", "model_unknown", "name a model that the host serves in config/agents/clerk.toml"),
        ("overloaded", "model_overloaded", "key and model are good, wait and try again"),
        ("invalid_request", "model_request_invalid", "check the options of [model] in config/agents/clerk.toml"),
        ("bad_gateway", "model_unavailable", "check the network"),
    ],
)
async def test_what_is_wrong_is_told_with_what_to_do(home: Path, name: str, code: str, remedy: str) -> None:
    async with serving(misbehave(name), profile="strict") as api:
        (found,) = await diagnosed(home, api=api)
    assert found.state == "wrong"
    assert found.detail.startswith(f"{code}: ")
    assert found.remedy.startswith(remedy)


async def test_a_host_that_nobody_listens_for_is_told(home: Path) -> None:
    async with serving() as api:
        api.refuse()
        (found,) = await diagnosed(home, api=api)
    assert found.state == "wrong"
    assert "cannot be reached" in found.detail


async def test_a_host_that_does_not_answer_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_DEADLINE_S", 0.2)
    async with serving(misbehave("stall", at="before_headers")) as api:
        (found,) = await diagnosed(home, api=api)
    assert (found.state, found.detail) == ("wrong", "no answer within 0.2 s")


async def test_the_fallback_is_asked_as_well(home: Path) -> None:
    async with serving(profile="strict") as api:
        found = await diagnosed(home, 'fallback = "no-such-model"\n', api=api)
    assert [(one.model, one.state) for one in found] == [("claude-haiku-4-5", "ok"), ("no-such-model", "wrong")]


async def test_an_agent_without_a_key_is_rehearsed_or_wrong(home: Path) -> None:
    (found,) = await diagnosed(home, 'rehearsal = "clerk"\n', key="")
    assert (found.state, found.remedy) == ("rehearsed", "set ANTHROPIC_API_KEY to make it real")
    (found,) = await diagnosed(home, key="")
    assert (found.state, found.detail) == (
        "wrong",
        "model key is missing, expected an API key in the variable ANTHROPIC_API_KEY",
    )


async def test_a_sub_agent_with_a_model_of_its_own_is_asked_as_well(home: Path) -> None:
    told = 'name = "{name}"\ndescription = "d"\nsystem = "s"\n{more}'
    (home / "config" / "subagents").mkdir()
    for name in ("follows", "scout"):
        own = '[model]\nkind = "scripted"\nrehearsal = "clerk"\n' if name == "scout" else ""
        (home / "config" / "subagents" / f"{name}.toml").write_text(told.format(name=name, more=own))
    async with serving(profile="strict", api_key=KEY) as api:
        found = await diagnosed(home, api=api)
    assert [(each.agent, each.state) for each in found] == [("clerk", "ok"), ("scout", "rehearsed")]


async def test_a_scripted_agent_is_rehearsed_whatever_the_key(home: Path) -> None:
    agent = 'name = "clerk"\nsystem = "s"\n[model]\nkind = "scripted"\nrehearsal = "clerk"\n'
    (found,) = await diagnosed(home, agent=agent)
    assert (found.state, found.remedy) == ("rehearsed", "")


@pytest.mark.parametrize(
    "options",
    ['base_url = "ftp://x"\n', 'proxy = "x"\n', "window_tokens = true\n", 'key_file = "/none"\n', "odd = 1\n"],
)
async def test_options_that_cannot_be_used_are_told(home: Path, options: str) -> None:
    (found,) = await diagnosed(home, options)
    assert found.state == "wrong"
    assert found.detail.startswith("model")
    assert KEY not in found.detail


def test_who_asks_the_doctor_learns_that_no_server_was_asked(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    (home / "config" / "agents" / "clerk.toml").write_text(AGENT + 'rehearsal = "clerk"\n')

    assert main(["doctor", "--home", str(home)]) == 0

    told = capsys.readouterr()
    assert "rehearsed" in told.out
    assert "no running server was asked" in told.err
