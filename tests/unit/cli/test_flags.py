"""``torpor flags`` tells what is declared and what is decided."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import structlog

from torpor.cli.main import main

AGENT = """
name = "clerk"
system = "You help."
[model]
kind = "scripted"
"""
FLAGS = """
[flags."tool.pay"]
default = true
[[flags."tool.pay".rules]]
tenant = ["north", "south"]
agent = "clerk"
percentage = 100
value = false

[flags.memory]
default = false
[[flags.memory.rules]]
value = true
"""


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """A verb sets the process's logs up, which other tests in it have use for."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two flags."""
    (tmp_path / "config" / "agents").mkdir(parents=True)
    (tmp_path / "config" / "agents" / "clerk.toml").write_text(AGENT)
    (tmp_path / "config" / "flags.toml").write_text(FLAGS)
    return tmp_path


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split(maxsplit=5) for line in capsys.readouterr().out.splitlines()]


def test_flags_are_listed_with_their_rules_in_words(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flags", "--home", str(home)]) == 0

    assert [" ".join(line) for line in lines(capsys)] == [
        "FLAG DEFAULT RULES",
        "memory off on for everybody",
        "tool.pay on off for tenant north or south, agent clerk, 100% of owners",
    ]


def test_decisions_for_an_owner_are_told_with_their_reason(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flags", "--owner", "ada", "--tenant", "north", "--home", str(home)]) == 0

    assert [line[:5] for line in lines(capsys)] == [
        ["FLAG", "DEFAULT", "DECIDED", "VARIANT", "REASON"],
        ["memory", "off", "on", "rule-1", "TARGETING_MATCH"],
        ["tool.pay", "on", "off", "rule-1", "SPLIT"],
    ]


def test_decisions_are_facts(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flags", "--owner", "ada", "--agent", "smith", "--json", "--home", str(home)]) == 0

    facts = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert [(fact["key"], fact["value"], fact["reason"]) for fact in facts] == [
        ("memory", True, "TARGETING_MATCH"),
        ("tool.pay", True, "DEFAULT"),
    ]


def test_home_without_flags_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config" / "flags.toml").unlink()

    assert main(["flags", "--home", str(home)]) == 0
    assert capsys.readouterr().out == "config/flags.toml declares nothing, everything is on\n"


def test_broken_file_is_one_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config" / "flags.toml").write_text("[flags.memory]\n")

    assert main(["flags", "--home", str(home)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        'torpor: config/flags.toml:1: flags."memory" is unusable: it lacks the field default;'
        " `torpor config check` tells all that is wrong"
    )


def test_who_is_told_of_flags_learns_that_no_server_was_asked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flags", "--home", str(home)]) == 0
    assert "no running server was asked" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--tenant", "--agent"])
def test_an_option_that_decides_nothing_is_no_option(
    home: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["flags", option, "north", "--home", str(home)]) == 2
    assert f"{option} decides nothing without --owner" in capsys.readouterr().err
