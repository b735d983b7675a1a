"""``torpor verify``: whether what is stored makes the requests that it says were sent."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import click

from torpor.cli.folders import blobs_folder, data_folder, data_option, home_option
from torpor.cli.output import json_option, print_json
from torpor.cli.paths import resolved, shortened
from torpor.operations.audit import Verdict, verdict_on
from torpor.records.ids import ConversationKey
from torpor.store.blobs import LocalBlobs
from torpor.store.sqlite.auditing import AuditReader, open_to_audit


@click.command(short_help="Rebuild every request from the journal and compare.")
@click.argument("name", metavar="[ID]", required=False)
@click.option("--all", "is_all", is_flag=True, help="Every conversation of the data folder.")
@home_option
@data_option
@json_option
def command(*, name: str | None, is_all: bool, home: Path, data: Path | None, as_json: bool) -> int:
    """Verify the conversation ID, or with --all every one, and exit with 1 if anything differs.

    Reads the data folder alone, whether or not a server runs on it. ID is [tenant/]owner/conversation, short where
    that is unique.
    """
    if (name is None) is not is_all:
        raise click.UsageError("Name one conversation, or give --all.")
    folder = data_folder(home, data)
    with open_to_audit(folder) as reader:
        known = list(reader.keys())
        meant = known if name is None else [named(name, known)]
        differs = anyio.run(_verified, reader, folder, meant, as_json)
        return max(differs, _faults(reader, as_json=as_json)) if is_all else differs


def named(name: str, known: Sequence[ConversationKey | str]) -> ConversationKey:
    """The one of ``known`` that ``name`` stands for. Raises: click.ClickException: there is none, or several."""
    keys = {key.path: key for key in known if isinstance(key, ConversationKey)}
    return keys[resolved(name, keys)]


def _faults(reader: AuditReader, *, as_json: bool) -> int:
    """The exit code."""
    code = 0
    for fault in reader.faults():
        code = 1
        if as_json:
            print_json({"path": "", "difference": fault})
        else:
            click.echo(f"DIFFERS: {fault}")
    return code


async def _verified(
    reader: AuditReader, folder: Path, meant: Sequence[ConversationKey | str], as_json: bool
) -> int:  # anyio.run gives positions only
    """The exit code."""
    blobs = LocalBlobs(blobs_folder(folder), in_threads=False)
    differing = 0
    for number, key in enumerate(meant, start=1):
        verdict = await verdict_on(reader, key, blobs=blobs)
        differing += bool(verdict.difference)
        if as_json:
            print_json(verdict)
        else:
            place = f"{number}/{len(meant)}  " if len(meant) > 1 else ""
            click.echo("\n".join(place + line for line in _in_words(verdict)))
    if not as_json and len(meant) != 1:
        click.echo(f"{len(meant)} conversations verified, {differing or 'none'} of them differ")
    return 1 if differing else 0


def _in_words(verdict: Verdict) -> Iterator[str]:
    path = shortened(verdict.path)
    if not verdict.difference:
        blobs = f", {len(verdict.blobs)} blobs" if verdict.blobs else ""
        yield f"{path}  verified: {verdict.records} records, {verdict.requests} requests rebuilt{blobs}"
    elif verdict.seq:
        yield f"{path}  DIFFERS at record {verdict.seq}: {verdict.difference}"
    else:
        yield f"{path}  DIFFERS: {verdict.difference}"
