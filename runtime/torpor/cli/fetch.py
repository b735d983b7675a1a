"""``torpor fetch``: gets a file back that somebody sent."""

import sys
from pathlib import Path
from typing import Final

import click

from torpor.cli.blob_named import blob_named
from torpor.cli.out_file import check_place, out_options, written
from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.questions import Questions
from torpor.cli.remote import Server, ask, server_options

_EXTRA_S: Final = 570.0
"""For a large file on a slow line."""


@click.command(short_help="Get a file back that somebody sent.")
@click.argument("name", metavar="ID")
@click.argument("blob", metavar="BLOB")
@out_options
@server_options
@json_option
def command(*, name: str, blob: str, out: Path | None, force: bool, server: Server, as_json: bool) -> None:
    """Get the file BLOB of the conversation ID: what was kept of it, which models are shown.

    `torpor send --json` names the files that it sends, and `torpor inspect ID` those of each message, to operators.
    BLOB may be cut short where that is unique.
    """
    if out is not None:
        check_place(out, force=force)
    elif as_json:
        raise click.UsageError("--json needs --out, since the file itself goes to standard output.")
    elif sys.stdout is not None and sys.stdout.isatty():
        raise click.UsageError("a file may hold what a terminal obeys, expected --out FILE or a pipe.")

    async def fetched(connected: Questions) -> tuple[str, str, bytes]:
        path = await connected.path(name)
        whole = await blob_named(connected.client, path, blob)
        return path, whole, await connected.client.fetch(path, whole)

    path, whole, data = ask(server, fetched, extra_s=_EXTRA_S)
    if out is None:
        sys.stdout.buffer.write(data)
        return
    with written(out) as file:
        file.write(data)
    if as_json:
        print_json({"path": path, "blob": whole, "size_bytes": len(data), "file": str(out)})
    else:
        click.echo(f"fetched {whole[:12]} of {shortened(path)} to {out}: {len(data)} bytes")
