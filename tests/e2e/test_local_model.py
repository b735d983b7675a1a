"""`torpor serve --model local` as a person without a key uses it."""

from pathlib import Path

import pytest

from tests.integration.model.local_weights import small_model_file
from tests.support.command_line import Command

AGENT = """
name = "clerk"
system = "You answer in few words."
max_tokens = 12
[model]
kind = "anthropic"
model = "claude-haiku-4-5"
"""


@pytest.fixture
def office(tmp_path: Path) -> Command:
    """A home whose agent names a model for which there is no key."""
    (tmp_path / "config" / "agents").mkdir(parents=True)
    (tmp_path / "config" / "agents" / "clerk.toml").write_text(AGENT)
    return Command(tmp_path, TORPOR_LOCAL_MODEL=str(small_model_file()), ANTHROPIC_API_KEY="")


def test_a_home_without_a_key_is_served_with_the_model_of_a_file(office: Command) -> None:
    with office.serving("--model", "local") as server:
        assert office.output("send", "Good morning", "--conversation", "first").strip()
        office.run("send", "And again", "--conversation", "first")
        assert server.stop() == 0
    kinds = [fact["kind"] for fact in office.facts("inspect", "first", "--data", ".torpor")]
    assert kinds.count("model_replied") == kinds.count("turn_finished") == 2


def test_doctor_tries_the_file(office: Command) -> None:
    (found,) = office.facts("doctor", "--model", "local")
    assert (found["state"], found["window_tokens"]) == ("ok", 8192)
