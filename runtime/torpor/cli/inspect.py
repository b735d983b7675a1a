"""``torpor inspect``: the journal of a conversation as a timeline, and what the model saw on any turn."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from torpor.cli.filed import filed_row, records
from torpor.cli.output import json_option, print_json
from torpor.cli.remote import Server, ask, file_option, server_options
from torpor.cli.requests import Which, show_difference, show_origins, show_prefixes, show_request
from torpor.cli.terminal import harmless, on_one_line
from torpor.clock import SystemClock
from torpor.conversation.state import BadHistory
from torpor.errors import JournalCorrupt
from torpor.operations.budgets import bars, budget_of, work_in_words
from torpor.operations.timeline import Timeline, duration, estimates_in_words, in_words
from torpor.records.blocks import UNREADABLE
from torpor.records.journal import JournalRecord

_STANDING: Final = ("quarantine", "quarantine_kind", "quarantined_us", "quarantine_seq")
"""As the rows of ``ps`` have it."""
_OF_A_REQUEST: Final = ("request", "diff", "why", "budget")
"""Views that show one."""


@click.command(short_help="Show the journal of a conversation as a timeline.")
@click.argument("name", metavar="ID")
@click.option("--content", is_flag=True, help="Show what was said as well.")
@click.option("--budget", is_flag=True, help="Show where the tokens of a request went.")
@click.option("--request", is_flag=True, help="Print a request exactly as it was sent, as JSON.")
@click.option("--diff", is_flag=True, help="Show what a request changed of the one before it.")
@click.option("--why", is_flag=True, help="Show what was in a request, and from which records it came.")
@click.option("--cache", is_flag=True, help="Show how much of each request the one before had sent.")
@click.option(
    "--turn",
    type=click.IntRange(min=1),
    help="The last request of this turn: its budget, unless another view is named.",
)
@click.option("--call", default="", metavar="CALL", help="This very request, as the timeline names it, like 3-1-1.")
@click.option("--child", metavar="CHILD", help="The journal of a sub-agent, as the timeline names it.")
@server_options
@file_option
@json_option
def command(
    *,
    name: str,
    content: bool,
    turn: int | None,
    call: str,
    child: str | None,
    server: Server,
    data: Path | None,
    as_json: bool,
    **views: bool,
) -> None:
    """Show what happened in the conversation ID, record by record: when, for how long, at what cost.

    ID is [tenant/]owner/conversation, short where that is unique. With --child it is all about the work of one of its
    sub-agents, whose name may be cut short where that is unique; of one that works for that, CHILD is both names with a
    slash between them.
    """
    wanted = [view for view, is_wanted in views.items() if is_wanted]
    if len(wanted) > 1:
        raise click.UsageError(f"--{' and --'.join(wanted)} each show something else, expected one of them.")
    shown = wanted[0] if wanted else None
    if call and (shown or ("budget" if turn is not None else "")) not in _OF_A_REQUEST:
        raise click.UsageError(f"--call names a request, expected {_one_of(_OF_A_REQUEST)} with it.")
    if content and (shown is not None or turn is not None):
        other = f"--{shown}" if shown else "--turn"
        raise click.UsageError(f"--content belongs to the timeline of the whole conversation, expected no {other}.")
    if child == "":
        raise click.UsageError("--child is empty, expected the name of a sub-agent, as the timeline has it.")
    child = child or ""
    row: dict[str, Any] = {}
    if shown is None and turn is None and not child:
        row = ask(server, lambda connected: connected.row(name)) if data is None else filed_row(data, name)
    heard = ask(server, lambda connected: connected.records(name, child=child)) if data is None else None

    def journal() -> Iterable[JournalRecord]:
        return heard if heard is not None else records(data, name, child=child) if data is not None else ()

    which = Which(name=f"{name}/{child}" if child else name, turn=turn or 0, call=call)
    try:
        match shown:
            case "request":
                show_request(journal, which)
            case "diff":
                show_difference(journal, which, as_json=as_json)
            case "why":
                show_origins(journal, which, as_json=as_json)
            case "cache":
                show_prefixes(journal, turn=which.turn, as_json=as_json)
            case None if turn is None:
                _show_standing(row, as_json=as_json)
                _show_timeline(journal(), content=content, as_json=as_json)
            case _:
                _show_budget(journal(), which, as_json=as_json)
    except (BadHistory, *UNREADABLE) as exc:
        raise JournalCorrupt(name, reason=str(exc)) from exc


def _show_standing(row: dict[str, Any], *, as_json: bool) -> None:
    """Why it must not go on, if so."""
    if not row.get("quarantine"):
        return
    if as_json:
        print_json({name: row[name] for name in _STANDING})
    else:
        ago = duration(max(0, SystemClock().now_us() - row["quarantined_us"]))
        where = f"{row['quarantine_kind']}, {ago} ago, after record {row['quarantine_seq']}"
        click.echo(f"quarantined ({where}): {on_one_line(row['quarantine'])}")


def _show_timeline(journal: Iterable[JournalRecord], *, content: bool, as_json: bool) -> None:
    timeline = Timeline(content=content)
    for row in timeline.rows(journal):
        if as_json:
            print_json(row)
        else:
            click.echo(harmless(in_words(row)))  # what was said may hold what a terminal obeys
    if not as_json and (estimates := timeline.estimates()) is not None:
        click.echo(estimates_in_words(estimates))


def _one_of(views: Iterable[str]) -> str:
    *others, last = (f"--{view}" for view in views)
    return f"{', '.join(others)} or {last}"


def _show_budget(journal: Iterable[JournalRecord], which: Which, *, as_json: bool) -> None:
    found = budget_of(journal, turn=which.turn, call=which.call)
    if found is None:
        raise which.missing()
    if as_json:
        print_json(found)
    else:
        click.echo("\n".join(bars(found)))
        if found.work is not None:
            click.echo(work_in_words(found.work))
