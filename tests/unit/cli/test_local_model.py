"""``--model local`` puts one model in place of those that agents name."""

from pathlib import Path

import click
import msgspec
import pytest

from torpor.cli.local_model import with_local_model
from torpor.errors import ConfigError
from torpor.settings import Settings
from torpor.subagents.definition import SubagentDefinition
from torpor.turn.definition import AgentDefinition

OWN = {"kind": "local", "path": "own.gguf"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Looks like a model; the library is there."""
    monkeypatch.setattr("torpor.model.local.LIBRARY", "json")
    file = tmp_path / "small.gguf"
    file.write_bytes(b"GGUF")
    return file


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    tables = {"real": {"kind": "anthropic", "model": "m"}, "played": {"kind": "scripted", "rehearsal": "r"}, "own": OWN}
    agents = tuple(AgentDefinition(name=name, system="s", model=table) for name, table in tables.items())
    return Settings(home=tmp_path, agents=agents)


def test_without_it_agents_stay_as_they_are(settings: Settings) -> None:
    environ = {"TORPOR_LOCAL_MODEL": "none.gguf"}
    assert with_local_model(settings, instead=None, file=None, environ=environ) is settings


def test_every_agent_but_those_with_a_local_model_of_their_own_asks_the_file(settings: Settings, file: Path) -> None:
    changed = with_local_model(settings, instead="local", file=file, environ={})
    given = {"kind": "local", "path": str(file)}
    assert [(agent.name, agent.model) for agent in changed.agents] == [("real", given), ("played", given), ("own", OWN)]


def test_sub_agents_with_a_model_of_their_own_ask_it_too(settings: Settings, file: Path) -> None:
    tables = {"follows": {}, "local": OWN, "real": {"kind": "anthropic", "model": "m"}}
    told = tuple(
        SubagentDefinition(name=name, description="d", system="s", model=table) for name, table in tables.items()
    )
    settings = msgspec.structs.replace(settings, subagent_definitions=told)
    changed = with_local_model(settings, instead="local", file=file, environ={})
    given = {"kind": "local", "path": str(file)}
    assert {each.name: each.model for each in changed.subagent_definitions} == {
        "follows": {},
        "local": OWN,
        "real": given,
    }


def test_the_file_may_be_named_by_a_variable_and_the_option_wins(settings: Settings, file: Path) -> None:
    changed = with_local_model(settings, instead="local", file=None, environ={"TORPOR_LOCAL_MODEL": str(file)})
    assert changed.agents[0].model["path"] == str(file)
    changed = with_local_model(settings, instead="local", file=file, environ={"TORPOR_LOCAL_MODEL": "none.gguf"})
    assert changed.agents[0].model["path"] == str(file)


def test_a_file_for_nothing_or_none_at_all_is_told(settings: Settings, file: Path) -> None:
    with pytest.raises(click.UsageError, match="nothing without --model local"):
        with_local_model(settings, instead=None, file=file, environ={})
    with pytest.raises(click.UsageError, match="name it with --model-file or in TORPOR_LOCAL_MODEL"):
        with_local_model(settings, instead="local", file=None, environ={})


def test_what_cannot_be_used_is_told_before_anything_starts(
    settings: Settings, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="command line: TORPOR_LOCAL_MODEL is '/none', expected a GGUF file"):
        with_local_model(settings, instead="local", file=None, environ={"TORPOR_LOCAL_MODEL": "/none"})
    monkeypatch.setattr("torpor.model.local.LIBRARY", "no_such_library")
    with pytest.raises(ConfigError, match="command line: --model is 'local', expected the extra"):
        with_local_model(settings, instead="local", file=file, environ={})
