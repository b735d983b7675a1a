"""Every command that the pages show works as printed, and says what is printed below it."""

import json
import re
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from bench.transcript import README, ROOT, served, shown_in
from tests.support.command_line import Command

PAGES = sorted((ROOT / "docs").glob("*.md"))
_VARYING = re.compile(r"\b[0-9a-f]{12,}\b|[0-9][0-9.,:-]*(?: (?:us|ms|s|min|h)\b)?")


def shape(output: str) -> list[str]:
    """``output`` without what differs from run to run: numbers, times, ids, and how wide they make a column."""
    return [" ".join(_VARYING.sub("#", line).split()) for line in output.splitlines()]


@pytest.fixture
def office(tmp_path: Path) -> Command:
    """The command where nothing is yet."""
    return Command(tmp_path)


def test_readme_shows_what_its_commands_say() -> None:
    shown = shown_in(README.read_text())

    with served() as torpor:
        said = [(command, torpor.shell(command)) for command, _ in shown]

    assert len(shown) > 5
    assert [(command, shape(output)) for command, output in said] == [
        (command, shape(output)) for command, output in shown
    ], "if the difference is intended, run `make transcript`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_a_page_work_in_their_order(page: Path, office: Command) -> None:
    with ExitStack() as servers:
        for command, output in shown_in(page.read_text()):
            if command.startswith("torpor serve"):
                servers.enter_context(office.serving(*command.split()[2:]))
            else:
                said = office.shell(command)
                assert not output or shape(said) == shape(output), command


def test_operators_page_shows_the_commands_that_operators_need() -> None:
    shown = [command for command, _ in shown_in((ROOT / "docs" / "operators.md").read_text())]
    needed = {"init", "config check", "serve", "token", "send", "ps", "inspect", "hibernate", "thaw"}

    assert {verb for verb in needed if any(command.startswith(f"torpor {verb}") for command in shown)} == needed


def test_query_of_the_design_reads_a_journal_from_the_file(office: Command) -> None:
    (query,) = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "design.md").read_text(), re.DOTALL)
    office.run("init", ".")
    with office.serving() as server:
        office.run("send", "Are you open on Monday?", "--conversation", "first")
        journal = office.facts("inspect", "first")
        with closing(sqlite3.connect(f"{server.ready['data']}/torpor.db")) as db:
            records = [json.loads(value) for (value,) in db.execute(query)]

    assert [(record["seq"], record["kind"]) for record in records] == [(row["seq"], row["kind"]) for row in journal]


def test_every_test_that_the_readme_names_exists() -> None:
    text = README.read_text()
    (file,) = re.findall(r"`(tests/\S+\.py)`", text)

    named = set(re.findall(r"`(test_\w+)`", text))

    assert len(named) == 4
    assert named - set(re.findall(r"def (test_\w+)\(", (ROOT / file).read_text())) == set()


def test_every_target_of_make_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    named = {target for page in (README, *PAGES) for target in re.findall(r"`make (\w+)`", page.read_text())}

    assert named - targets == set()
    assert {"serve", "test", "transcript"} <= named


def test_every_page_that_a_page_links_to_exists() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in (README, *PAGES)
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
        if not (page.parent / target).is_file()
    ]

    assert broken == []


def test_readme_leads_to_every_page() -> None:
    led = set(re.findall(r"\]\((docs/[^)#]+)", README.read_text().partition("## Where to read on")[2]))

    assert led == {f"docs/{page.name}" for page in PAGES}


def test_headings_that_pages_link_to_exist() -> None:
    def anchors(page: Path) -> set[str]:
        headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
        return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    broken = [
        f"{page.name}: {target}#{anchor}"
        for page in (README, *PAGES)
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text())
        if anchor not in anchors(page.parent / target if target else page)
    ]

    assert broken == []
