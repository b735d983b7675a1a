"""``torpor refresh``: has the live context of a conversation made anew."""

from typing import Final

import click

from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, server_options
from torpor.records.commands import Refreshed


@click.command(short_help="Make the live context of a conversation anew.")
@click.argument("name", metavar="ID")
@server_options
@json_option
def command(*, name: str, server: Server, as_json: bool) -> None:
    """Order a new live context for conversation ID: a few words on how things stand, used from its next turn on.

    One that is on its way is not ordered twice. `torpor inspect` tells what came of it.
    """
    path, outcome = ask(server, lambda connected: connected.refresh(name))
    if as_json:
        print_json({"path": path, "outcome": outcome})
    else:
        click.echo(f"{shortened(path)} {_IN_WORDS.get(outcome, outcome)}")


_IN_WORDS: Final[dict[str, str]] = {
    Refreshed.ORDERED: "is looked at anew",
    Refreshed.OUTSTANDING: "is being looked at already",
    Refreshed.NO_LIVE_CONTEXT: "has an agent without [live_context], nothing was done",
    Refreshed.SWITCHED_OFF: "is not looked at, the flag live_context is off",
    Refreshed.NOTHING_SAID: "has no message yet, nothing was done",
}
