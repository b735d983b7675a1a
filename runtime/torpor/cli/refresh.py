"""``torpor refresh``: has the live context of a conversation made anew."""

import click

from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, server_options


@click.command(short_help="Make the live context of a conversation anew.")
@click.argument("name", metavar="ID")
@server_options
@json_option
def command(*, name: str, server: Server, as_json: bool) -> None:
    """Order a new live context for conversation ID: a few words on how things stand, used from its next turn on.

    An agent without one has nothing to do. `torpor inspect` tells what came of it.
    """
    path = ask(server, lambda connected: connected.refresh(name))
    if as_json:
        print_json({"path": path})
    else:
        click.echo(f"{shortened(path)} is looked at anew")
