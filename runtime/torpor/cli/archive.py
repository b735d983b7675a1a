"""``torpor archive``: takes a conversation out of lists."""

import click

from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, server_options


@click.command(short_help="Have lists leave a conversation out.")
@click.argument("name", metavar="ID")
@server_options
@json_option
def command(*, name: str, server: Server, as_json: bool) -> None:
    """Have lists leave conversation ID out unless they are asked for archived ones.

    It goes on otherwise, and a message brings it back.
    """
    path = ask(server, lambda connected: connected.archive(name))
    if as_json:
        print_json({"path": path, "archived": True})
    else:
        click.echo(f"{shortened(path)} is archived")
