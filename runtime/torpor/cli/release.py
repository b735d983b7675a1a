"""``torpor release``: takes a quarantine back."""

import click

from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, server_options


@click.command(short_help="Let a quarantined conversation go on.")
@click.argument("name", metavar="ID")
@server_options
@json_option
def command(*, name: str, server: Server, as_json: bool) -> None:
    """Let conversation ID go on, whoever quarantined it; a turn that was cut off is resumed where it was.

    One that crashed again and again is counted anew. One whose journal cannot be read is quarantined again by the next
    message.
    """
    path = ask(server, lambda connected: connected.release(name))
    if as_json:
        print_json({"path": path, "state": "released"})
    else:
        click.echo(f"{shortened(path)} is released")
