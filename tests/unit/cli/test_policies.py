"""``torpor policies`` tells what there is and what a message finds."""

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
POLICY = """---
id: visits
version: 3
title: Visits
---
# Late
Whoever is late waits.
# Missed
A missed visit costs 40 euros.
"""


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """A verb sets the process's logs up, which other tests in it have use for."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with one policy."""
    for folder, name, text in (("agents", "clerk.toml", AGENT), ("policies", "visits.md", POLICY)):
        (tmp_path / "config" / folder).mkdir(parents=True)
        (tmp_path / "config" / folder / name).write_text(text)
    return tmp_path


def test_policies_are_listed_with_their_cost(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies", "list", "--json", "--home", str(home)]) == 0

    assert msgspec.json.decode(capsys.readouterr().out) == {
        "id": "visits",
        "version": "3",
        "title": "Visits",
        "excerpts": 2,
        "tokens": 20,
    }


def test_search_tells_what_is_found_and_what_would_be_given(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["policies", "search", "I missed it, being late", "--json", "--home", str(home)]

    assert main([*arguments, "--budget", "12"]) == 0
    scarce = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert main(arguments) == 0
    ample = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]

    assert {fact["heading"]: fact["given"] for fact in scarce} == {"Late": True, "Missed": False}
    assert {fact["heading"]: fact["given"] for fact in ample} == {"Late": True, "Missed": True}
    assert all(fact["score"] > 0 and fact["tokens"] > 0 and fact["version"] == "3" for fact in ample)


def test_search_is_a_table_for_people(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies", "search", "late", "--home", str(home)]) == 0

    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["SCORE", "TOKENS", "GIVEN", "POLICY", "HEADING"]
    assert row.split()[2:] == ["yes", "visits", "3", "Late"]


def test_search_that_finds_nothing_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies", "search", "weather", "--home", str(home)]) == 0
    assert capsys.readouterr().out == "nothing is found\n"


def test_home_without_policies_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config" / "policies" / "visits.md").unlink()

    assert main(["policies", "list", "--home", str(home)]) == 0
    assert capsys.readouterr().out == "no policy in config/policies\n"


def test_who_lists_policies_learns_that_no_server_was_asked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies", "list", "--home", str(home)]) == 0
    assert "no running server was asked, which keeps the last good version" in capsys.readouterr().err
