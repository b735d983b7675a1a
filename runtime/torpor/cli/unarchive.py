"""``torpor unarchive``: puts a conversation back into lists."""

import click

from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, server_options


@click.command(short_help="Have lists show a conversation again.")
@click.argument("name", metavar="ID")
@server_options
@json_option
def command(*, name: str, server: Server, as_json: bool) -> None:
    """Have lists show conversation ID again."""
    path = ask(server, lambda connected: connected.unarchive(name))
    if as_json:
        print_json({"path": path, "archived": False})
    else:
        click.echo(f"{shortened(path)} is listed again")
