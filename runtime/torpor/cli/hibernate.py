"""``torpor hibernate``: puts a conversation to sleep now."""

import click

from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, server_options


@click.command(short_help="Put a conversation to sleep.")
@click.argument("name", metavar="ID")
@click.option(
    "--wait",
    "deadline_s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="How long a running turn may take to end; by default not at all.",
)
@server_options
@json_option
def command(*, name: str, deadline_s: float, server: Server, as_json: bool) -> None:
    """Let the actor of conversation ID leave memory; the next message brings it back.

    A running turn is not cut short: when it does not end in time, this fails and the conversation stays awake.
    """
    path = ask(server, lambda connected: connected.hibernate(name, deadline_s=deadline_s), extra_s=deadline_s)
    if as_json:
        print_json({"path": path, "actor": "hibernated"})
    else:
        click.echo(f"{shortened(path)} sleeps")
