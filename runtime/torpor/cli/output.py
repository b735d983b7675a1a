"""What every verb prints alike: facts as one JSON object per line, tables for people, the name we were called by."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from torpor.cli.terminal import on_one_line

json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print facts as JSON, one object per line.")


def print_json(value: Any) -> None:
    """One line."""
    click.echo(msgspec.json.encode(value))


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as what they hold; the last one as it comes."""
    lines = [[on_one_line(str(cell)) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def not_asked(what: object, *, logs: str) -> str:
    """That ``what`` was read as it is now. Args: logs: the event by which a server tells that it could not."""
    kept = f"which keeps the last good version of a file that breaks and logs {logs}"
    return f"torpor: this is {what} as it is now; no running server was asked, {kept}"


def program() -> str:
    """How to call us again from here: ``torpor`` where the shell finds this very one, else by its path."""
    called = Path(sys.argv[0])
    if called.suffix == ".py":
        return f"{_shown(Path(sys.executable))} -m torpor.cli.main"
    found = shutil.which("torpor")
    if found and called.exists() and Path(found).samefile(called):
        return "torpor"
    return _shown(called)


def _shown(path: Path) -> str:
    absolute = path.absolute()
    here = Path.cwd()
    return shlex.quote(str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute))
