"""Authors check, list and begin skills at the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.skillbook.shelves import put, text
from torpor.cli.main import main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command is called; a home without anything."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def facts(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_good_skills_are_told_with_their_cost(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(home / "skills", "a")
    put(home / "skills", "b", text("b", body="x" * 400))

    assert main(["skills", "check"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "SKILL  INDEX  LOADED  STATE",
        "a      10     2       ok",
        "b      10     100     ok",
        "2 skills, 0 errors, 0 warnings",
    ]


def test_broken_rule_is_told_with_its_place_and_fails(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(home / "skills", "a", text("B", extra="version: 1\n"))
    put(home / "skills", "c", "---\nname: c\n---\n")

    assert main(["skills", "check"]) == 1

    out = capsys.readouterr().out
    assert "b      10     2       WRONG\n" in out
    assert "error: skills/a/SKILL.md:2: has the name 'B', expected a-z" in out
    assert "warning: skills/a/SKILL.md:4: has the key `version`" in out
    assert "error: skills/c/SKILL.md: has no `description`" in out
    assert out.endswith("1 skill, 1 that cannot be loaded, 3 errors, 1 warning\n")


def test_misspelt_restriction_fails_with_the_key_that_is_meant(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(home / "skills", "a", text("a", extra="allowed_tools: look\n"))

    assert main(["skills", "check"]) == 1

    told = "error: skills/a/SKILL.md:4: has the key `allowed_tools`, which says nothing, expected `allowed-tools`"
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("path", ["mine/a", "mine/a/SKILL.md", "mine/a/", "mine"])
def test_skill_is_checked_wherever_it_is(home: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    put(home / "mine", "a")
    put(home / "mine", "a/references", "x", file_name="b.md")

    assert main(["skills", "check", path, "--json"]) == 0

    (fact,) = facts(capsys)
    assert (fact["place"], fact["key"], fact["diagnostics"]) == ("mine/a/SKILL.md", "a", [])
    assert fact["loaded_tokens"] > 20


def test_other_skills_beside_the_one_that_is_named_are_left_alone(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(home / "mine", "a")
    put(home / "mine", "b", "broken")
    assert main(["skills", "check", "mine/a"]) == 0
    assert "1 skill, 0 errors" in capsys.readouterr().out


def test_names_that_collide_are_told_with_both_places(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(home / "skills", "a-b")
    put(home / "skills", "x/a-b")
    assert main(["skills", "check"]) == 0
    message = "warning: skills/x/a-b/SKILL.md: answers to 'a-b' like skills/a-b/SKILL.md, which has it"
    assert message in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("empty", "torpor: no skill in empty, expected folders with a SKILL.md\n"),
        ("notes.md", "torpor: notes.md is no skill, expected a SKILL.md or a folder with one\n"),
    ],
)
def test_path_without_a_skill_is_told(home: Path, path: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "empty").mkdir()
    (home / "notes.md").write_text("x")
    assert main(["skills", "check", path]) == 1
    assert capsys.readouterr().err == message


def test_link_and_other_things_in_the_way_fail_the_check(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(home / "skills", "a")
    (home / "skills" / "out").symlink_to("/etc")
    (home / "skills" / "b").mkdir()
    (home / "skills" / "b" / "SKILL.md").mkdir()
    assert main(["skills", "check"]) == 1
    out = capsys.readouterr().out
    assert "error: skills/b/SKILL.md: is not an ordinary file" in out
    assert "error: skills/out: is a symbolic link" in out


def test_folder_that_cannot_be_looked_into_fails_the_check(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "skills").write_text("")
    assert main(["skills", "check"]) == 1
    assert "error: skills: cannot be looked into" in capsys.readouterr().out


def test_home_without_skills_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skills", "check"]) == 0
    assert main(["skills", "list"]) == 0
    assert capsys.readouterr().out == (
        "0 skills, 0 errors, 0 warnings\n0 skills in the index, 0 left to a search: 0 of 2,000 tokens\n"
    )


def test_list_tells_what_a_start_would_load(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(home / "skills", "a", text("Deja Vu"))
    put(home / "skills", "b", text("deja-vu"))
    put(home / "skills", "c", text("c", extra="disable-model-invocation: true\n"))
    put(home / "skills", "d", "broken")

    assert main(["skills", "list"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "SKILL    SCOPE  INDEX  LOADED  STATE",
        "c        home   0      2       for people only",
        "deja-vu  home   11     2       ok",
        "home:b   home   0      2       another has 'deja-vu'",
        "1 skill in the index, 0 left to a search: 21 of 2,000 tokens",
        "beside it the tools that load them and read their files: about 164 tokens",
        "warning: skills/a/SKILL.md:2: has the name 'Deja Vu', expected a-z, 0-9 and single - inside; "
        "a model reads 'deja-vu'",
        "warning: skills/a/SKILL.md:2: has the name 'Deja Vu' in a folder 'a', expected them to be equal",
        "warning: skills/b/SKILL.md:2: has the name 'deja-vu' in a folder 'b', expected them to be equal",
        "error: skills/d/SKILL.md:1: does not begin with a line `---`, expected front matter",
        "warning: skills/b: answers to 'deja-vu' like skills/a, which has it; this one is 'home:b'",
    ]


def test_list_as_facts_has_skills_and_problems(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(home / "skills", "a")
    put(home / "skills", "d", "broken")
    assert main(["skills", "list", "--json"]) == 0
    skill, problem = facts(capsys)
    assert skill == {"skill": "a", "scope": "home", "index_tokens": 10, "loaded_tokens": 2, "state": "ok"}
    assert (problem["place"], problem["code"], problem["severity"]) == ("skills/d/SKILL.md", "no_front_matter", "error")


def test_bounds_of_the_home_are_those_of_its_settings(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(home / "config/agents", ".", 'name = "x"\nsystem = "x"\n[model]\nkind = "scripted"\n', file_name="x.toml")
    put(home / "config", ".", "[skills]\nindex_budget_tokens = 100\n", file_name="torpor.toml")
    for number in range(30):
        put(home / "skills", f"skill-{number}")
    assert main(["skills", "list"]) == 0
    *_, index, tools = capsys.readouterr().out.splitlines()
    assert "left to a search: 9" in index
    assert tools.endswith("about 164 tokens, and 99 to search")


def test_new_skill_passes_its_check(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skills", "new", "taking-payments", "--description", 'Takes: payments "at" the desk \\ 🐙']) == 0
    assert (home / "skills" / "taking-payments" / "SKILL.md").is_file()
    assert "fill it in, then: " in capsys.readouterr().out
    assert main(["skills", "check"]) == 0
    told = capsys.readouterr().out
    assert "1 skill, 0 errors, 1 warning" in told
    assert "warning: skills/taking-payments/SKILL.md: has text of a template" in told
    assert main(["skills", "new", "other", "--home", "elsewhere", "--json"]) == 0
    assert facts(capsys) == [{"file": "elsewhere/skills/other/SKILL.md"}]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("Taking Payments", "taking-payments"), ("../x", "x"), ("a--b", "a-b"), ("x" * 65, "x" * 57)],
)
def test_bad_name_is_refused_with_a_better_one(
    home: Path, name: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["skills", "new", name]) == 1
    assert f"cannot name a skill, expected a-z, 0-9 and single - inside, at most 64 characters: perhaps '{remedy}" in (
        capsys.readouterr().err
    )
    assert not (home / "skills").exists()


def test_skill_that_is_there_is_not_overwritten(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(home / "skills", "a")
    assert main(["skills", "new", "a"]) == 1
    assert capsys.readouterr().err == "torpor: skills/a is there already, edit it or choose another name\n"


def test_new_skill_needs_a_description_that_says_something(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skills", "new", "a", "--description", " "]) == 1
    assert capsys.readouterr().err.startswith("torpor: the new skill has no `description`")


def test_who_lists_skills_learns_that_no_server_was_asked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skills", "list"]) == 0
    assert "no running server was asked, which keeps the last good version" in capsys.readouterr().err


def test_new_skill_that_nobody_has_described_is_not_loaded_and_fails_its_check(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["skills", "new", "a"]) == 0
    assert main(["skills", "check"]) == 1
    assert "error: skills/a/SKILL.md:3: has the `description` of a template" in capsys.readouterr().out
    assert main(["skills", "list"]) == 0
    assert "0 skills in the index" in capsys.readouterr().out
