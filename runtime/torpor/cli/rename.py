"""``torpor rename``: gives a conversation another title."""

import click

from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, server_options
from torpor.conversation.title import titled


@click.command(short_help="Give a conversation another title.")
@click.argument("name", metavar="ID")
@click.argument("title")
@server_options
@json_option
def command(*, name: str, title: str, server: Server, as_json: bool) -> None:
    """Give conversation ID the title TITLE; an empty one takes the title away. Its ID stays."""
    path = ask(server, lambda connected: connected.rename(name, title=title))
    if as_json:
        print_json({"path": path, "title": titled(title)})
    else:
        click.echo(f"{shortened(path)} is renamed")
