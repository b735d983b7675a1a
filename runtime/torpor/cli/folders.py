"""Where the agent home and its data folder are, said alike by every verb that needs them."""

import shlex
from pathlib import Path
from typing import Any, Final

import click

from torpor.local_files import DATA_FOLDER

_DIRECTORY: Final[Any] = click.Path(file_okay=False, path_type=Path)


home_option: Final = click.option(
    "--home",
    type=_DIRECTORY,
    default=Path(),
    show_default="the current directory",
    metavar="DIR",
    help="The agent home.",
)
data_option: Final = click.option(
    "--data",
    type=_DIRECTORY,
    show_default=f"HOME/{DATA_FOLDER}",
    metavar="DIR",
    help="The data folder.",
)


def data_folder(home: Path, data: Path | None) -> Path:
    """The folder that was named, or the home's own."""
    return data if data is not None else home / DATA_FOLDER


def blobs_folder(data: Path) -> Path:
    """Where a data folder keeps bodies that were too long for a record."""
    return data / "blobs"


def where(home: Path, data: Path | None = None) -> str:
    """The options that name both again from the current directory, with a blank before each; none for the defaults."""
    named = "" if home.resolve() == Path.cwd() else f" --home {shlex.quote(str(home))}"
    return named if data is None else f"{named} --data {shlex.quote(str(data))}"
