"""The skills that a new home begins with are flawless and speak of what is there."""

import re
from pathlib import Path

import pytest

from tests.integration.skillbook.shelves import load
from torpor.skillbook.check import check
from torpor.skillbook.options import SkillOptions
from torpor.skillbook.parse import BODY_TOKENS_MAX, Skill
from torpor.toolhost.load import load_tools

HOME = Path(__file__).parents[3]
CATALOGUE = load(HOME / "skills")
TOOLS = {tool.name for tool in load_tools(HOME / "tools").tools}


def body(skill: Skill) -> str:
    return CATALOGUE.body(skill).text


def test_shipped_skills_pass_their_check() -> None:
    checked = check(HOME / "skills", options=SkillOptions())
    assert len(checked) >= 5
    assert [(skill.place, skill.diagnostics) for skill in checked if skill.diagnostics] == []
    assert all(0 < skill.loaded_tokens < BODY_TOKENS_MAX for skill in checked)


@pytest.mark.parametrize("skill", CATALOGUE.skills, ids=lambda skill: skill.key)
def test_shipped_skill_names_tools_skills_and_files_that_are_there(skill: Skill) -> None:
    text, _, files = body(skill).partition("Files of this skill")
    there = {*TOOLS, *(other.key for other in CATALOGUE.skills), *re.findall(r"^- (\S+) \(", files, re.MULTILINE)}
    named = set(re.findall(r"`([a-z]+(?:[_-][a-z]+)+|references/\S+?)`", text))

    assert named - there == set()
    assert {name for name in there if name.startswith("references/")} <= named
    assert set(skill.allowed_tools) <= TOOLS
    assert {name for name in named if name in TOOLS} <= set(skill.allowed_tools)


@pytest.mark.parametrize("skill", CATALOGUE.skills, ids=lambda skill: skill.key)
def test_shipped_skill_says_when_to_use_it(skill: Skill) -> None:
    assert "Use " in skill.description
