"""Where a key comes from, and that it is never told."""

from pathlib import Path
from typing import Any

import pytest

from torpor.errors import ConfigError
from torpor.model.anthropic_options import AnthropicOptions
from torpor.model.keys import read_key


def key(environ: dict[str, str], **options: Any) -> str:
    return read_key(AnthropicOptions(kind="anthropic", model="m", **options), environ=environ, where="here")


def test_a_key_comes_from_the_variable_that_is_named() -> None:
    assert key({"ANTHROPIC_API_KEY": " sk-1\n"}) == "sk-1"
    assert key({"ANTHROPIC_API_KEY": "sk-1", "OTHER": "sk-2"}, key_env="OTHER") == "sk-2"


@pytest.mark.parametrize("environ", [{}, {"ANTHROPIC_API_KEY": ""}, {"ANTHROPIC_API_KEY": "  "}])
def test_a_variable_that_is_not_set_is_no_key_and_no_error(environ: dict[str, str]) -> None:
    assert key(environ) == ""


def test_a_file_wins_over_the_variable(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-3\n")
    assert key({"ANTHROPIC_API_KEY": "sk-1"}, key_file=str(tmp_path / "key")) == "sk-3"


@pytest.mark.parametrize("text", ["sk 1", "sk-\N{BULLET}", "sk\x001"])
def test_what_cannot_be_a_key_is_an_error_that_does_not_tell_it(text: str) -> None:
    with pytest.raises(ConfigError, match="in the variable ANTHROPIC_API_KEY") as caught:
        key({"ANTHROPIC_API_KEY": text})
    assert text not in str(caught.value)


def test_a_file_that_is_not_there_or_empty_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a readable file"):
        key({}, key_file=str(tmp_path / "none"))
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigError, match="expected an API key in the file"):
        key({}, key_file=str(tmp_path / "empty"))
