"""``torpor inspect``: the journal of a conversation as a timeline."""

from pathlib import Path

import click

from torpor.cli.filed import records
from torpor.cli.output import json_option, print_json
from torpor.cli.remote import Server, ask, file_option, server_options
from torpor.conversation.text import clean
from torpor.operations.timeline import Timeline, estimates_in_words, in_words


@click.command(short_help="Show the journal of a conversation as a timeline.")
@click.argument("name", metavar="ID")
@click.option("--content", is_flag=True, help="Show what was said as well.")
@server_options
@file_option
@json_option
def command(*, name: str, content: bool, server: Server, data: Path | None, as_json: bool) -> None:
    """Show what happened in the conversation ID, record by record: when, for how long, at what cost.

    ID is [tenant/]owner/conversation, short where that is unique.
    """
    journal = records(data, name) if data is not None else ask(server, lambda connected: connected.records(name))
    timeline = Timeline(content=content)
    for row in timeline.rows(journal):
        if as_json:
            print_json(row)
        else:
            click.echo(clean(in_words(row)).text)  # what was said may hold what a terminal obeys
    if not as_json and (estimates := timeline.estimates()) is not None:
        click.echo(estimates_in_words(estimates))
