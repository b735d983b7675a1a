"""``torpor skills``: holds skills to their format, lists them as a start would load them, begins new ones."""

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

from torpor.cli.costs import loaded_tokens, skill_tool_costs
from torpor.cli.folders import home_option
from torpor.cli.output import json_option, not_asked, print_json, print_table, program
from torpor.cli.skills_template import skill_text
from torpor.settings import SettingsInvalid, read_settings
from torpor.skillbook.catalogue import Catalogue
from torpor.skillbook.check import Checked, check
from torpor.skillbook.index import index_text, line_tokens
from torpor.skillbook.load import Shelf, SkillRoot, load_shelf
from torpor.skillbook.options import SkillOptions
from torpor.skillbook.parse import PLACEHOLDER, Diagnostic, Skill, validate
from torpor.skillbook.scan import SKILL_FILE, is_skill_file
from torpor.skillbook.slug import slug

SKILLS_FOLDER: Final = "skills"
HOME_SCOPE: Final = "home"


class Target(NamedTuple):
    """What to check: a folder of skills, or one skill folder in it."""

    root: Path
    only: str = ""


@click.group(short_help="Check, list and begin skills.")
def command() -> None:
    """Check, list and begin skills."""


@command.command("check", short_help="Hold skills to the specification.")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[PATH]...")
@home_option
@json_option
def check_skills(paths: tuple[Path, ...], *, home: Path, as_json: bool) -> int:
    """Hold skills to the specification and tell what each costs; exit with 1 if one breaks it.

    PATH is a skill folder, its SKILL.md, or a folder of skill folders; without one, HOME/skills. INDEX is the tokens of
    the skill's line in the system prompt, LOADED those of its text, both estimated.
    """
    options = _options(home)
    targets = [_target(path) for path in paths] or [Target(home / SKILLS_FOLDER)]
    found = [skill for target in targets for skill in check(target.root, options=options, only=target.only)]
    if paths and not found:
        raise click.ClickException(f"no skill in {', '.join(map(str, paths))}, expected folders with a {SKILL_FILE}")
    if as_json:
        for skill in found:
            print_json(skill)
    else:
        _print_checked(found)
    return 1 if any(skill.errors for skill in found) else 0


@command.command("list", short_help="List the skills of a home.")
@home_option
@json_option
def list_skills(home: Path, *, as_json: bool) -> None:
    """List the skills of a home as a start would load them, and what is wrong with some of them.

    INDEX is the tokens of the skill's line in the system prompt, LOADED those of its text, both estimated.
    """
    options = _options(home)
    roots = [SkillRoot(path=home / SKILLS_FOLDER, scope=HOME_SCOPE)]
    catalogue = Catalogue(load_shelf(roots, before=Shelf(), options=options), options=options)
    rows = list(_rows(catalogue))
    if as_json:
        for row in rows:
            print_json(row)
        for problem in catalogue.problems:
            print_json({"place": problem.place, **msgspec.structs.asdict(problem.diagnostic)})
        return
    if rows:
        shown = [(row.skill, row.scope, row.index_tokens, row.loaded_tokens, row.state) for row in rows]
        print_table(("SKILL", "SCOPE", "INDEX", "LOADED", "STATE"), shown)
    index = index_text(catalogue.skills, budget_tokens=options.index_budget_tokens)
    click.echo(
        f"{_count(len(index.listed), 'skill')} in the index, {len(index.left_out):,} left to a search: "
        f"{index.tokens:,} of {options.index_budget_tokens:,} tokens"
    )
    if index.listed or index.left_out:
        loading_tokens, searching_tokens = skill_tool_costs(home)
        search = f", and {searching_tokens:,} to search" if index.left_out else ""
        click.echo(f"beside it the tools that load them and read their files: about {loading_tokens:,} tokens{search}")
    for problem in catalogue.problems:
        click.echo(f"{problem.diagnostic.severity}: {problem}")
    click.echo(not_asked(home / SKILLS_FOLDER, logs="skill.broken"), err=True)


