"""``torpor fork``: begins a conversation with what another one began with."""

import click

from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, server_options
from torpor.records.ids import CONVERSATION_ID


@click.command(short_help="Begin a conversation with what another one began with.")
@click.argument("name", metavar="ID")
@click.argument("into", metavar="NEW_ID")
@click.option("--before", default="", metavar="MESSAGE", show_default="the last one", help="Id of a message.")
@click.option("--title", default="", metavar="TITLE", show_default="the same", help="What lists call the new one.")
@server_options
@json_option
def command(*, name: str, into: str, before: str, title: str, server: Server, as_json: bool) -> None:
    """Begin conversation NEW_ID, of the same owner and agent, with everything that was said in ID before a message.

    From there on the two have nothing in common. Done again, it changes nothing. One that is quarantined is forked for
    operators only; the new one is not quarantined.
    """
    if not CONVERSATION_ID.fullmatch(into):
        expected = "expected 1 to 64 letters, digits, '_' or '-', since it is the same owner's"
        raise click.BadParameter(f"{into!r} is no id, {expected}", param_hint="NEW_ID")
    path = ask(server, lambda connected: connected.fork(name, into, before=before, title=title))
    if as_json:
        print_json({"path": path, "source": name})
    else:
        click.echo(f"{shortened(path)} is there")
