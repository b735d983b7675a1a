"""``torpor jobs``: background work that is not done, and what an operator can do about it."""

from pathlib import Path
from typing import Any

import click

from torpor.cli.filed import counted_jobs, listed_jobs
from torpor.cli.output import json_option, print_json, print_table
from torpor.cli.paths import shortened
from torpor.cli.questions import Questions
from torpor.cli.remote import Server, ask, file_option, server_options
from torpor.clock import SystemClock
from torpor.operations.timeline import duration
from torpor.store.job_contract import JobState

_STATES = [state.value for state in JobState]


@click.group(short_help="List background work, retry it or drop it.", invoke_without_command=True)
@click.option("--state", type=click.Choice(_STATES), help="Only those in this state.")
@server_options
@file_option
@json_option
@click.pass_context
def command(context: click.Context, *, state: str | None, server: Server, data: Path | None, as_json: bool) -> None:
    """List background work that is not done, and since when the oldest of it is due. Operators only.

    STATE is waiting, running, or dead: what failed in all its attempts, or cannot be done. DUE is when it runs next.
    With --json the last line has the counts.
    """
    if (verb := context.invoked_subcommand) is not None:
        sources = map(context.get_parameter_source, context.params)
        if click.core.ParameterSource.COMMANDLINE in sources:
            # They would count for nothing, and the verb would mean another server.
            raise click.UsageError(f"options stand before {verb!r}, expected them behind {verb!r}", context)
        return
    _list(state, server=server, data=data, as_json=as_json)


def _list(state: str | None, *, server: Server, data: Path | None, as_json: bool) -> None:
    now_us = SystemClock().now_us()
    rows, counts = (list(listed_jobs(data)), counted_jobs(data, now_us)) if data is not None else ask(server, _listed)
    shown = [row for row in rows if state in {None, row["state"]}]
    if as_json:
        for row in shown:
            print_json(row)
        print_json(counts)
        return
    if shown:
        head = ("ID", "KIND", "STATE", "AGE", "DUE", "ATTEMPTS", "LAST ERROR")
        print_table(head, [_cells(row, now_us) for row in shown])
    click.echo(_in_words(counts, now_us))


@command.command("list", hidden=True)
@click.option("--state", type=click.Choice(_STATES), help="Only those in this state.")
@server_options
@file_option
@json_option
def list_jobs(*, state: str | None, server: Server, data: Path | None, as_json: bool) -> None:
    """List background work, as `torpor jobs` does."""
    _list(state, server=server, data=data, as_json=as_json)


@command.command("retry", short_help="Have a job run now.")
@click.argument("name", metavar="ID")
@server_options
@json_option
def retry_job(*, name: str, server: Server, as_json: bool) -> None:
    """Have job ID run now, dead or waiting, with all its attempts before it.

    ID is [[tenant/]owner/]conversation/job, as the list shows it; short where that is unique.
    """
    path = ask(server, lambda connected: connected.retry_job(name))
    if as_json:
        print_json({"path": path, "state": JobState.WAITING.value})
    else:
        click.echo(f"{shortened(path)} runs next")


@command.command("drop")
@click.argument("name", metavar="ID")
@server_options
@json_option
def drop_job(*, name: str, server: Server, as_json: bool) -> None:
    """Remove job ID, undone. It cannot be called back."""
    path = ask(server, lambda connected: connected.drop_job(name))
    if as_json:
        print_json({"path": path, "state": "dropped"})
    else:
        click.echo(f"{shortened(path)} is dropped")


async def _listed(connected: Questions) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    return await connected.jobs(), await connected.job_counts()


def _cells(row: dict[str, Any], now_us: int) -> tuple[object, ...]:
    age = duration(max(0, now_us - row["added_us"]))
    error = row["error"] or "-"
    return (shortened(row["path"]), row["kind"], row["state"], age, _due(row, now_us), row["attempts"], error)


def _due(row: dict[str, Any], now_us: int) -> str:
    if row["state"] != JobState.WAITING.value:
        return "-"
    wait_us = row["due_us"] - now_us
    return f"in {duration(wait_us)}" if wait_us > 0 else f"for {duration(-wait_us)}"


def _in_words(counts: dict[str, Any], now_us: int) -> str:
    words = f"{counts['waiting']} waiting, {counts['running']} running, {counts['dead']} dead"
    if counts["oldest_due_us"] is None:
        return f"{words}; nothing is due"
    return f"{words}; {counts['due']} due, the oldest for {duration(max(0, now_us - counts['oldest_due_us']))}"
