"""``torpor create``: begins a conversation without a message."""

import click

from torpor.cli.output import json_option, print_json
from torpor.cli.remote import Server, ask, server_options


@click.command(short_help="Begin a conversation without a message.")
@click.argument("name", metavar="ID")
@click.option("--agent", default="", metavar="NAME", show_default="the home's", help="Who answers in it.")
@click.option("--title", default="", metavar="TITLE", help="What lists call it.")
@server_options
@json_option
def command(*, name: str, agent: str, title: str, server: Server, as_json: bool) -> None:
    """Begin conversation ID. Done again with the same agent, it changes nothing.

    A message to a conversation that is not there begins it too; see `torpor send --help`.
    """
    ask(server, lambda connected: connected.create(name, agent=agent, title=title))
    if as_json:
        print_json({"conversation": name})
    else:
        click.echo(f"{name} is there")
