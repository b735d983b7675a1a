"""``torpor retention``: what is not kept any longer, and why."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import click

from torpor.cli.filed import stored_rows
from torpor.cli.folders import data_folder, data_option, home_option
from torpor.cli.output import json_option, print_json, print_table
from torpor.cli.paths import shortened
from torpor.clock import SystemClock
from torpor.operations.timeline import duration
from torpor.settings import read_section
from torpor.supervisor.options import RetentionOptions
from torpor.supervisor.retention import Retired, retired


@click.command(short_help="Show which conversations are not kept any longer, and why.")
@home_option
@data_option
@json_option
def command(*, home: Path, data: Path | None, as_json: bool) -> None:
    """Show which conversations a server would delete now, by [retention] of the home. Deletes nothing.

    Reads the data folder alone, whether or not a server runs on it. WHY is age, archived or count. What is being used
    at the moment is deleted only once it rests.
    """
    options: RetentionOptions = read_section(home, os.environ, name="retention")
    now_us = SystemClock().now_us()
    found = list(_found(data_folder(home, data), options=options, now_us=now_us))
    if as_json:
        for old in found:
            row = old.row
            print_json(
                {
                    "path": row.key.path,
                    "reason": old.cause.value,
                    "updated_us": row.updated_us,
                    "records": row.head.seq,
                    "archived": row.is_archived,
                }
            )
        return
    if found:
        print_table(("ID", "WHY", "RECORDS", "CHANGED"), [_cells(old, now_us) for old in found])
    click.echo(f"{_kept(options)}; {_counted(found)}")


def _found(folder: Path, *, options: RetentionOptions, now_us: int) -> Iterator[Retired]:
    for _, rows in groupby(stored_rows(folder), key=lambda row: (row.key.tenant, row.key.owner)):
        yield from retired(rows, options=options, now_us=now_us)


def _cells(old: Retired, now_us: int) -> tuple[object, ...]:
    changed = f"{duration(max(0, now_us - old.row.updated_us))} ago"
    return shortened(old.row.key.path), old.cause.value, old.row.head.seq, changed


def _kept(options: RetentionOptions) -> str:
    """The policy."""
    if options.keeps_everything:
        return "everything is kept, [retention] says nothing else"
    age = f"for {options.age_days} days" if options.age_days else ""
    archived = f"archived ones for {options.archived_days} days" if options.archived_days else ""
    count = f"the newest {options.per_owner_max} of each owner" if options.per_owner_max else ""
    return f"conversations are kept: {', '.join(filter(None, (age, archived, count)))}"


def _counted(found: Sequence[Retired]) -> str:
    causes = Counter(old.cause.value for old in found)
    by_cause = ", ".join(f"{count} for {cause}" for cause, count in sorted(causes.items()))
    return f"{len(found)} would be deleted" + (f" ({by_cause})" if by_cause else "")
