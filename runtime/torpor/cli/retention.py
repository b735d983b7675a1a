"""``torpor retention``: what is not kept any longer, and why."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click

from torpor.cli.filed import stored_rows
from torpor.cli.folders import data_folder, data_option, home_option
from torpor.cli.output import json_option, print_json, print_table
from torpor.cli.paths import shortened
from torpor.clock import SystemClock
from torpor.operations.timeline import duration
from torpor.settings import read_section
from torpor.store.contract import DirectoryRow
from torpor.store.sqlite.reader import open_to_read
from torpor.subagents.options import SubagentOptions
from torpor.supervisor.options import RetentionOptions
from torpor.supervisor.retention import Retired, ended_before_us, may_go, retired

_SUBAGENT: Final = "subagent"
_EVERY: Final = 2**62


@click.command(short_help="Show which conversations are not kept any longer, and why.")
@home_option
@data_option
@json_option
def command(*, home: Path, data: Path | None, as_json: bool) -> None:
    """Show which conversations a server would delete now, by [retention] of the home. Deletes nothing.

    Reads the data folder alone, whether or not a server runs on it. WHY is age, archived or count, or subagent for what
    one wrote whose subagents.keep_days are over. What is being used at the moment is deleted only once it rests.
    """
    options: RetentionOptions = read_section(home, os.environ, name="retention")
    of_subagents: SubagentOptions = read_section(home, os.environ, name="subagents")
    folder, now_us = data_folder(home, data), SystemClock().now_us()
    found = list(_found(folder, options=options, now_us=now_us))
    going = {old.row.key for old in found}
    subagents = [
        row for row in _old_subagents(folder, days=of_subagents.keep_days, now_us=now_us) if row.key.root not in going
    ]
    shown = [(old.row, old.cause.value) for old in found] + [(row, _SUBAGENT) for row in subagents]
    if as_json:
        for row, why in shown:
            print_json(_told(row, why=why))
        return
    if shown:
        print_table(("ID", "WHY", "RECORDS", "CHANGED"), [_cells(row, why=why, now_us=now_us) for row, why in shown])
    click.echo(f"{_kept(options)}; {_counted(found)}")
    click.echo(f"{_kept_of_subagents(of_subagents)}; {len(subagents)} would be deleted")


def _found(folder: Path, *, options: RetentionOptions, now_us: int) -> Iterator[Retired]:
    for _, rows in groupby(stored_rows(folder), key=lambda row: (row.key.tenant, row.key.owner)):
        yield from retired(rows, options=options, now_us=now_us)


def _old_subagents(folder: Path, *, days: float, now_us: int) -> Iterator[DirectoryRow]:
    """Those whose conversations rest, the oldest first."""
    with open_to_read(folder) as reader:
        for key in reader.old_children(before_us=ended_before_us(days, now_us=now_us), limit=_EVERY) if days else ():
            row, root = reader.describe(key), reader.describe(key.root)
            if row is not None and root is not None and may_go(root):
                yield row


def _told(row: DirectoryRow, *, why: str) -> dict[str, Any]:
    return {
        "path": row.key.path,
        "reason": why,
        "updated_us": row.updated_us,
        "records": row.head.seq,
        "archived": row.is_archived,
    }


def _cells(row: DirectoryRow, *, why: str, now_us: int) -> tuple[object, ...]:
    changed = f"{duration(max(0, now_us - row.updated_us))} ago"
    return shortened(row.key.path), why, row.head.seq, changed


def _kept(options: RetentionOptions) -> str:
    """The policy."""
    if options.keeps_everything:
        return "everything is kept, [retention] says nothing else"
    age = f"for {options.age_days} days" if options.age_days else ""
    archived = f"archived ones for {options.archived_days} days" if options.archived_days else ""
    count = f"the newest {options.per_owner_max} of each owner" if options.per_owner_max else ""
    return f"conversations are kept: {', '.join(filter(None, (age, archived, count)))}"


def _kept_of_subagents(options: SubagentOptions) -> str:
    kept = f"for {options.keep_days:g} days" if options.keep_days else "as long as their conversations"
    return f"what sub-agents wrote is kept {kept}"


def _counted(found: Sequence[Retired]) -> str:
    causes = Counter(old.cause.value for old in found)
    by_cause = ", ".join(f"{count} for {cause}" for cause, count in sorted(causes.items()))
    return f"{len(found)} would be deleted" + (f" ({by_cause})" if by_cause else "")
