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
@json_option
def command(*, server: Server, data: Path | None, as_json: bool) -> None:
    """List conversations: one's own, and with the operator scope everybody's.

    STATE is running in a turn, rest without anything to do, or quarantined; ACTOR tells whether it is in memory.
    """
    rows = list(listed(data)) if data is not None else ask(server, lambda connected: connected.listed())
    if as_json:
        for row in rows:
            print_json(row)
        return
    now_us = SystemClock().now_us()
    print_table(
        ("ID", "AGENT", "STATE", "ACTOR", "WAITING", "EVENTS", "CHANGED"), [_cells(row, now_us) for row in rows]
    )


def _cells(row: dict[str, Any], now_us: int) -> tuple[object, ...]:
    state = f"{row['state']} ({row['quarantine']})" if row["quarantine"] else row["state"]
    changed = f"{duration(max(0, now_us - row['updated_us']))} ago"
    return (shortened(row["path"]), row["agent"], state, row["actor"] or "-", row["waiting"], row["event"], changed)
