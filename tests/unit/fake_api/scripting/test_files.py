"""Scripts in files."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.unit.fake_api.parts import request
from torpor_fake_api.scripting import faults, files
from torpor_fake_api.scripting.catalogue import misbehave
from torpor_fake_api.scripting.replies import Reply, Thinking, ToolUse, says
from torpor_fake_api.scripting.script import Asked, Script

TOML = """
otherwise = "I do not know."

[[replies]]
content = [{ type = "thinking", thinking = "Hm." }, { type = "tool_use", name = "look_up", input = { what = "it" } }]

[[replies]]
misbehave = "cut"
at = "after_deltas:2"
content = [{ type = "text", text = "One two three." }]

[[rules]]
match = "weather"
replies = ["It rains.", { fault = { kind = "http_error", status = 529 } }]

[[rules]]
number = 7
replies = ["The seventh.", "The eighth."]

[models.toy-4k]
window_tokens = 500
"""


def script_of(text: str) -> Script:
    script = Script()
    files.parsed(tomllib.loads(text)).add_to(script)
    return script


def reply(script: Script, text: str, *, number: int = 1) -> Reply:
    return script.reply(Asked(number, request({"role": "user", "content": text})))


def test_a_file_lays_out_replies_rules_and_a_fallback() -> None:
    script = script_of(TOML)

    assert reply(script, "hello") == says(Thinking("Hm."), ToolUse("look_up", {"what": "it"}))
    assert reply(script, "the weather?") == says("It rains.")
    assert reply(script, "the weather?") == Reply(fault=faults.HttpError(status=529))
    assert reply(script, "hello", number=8) == says("The eighth.")
    assert reply(script, "hello", number=7) == says("The seventh.")
    assert reply(script, "hello") == misbehave("cut", at="after_deltas:2", over=says("One two three."))
    assert [reply(script, "hello") for _ in range(2)] == [says("I do not know.")] * 2


def test_a_misbehaviour_without_content_is_laid_over_some_reply() -> None:
    assert reply(script_of('replies = [{ misbehave = "overloaded" }]'), "hello") == misbehave("overloaded")


def test_a_file_is_toml_or_json(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TOML)
    (tmp_path / "a.json").write_text('{"otherwise": "I do not know.", "models": {"toy-4k": {"window_tokens": 500}}}')

    assert files.read(tmp_path / "a.toml").models == files.read(tmp_path / "a.json").models


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('replies = [{ misbehave = "sing" }]', "misbehave is 'sing', expected one of api_error_event"),
        ('replies = [{ misbehave = "cut", at = "somewhere" }]', "'somewhere' is no position"),
        ('replies = [{ fault = { kind = "cut", at = "somewhere" } }]', "'somewhere' is no position"),
        ('replies = [{ fault = { kind = "sing" } }]', "Invalid value 'sing'"),
        ('replies = [{ fault = { kind = "http_error", status = 429, retry_after_as = "days" } }]', "'days', expected"),
        ('replies = [{ words = "x" }]', "unknown field `words`"),
        ("rules = [{ replies = [] }]", "a rule has either match or number"),
        ('rules = [{ match = "a", number = 1, replies = [] }]', "a rule has either match or number"),
        ('tone = "polite"', "unknown field `tone`"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        script_of(text)
