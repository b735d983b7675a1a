"""``torpor quarantine``: sets a conversation aside."""

import click

from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, server_options


@click.command(short_help="Set a conversation aside until it is released.")
@click.argument("name", metavar="ID")
@click.option("--reason", required=True, metavar="TEXT", help="Why, in a few words; its clients read it.")
@server_options
@json_option
def command(*, name: str, reason: str, server: Server, as_json: bool) -> None:
    """End the actor of conversation ID, a running turn with it, and let none start until `torpor release`.

    Nothing in its journal changes: the turn that was cut off goes on after the release. Messages are refused in the
    meantime, and whoever watches it is told.
    """
    path = ask(server, lambda connected: connected.quarantine(name, reason=reason))
    if as_json:
        print_json({"path": path, "state": "quarantined", "quarantine": reason})
    else:
        click.echo(f"{shortened(path)} is quarantined")
