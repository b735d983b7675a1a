"""A file that a verb writes what people said into: whole or as it was, and for nobody else to read."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, ParamSpec, TypeVar

import click

_FILE_MODE: Final = 0o600
P = ParamSpec("P")
R = TypeVar("R")


def out_options(function: Callable[P, R]) -> Callable[P, R]:
    """``--out`` and ``--force``, given to ``function`` as ``out`` and ``force``."""
    out = click.option(
        "--out",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Where to; standard output by default.",
    )
    force = click.option("--force", is_flag=True, help="Replace a file that is there, once the new one is whole.")
    return out(force(function))


def check_place(out: Path, *, force: bool) -> None:
    """Raises: click.ClickException: a file cannot be put there, or must not."""
    if not out.parent.is_dir():
        raise click.ClickException(f"folder {out.parent} does not exist, expected one to put {out.name} into")
    if not os.path.lexists(out):
        return
    if out.is_symlink() or not out.is_file():  # whatever it is was not made by us, and would be gone
        raise click.ClickException(f"{out} is no regular file, expected one or a name that is free")
    if not force:
        raise click.ClickException(f"{out} is there already, --force replaces it")


@contextmanager
def written(out: Path) -> Iterator[BinaryIO]:
    """It is put in place at the end of the block, and not where that raises."""
    part = out.with_name(f".{out.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE), "wb") as file:
            yield file
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
