"""``torpor inspect``: the journal of a conversation as a timeline."""

from collections.abc import Iterable
from pathlib import Path

import click

from torpor.cli.filed import records
from torpor.cli.output import json_option, print_json
from torpor.cli.remote import Server, ask, file_option, server_options
from torpor.conversation.text import clean
from torpor.operations.budgets import bars, budget_of
from torpor.operations.timeline import Timeline, estimates_in_words, in_words
from torpor.records.journal import JournalRecord


@click.command(short_help="Show the journal of a conversation as a timeline.")
@click.argument("name", metavar="ID")
@click.option("--content", is_flag=True, help="Show what was said as well.")
@click.option("--budget", is_flag=True, help="Show where the tokens of the last request went.")
@click.option("--turn", type=click.IntRange(min=1), help="With --budget: the last request of this turn.")
@server_options
@file_option
@json_option
def command(
    *, name: str, content: bool, budget: bool, turn: int | None, server: Server, data: Path | None, as_json: bool
) -> None:
    """Show what happened in the conversation ID, record by record: when, for how long, at what cost.

    ID is [tenant/]owner/conversation, short where that is unique.
    """
    journal = records(data, name) if data is not None else ask(server, lambda connected: connected.records(name))
    if budget or turn is not None:
        _show_budget(journal, name=name, turn=turn or 0, as_json=as_json)
        return
    timeline = Timeline(content=content)
    for row in timeline.rows(journal):
        if as_json:
            print_json(row)
        else:
            click.echo(clean(in_words(row)).text)  # what was said may hold what a terminal obeys
    if not as_json and (estimates := timeline.estimates()) is not None:
        click.echo(estimates_in_words(estimates))


def _show_budget(journal: Iterable[JournalRecord], *, name: str, turn: int, as_json: bool) -> None:
    found = budget_of(journal, turn=turn)
    if found is None:
        where = f"turn {turn} of {name!r}" if turn else f"{name!r}"
        raise click.ClickException(f"{where} has no request yet, expected one; `torpor inspect` shows what there is")
    if as_json:
        print_json(found)
    else:
        click.echo("\n".join(bars(found)))
