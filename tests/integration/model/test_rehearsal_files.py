from pathlib import Path

import pytest

from torpor.errors import ConfigError
from torpor.model.rehearsal import read_rehearsal, scripted_from

GOOD = """
pace_cps = 50
[[rule]]
match = 'hello'
[[rule.step]]
say = "Hello."
[[rule]]
[[rule.step]]
say = "Pardon?"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config" / "rehearsals").mkdir(parents=True)
    return tmp_path


def written(home: Path, text: str | bytes) -> Path:
    path = home / "config" / "rehearsals" / "r.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_rehearsal_is_read_from_its_file(home: Path) -> None:
    assert repr(read_rehearsal(written(home, GOOD))) == "<Rehearsal rules=2>"


def test_an_agents_table_names_the_file(home: Path) -> None:
    written(home, GOOD)
    table = {"kind": "scripted", "rehearsal": "r", "model": "rehearsal-1"}
    model = scripted_from(table, home=home, where="config/agents/a.toml")
    assert repr(model) == "<ScriptedModel rehearsal-1>"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rule = 1", "rule is 1, expected a list, as in [[rule]]"),
        ("", "rule is missing, expected a value, since it has no default"),
        ("rule = []", "rule is [], expected a list of length >= 1"),
        ("[[rule]]\nmatch = 7\nstep = [{say = 'x'}]", "rule[0].match is 7, expected str"),
        ("[[rule]]\n[[rule.step]]\nsays = 'x'", "rule[0].step[0].says is unknown, expected one of call, fail, say"),
        (
            "[[rule]]\n[[rule.step]]\ncall = [{}]",
            "rule[0].step[0].call[0].tool is missing, expected a value, since it has no default",
        ),
        ("pace_cps = -1\n" + GOOD.replace("pace_cps = 50", ""), "pace_cps is -1, expected float >= 0.0"),
        ("rule = [", "content is "),
        (b"\xff", "content is "),
    ],
)
def test_a_file_that_does_not_fit_is_an_error_with_its_key(home: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_rehearsal(written(home, text))
    assert str(caught.value).startswith(f"config/rehearsals/r.toml: {said}")


def test_a_file_that_is_not_there_is_an_error(home: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"r\.toml: file is missing, expected the rehearsal that config/agents/a\.toml names"
    ):
        scripted_from({"kind": "scripted", "rehearsal": "r"}, home=home, where="config/agents/a.toml")