@command.command("new", short_help="Begin a skill.")
@click.argument("name")
@click.option(
    "--description",
    default=PLACEHOLDER,
    metavar="TEXT",
    show_default="to be written",
    help="What it does and when to use it.",
)
@home_option
@json_option
def new_skill(name: str, *, description: str, home: Path, as_json: bool) -> None:
    """Begin a skill NAME in HOME/skills, with a SKILL.md to be filled in; it counts once it is described."""
    text = skill_text(name, description=description)
    findings = validate(text.encode(), directory_name=name)
    broken = [found for found in findings if found.severity == "error" and found.code != "placeholder"]
    if broken:
        raise click.ClickException(_refusal(name, broken))
    folder = home / SKILLS_FOLDER / name
    if folder.exists():
        raise click.ClickException(f"{folder} is there already, edit it or choose another name")
    folder.mkdir(parents=True)
    file = folder / SKILL_FILE
    file.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"file": str(file)})
    else:
        click.echo(f"began {file}")
        click.echo(f"fill it in, then: {program()} skills check {shlex.quote(str(folder))}")


def _refusal(name: str, broken: Sequence[Diagnostic]) -> str:
    if any(found.code.startswith("name_") for found in broken):
        expected = "a-z, 0-9 and single - inside, at most 64 characters"
        return f"{name!r} cannot name a skill, expected {expected}: perhaps {slug(name)!r}"
    return f"the new skill {broken[0].message}"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One skill as it is loaded."""

    skill: str
    """The name it answers to."""
    scope: str
    index_tokens: int
    loaded_tokens: int
    state: str
    """``ok``, or why a model is not offered it."""


def _rows(catalogue: Catalogue) -> Iterator[Row]:
    listed = {skill.key for skill in catalogue.skills}
    for address, skill in sorted(catalogue.addresses().items()):
        is_shadowed = address not in listed
        yield Row(
            skill=address,
            scope=skill.scope,
            index_tokens=line_tokens(skill) if skill.model_invocable and not is_shadowed else 0,
            loaded_tokens=loaded_tokens(catalogue, skill),
            state=_state(skill, is_shadowed=is_shadowed),
        )


def _state(skill: Skill, *, is_shadowed: bool) -> str:
    if is_shadowed:
        return f"another has {skill.key!r}"
    return "ok" if skill.model_invocable else "for people only"


def _print_checked(found: Sequence[Checked]) -> None:
    skills = [skill for skill in found if skill.key]
    if skills:
        rows = [
            (skill.key, skill.index_tokens, skill.loaded_tokens, "WRONG" if skill.errors else "ok") for skill in skills
        ]
        print_table(("SKILL", "INDEX", "LOADED", "STATE"), rows)
    errors = warnings = 0
    for skill in found:
        errors += skill.errors
        warnings += len(skill.diagnostics) - skill.errors
        for diagnostic in skill.diagnostics:
            where = f"{skill.place}:{diagnostic.line}" if diagnostic.line else skill.place
            click.echo(f"{diagnostic.severity}: {where}: {diagnostic.message}")
    others = [f"{len(found) - len(skills):,} that cannot be loaded"] if len(found) > len(skills) else []
    click.echo(", ".join((_count(len(skills), "skill"), *others, _count(errors, "error"), _count(warnings, "warning"))))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _target(path: Path) -> Target:
    path = path.resolve()
    if path.is_file():
        if not is_skill_file(path.name):
            raise click.ClickException(f"{path.name} is no skill, expected a {SKILL_FILE} or a folder with one")
        path = path.parent
    if any(is_skill_file(each.name) for each in path.iterdir()):
        return Target(path.parent, path.name)
    return Target(path)


def _options(home: Path) -> SkillOptions:
    """Those of the home; the defaults where its settings are wrong, which is for ``torpor config check`` to tell."""
    try:
        return read_settings(home, os.environ).skills
    except SettingsInvalid:
        return SkillOptions()
