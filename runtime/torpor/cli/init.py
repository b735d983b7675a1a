"""``torpor init DIR``: copies the starter home, from the installed package or from the checkout it runs in."""

import shutil
from pathlib import Path
from typing import Final

import click

import torpor
from torpor.cli.folders import where
from torpor.cli.output import json_option, print_json, program

PARTS: Final = ("config", "skills", "tools")
"""Directories of a home that are its author's."""


@click.command(short_help="Make a new agent home.")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@json_option
def command(directory: Path, *, as_json: bool) -> None:
    """Make a new agent home in DIRECTORY, which must be empty or not exist yet.

    It gets the commented settings, an agent that plays a script, and a few small tools to begin with.
    """
    if directory.is_dir() and any(directory.iterdir()):
        raise click.ClickException(f"{directory} is not empty, name a directory that is, or one that does not exist")
    source = _starter_home()
    if any(directory.resolve().is_relative_to((source / part).resolve()) for part in PARTS):
        raise click.ClickException(f"{directory} lies inside the home that it would be a copy of, name another place")
    leftovers = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    for part in PARTS:
        if (source / part).is_dir():
            shutil.copytree(source / part, directory / part, ignore=leftovers)
    if as_json:
        print_json({"home": str(directory.resolve())})
        return
    click.echo(f"made an agent home in {directory}")
    click.echo(f"start it with: {program()} serve{where(directory)}")


def _starter_home() -> Path:
    package = Path(torpor.__file__).parent
    for candidate in (package / "starter_home", package.parents[1]):
        if (candidate / "config" / "torpor.toml").is_file():
            return candidate
    raise click.ClickException(f"no starter home beside {package}, install the torpor wheel again")
