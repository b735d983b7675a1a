"""``torpor link``: an address from which anybody may get a file for a short while."""

import click

from torpor.cli.blob_named import blob_named
from torpor.cli.output import json_option, print_json
from torpor.cli.questions import Questions
from torpor.cli.remote import Server, ask, server_options


@click.command(short_help="Give an address from which anybody may get a file.")
@click.argument("name", metavar="ID")
@click.argument("blob", metavar="BLOB")
@server_options
@json_option
def command(*, name: str, blob: str, server: Server, as_json: bool) -> None:
    """Print an address of the file BLOB of the conversation ID; who has it needs no token, for a short while.

    `torpor send --json` names the files that it sends, and `torpor inspect ID` those of each message, to operators.
    BLOB may be cut short where that is unique.
    """
    url, _ = server.address()

    async def linked(connected: Questions) -> tuple[str, str, str]:
        path = await connected.path(name)
        whole = await blob_named(connected.client, path, blob)
        return path, whole, await connected.client.link(path, whole)

    path, whole, link = ask(server, linked)
    address = f"http{url.removeprefix('ws').rstrip('/')}{link}"
    if as_json:
        print_json({"path": path, "blob": whole, "url": address})
    else:
        click.echo(address)
