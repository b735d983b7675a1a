"""``torpor export``: a conversation, whole, as lines of JSON."""

import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import click

from torpor.cli.folders import data_folder, data_option, home_option
from torpor.cli.out_file import check_place, out_options, written
from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.stored_blobs import stored_blobs
from torpor.cli.verify import named
from torpor.operations.audit import Verdict
from torpor.operations.counted import counted
from torpor.operations.export import BadExport, exported
from torpor.records.ids import ConversationKey
from torpor.store.contract import Blobs
from torpor.store.sqlite.auditing import AuditReader, open_to_audit


@click.command(short_help="Write a conversation into a file.")
@click.argument("name", metavar="ID")
@out_options
@home_option
@data_option
@json_option
def command(*, name: str, out: Path | None, force: bool, home: Path, data: Path | None, as_json: bool) -> None:
    """Write the conversation ID as JSON Lines: a header, a record a line, and the results that were too long for one.

    Reads the data folder alone, whether or not a server runs on it, and verifies before it writes. `torpor import`
    reads the file. ID is [tenant/]owner/conversation, short where that is unique.
    """
    if out is not None:
        check_place(out, force=force)
    folder = data_folder(home, data)
    with open_to_audit(folder) as reader:
        key = named(name, list(reader.keys()))
        blobs = stored_blobs(home, folder)
        verdict = _to_standard_output(reader, blobs, key) if out is None else _to_file(reader, blobs, key, out)
    if out is None:
        return
    if as_json:
        print_json(verdict)
    else:
        beside = f", {counted(len(verdict.blobs), 'blob')}" if verdict.blobs else ""
        click.echo(f"exported {shortened(verdict.path)} to {out}: {counted(verdict.records, 'record')}{beside}")


def _to_standard_output(reader: AuditReader, blobs: Blobs, key: ConversationKey) -> Verdict:
    return anyio.run(_exported, reader, blobs, key, sys.stdout.buffer.write)


def _to_file(reader: AuditReader, blobs: Blobs, key: ConversationKey, out: Path) -> Verdict:
    """Whole, or as it was."""
    with written(out) as file:
        return anyio.run(_exported, reader, blobs, key, file.write)


async def _exported(
    reader: AuditReader, blobs: Blobs, key: ConversationKey, write: Callable[[bytes], object]
) -> Verdict:  # anyio.run gives positions only
    try:
        verdict = await exported(lambda: reader.stored(key), blobs, write=write)
    except BadExport as exc:
        raise click.ClickException(f"cannot export {shortened(key.path)}: {exc}") from exc
    if verdict is None:
        raise click.ClickException(f"no conversation {shortened(key.path)!r} here any more, `torpor ps` lists them")
    if verdict.difference:
        where = f" at record {verdict.seq}" if verdict.seq else ""
        raise click.ClickException(f"{shortened(key.path)} differs{where} and is not exported: {verdict.difference}")
    return verdict
