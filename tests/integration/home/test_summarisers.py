"""Who folds the older turns of an agent, as its file says."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.doubles import CountingIds, ManualClock
from torpor.errors import ConfigError
from torpor.home import load_home
from torpor.settings import read_settings
from torpor.store.blobs import MemoryBlobs
from torpor.turn.fold_history import DEFAULT_PROMPT, Summariser

KEY = {"ANTHROPIC_API_KEY": "k"}
OWN = 'kind = "anthropic"\nmodel = "claude-sonnet-4-6"\nrehearsal = "any"\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config" / "agents").mkdir(parents=True)
    (tmp_path / "config" / "rehearsals").mkdir()
    (tmp_path / "config" / "rehearsals" / "any.toml").write_text('[[rule]]\nmatch = ""\n\n[[rule.step]]\nsay = "Hi."\n')
    return tmp_path


def summariser(
    home: Path, summary: str = "", *, model: str = OWN, environ: dict[str, str] | None = None
) -> Summariser | None:
    text = f'name = "clerk"\nsystem = "You are a clerk."\n\n[model]\n{model}\n{summary}'
    (home / "config" / "agents" / "clerk.toml").write_text(text)
    environ = KEY if environ is None else environ
    loaded = load_home(
        read_settings(home, environ),
        blobs=MemoryBlobs(),
        clock=ManualClock(),
        ids=CountingIds(),
        environ=environ,
        wrap_model=lambda model: model,
        wrap_toolbox=lambda toolbox: toolbox,
    )
    agent = loaded.agents.get("clerk")
    assert agent is not None
    assert agent.window(4.0).has_summariser == (agent.summariser is not None)
    return agent.summariser


def asked(of: Summariser | None) -> dict[str, Any]:
    assert of is not None
    fields: dict[str, Any] = msgspec.json.decode(of.preamble.body)
    return fields


def test_the_agents_own_model_is_asked_where_its_file_names_no_other(home: Path) -> None:
    made = summariser(home, model=OWN + 'thinking = {type = "adaptive"}\neffort = "high"\n')
    assert made is not None
    assert (made.name, made.window_tokens) == ("claude-sonnet-4-6", 1_000_000)
    assert asked(made) == {
        "model": "claude-sonnet-4-6",
        "max_tokens": 2_048,
        "system": [{"type": "text", "text": DEFAULT_PROMPT}],
    }


def test_an_agent_can_have_its_older_turns_folded_by_another_model_with_a_prompt_of_its_own(home: Path) -> None:
    other = 'model = { kind = "anthropic", model = "claude-haiku-4-5", window_tokens = 50_000 }'
    made = summariser(home, f'[summary]\nprompt = "Be short."\nmax_tokens = 512\n{other}\n')
    assert made is not None
    assert (made.name, made.window_tokens) == ("claude-haiku-4-5", 50_000)
    assert asked(made) == {
        "model": "claude-haiku-4-5",
        "max_tokens": 512,
        "system": [{"type": "text", "text": "Be short."}],
    }


def test_an_agent_can_do_without(home: Path) -> None:
    assert summariser(home, '[summary]\nmodel = { kind = "none" }\n') is None


@pytest.mark.parametrize(
    ("model", "environ"), [('kind = "scripted"\nrehearsal = "any"\n', KEY), (OWN, {})], ids=["scripted", "rehearsed"]
)
def test_an_agent_behind_which_there_is_no_language_model_is_folded_without_one(
    home: Path, model: str, environ: dict[str, str]
) -> None:
    assert summariser(home, model=model, environ=environ) is None


@pytest.mark.parametrize(
    "summary",
    ['[summary]\nmodel = { kind = "abacus" }\n', "[summary]\nmax_tokens = 0\n", "[summary]\nprompts = 1\n"],
)
def test_what_cannot_be_used_is_an_error_of_the_agents_file(home: Path, summary: str) -> None:
    with pytest.raises(ConfigError, match=r"clerk\.toml"):
        summariser(home, summary)


def test_the_default_prompt_shows_the_answer_that_it_asks_for() -> None:
    example = DEFAULT_PROMPT[DEFAULT_PROMPT.index("{") : DEFAULT_PROMPT.rindex("}") + 1]
    assert set(json.loads(example)) == {"facts", "decisions", "entities", "open", "closed"}
