"""The example of docs/skill-authors.md is a skill without a fault, and the page's tables say what the code says."""

import re
from pathlib import Path

import pytest

from tests.unit.docs.test_tables import table
from torpor.skillbook.catalogue import Catalogue
from torpor.skillbook.check import check
from torpor.skillbook.codes import CODES, QUIET_AT_LOADING
from torpor.skillbook.index import FIRST_SENTENCE_CHARS_MAX, SHORT_CHARS_MAX, index_text
from torpor.skillbook.load import Shelf, SkillRoot, load_shelf
from torpor.skillbook.options import SkillOptions
from torpor.skillbook.parse import BODY_LINES_MAX, BODY_TOKENS_MAX, FLAG_KEYS, SPEC_KEYS
from torpor.toolhost.load import load_tools

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "skill-authors.md").read_text()
SKILL, BY_BUS = re.findall(r"```markdown\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """The example as a home has it."""
    folder = tmp_path / "skills" / "giving-directions"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    (folder / "references" / "by-bus.md").write_text(BY_BUS)
    return tmp_path / "skills"


@pytest.fixture
def catalogue(skills: Path) -> Catalogue:
    options = SkillOptions()
    return Catalogue(
        load_shelf([SkillRoot(path=skills, scope="home")], before=Shelf(), options=options), options=options
    )


def test_example_passes_its_check(skills: Path) -> None:
    (checked,) = check(skills, options=SkillOptions())
    assert checked.diagnostics == ()


def test_example_is_a_line_of_the_index_until_it_is_loaded(catalogue: Catalogue) -> None:
    index = index_text(catalogue.skills, budget_tokens=SkillOptions().index_budget_tokens)
    (skill,) = catalogue.skills

    assert index.listed == ("giving-directions",)
    assert index.text.splitlines()[1].startswith('<skill name="giving-directions">Tell people how to reach the clinic')
    assert "green" not in index.text
    assert "The door is green." in catalogue.body(skill).text
    assert "- references/by-bus.md (" in catalogue.body(skill).text


async def test_example_has_its_bus_lines_in_a_file_of_their_own(catalogue: Catalogue) -> None:
    (skill,) = catalogue.skills
    assert (await catalogue.read_file(skill, "references/by-bus.md")).text == BY_BUS


def test_example_names_tools_of_the_home(catalogue: Catalogue) -> None:
    assert set(catalogue.skills[0].allowed_tools) <= {tool.name for tool in load_tools(ROOT / "tools").tools}


def test_every_code_is_told_with_its_severities() -> None:
    told = table("skill-authors.md", "What is said of a file")

    assert told == {
        name: ["" if name in QUIET_AT_LOADING else code.loading, code.checking, code.meaning]
        for name, code in CODES.items()
    }


def test_every_key_that_counts_is_told() -> None:
    told = {key for row in table("skill-authors.md", "Keys") for key in re.findall(r"[a-z-]+", row)}
    assert told == {*SPEC_KEYS, *FLAG_KEYS}


def test_numbers_of_the_page_are_those_of_the_code() -> None:
    numbers = (FIRST_SENTENCE_CHARS_MAX, SHORT_CHARS_MAX, BODY_LINES_MAX, BODY_TOKENS_MAX)
    assert [number for number in numbers if f"{number:,}" not in PAGE] == []
