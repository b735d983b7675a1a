"""``torpor ps``: conversations and what they are doing."""

from pathlib import Path
from typing import Any

import click

from torpor.cli.filed import listed
from torpor.cli.output import json_option, print_json, print_table
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, file_option, server_options
from torpor.clock import SystemClock
from torpor.operations.timeline import duration


@click.command(short_help="List conversations and what they are doing.")
@server_options
@file_option
@click.option("--archived", is_flag=True, help="Archived ones too.")
@json_option
def command(*, server: Server, data: Path | None, archived: bool, as_json: bool) -> None:
    """List conversations: one's own, and with the operator scope everybody's.

    STATE is new before the first message, running in a turn, rest without anything to do, or quarantined; the marks
    behind it say that the last turn failed, or that the conversation is archived. ACTOR tells whether it is in memory.
    """
    if data is not None:
        rows = [row for row in listed(data) if archived or not row["archived"]]
    else:
        rows = ask(server, lambda connected: connected.listed(archived=archived))
    if as_json:
        for row in rows:
            print_json(row)
        return
    now_us = SystemClock().now_us()
    print_table(
        ("ID", "AGENT", "STATE", "ACTOR", "WAITING", "EVENTS", "CHANGED", "TITLE"),
        [_cells(row, now_us) for row in rows],
    )


def _cells(row: dict[str, Any], now_us: int) -> tuple[object, ...]:
    marks = [row["quarantine"], *(mark for mark in ("failed", "archived") if row.get(mark))]
    said = ", ".join(filter(None, marks))
    state = f"{row['state']} ({said})" if said else row["state"]
    changed = f"{duration(max(0, now_us - row['updated_us']))} ago"
    path, actor = shortened(row["path"]), row["actor"] or "-"
    return (path, row["agent"], state, actor, row["waiting"], row["event"], changed, row["title"])
