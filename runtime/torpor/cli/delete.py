"""``torpor delete``: takes a conversation away for good."""

import click

from torpor.cli.asking import must_mean
from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, server_options


@click.command(short_help="Delete a conversation, with everything that is stored of it.")
@click.argument("name", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")
@server_options
@json_option
def command(*, name: str, yes: bool, server: Server, as_json: bool) -> None:
    """Delete conversation ID, with everything that is stored of it. A running turn is cancelled first.

    It cannot be brought back. What tools did stays done, and logs and copies of the data folder keep what they have.
    """
    if not yes:
        must_mean(f"Delete {name} for good?", otherwise="nothing was deleted")
    path = ask(server, lambda connected: connected.delete(name), extra_s=30.0)
    if as_json:
        print_json({"path": path, "deleted": True})
    else:
        click.echo(f"{shortened(path)} is deleted")
