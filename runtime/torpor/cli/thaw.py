"""``torpor thaw``: wakes a conversation up now."""

import click

from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, server_options


@click.command(short_help="Wake a conversation up.")
@click.argument("name", metavar="ID")
@server_options
@json_option
def command(*, name: str, server: Server, as_json: bool) -> None:
    """Bring the actor of conversation ID into memory, and let it go on with whatever is due."""
    path = ask(server, lambda connected: connected.thaw(name))
    if as_json:
        print_json({"path": path, "actor": "idle"})
    else:
        click.echo(f"{shortened(path)} is awake")
