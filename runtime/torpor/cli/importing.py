"""``torpor import``: a conversation that ``torpor export`` wrote, into a data folder that no server holds."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import anyio
import click

from torpor.cli.folders import data_folder, data_option, home_option
from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.stored_blobs import stored_blobs
from torpor.clock import RandomIds, SystemClock
from torpor.gateway.auth import is_owner_name
from torpor.local_files import make_data_folder
from torpor.operations.counted import counted
from torpor.operations.export import Appends, BadExport, ExportHeader, Imported, Importing, read_header
from torpor.records.ids import CONVERSATION_ID, DEFAULT_TENANT, ConversationKey
from torpor.records.journal import JournalRecord
from torpor.store.blobs import MemoryBlobs
from torpor.store.contract import Blobs
from torpor.store.sqlite.importing import AlreadyThere, open_to_import

_PARTS: Final = 3
_SHOWN_CHARS: Final = 300
"""Of a name that is none."""


@click.command(short_help="Read a conversation from a file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--as", "name", metavar="OWNER/ID", help="Under this name, [tenant/]owner/conversation; its own by default."
)
@click.option("--check", is_flag=True, help="Verify the file and import nothing; needs no data folder.")
@home_option
@data_option
@json_option
def command(*, file: Path, name: str | None, check: bool, home: Path, data: Path | None, as_json: bool) -> None:
    """Import the conversation in FILE, whole or not at all, into a data folder that no server holds.

    Every request is rebuilt and compared first. A conversation that is there is never touched.
    """
    if check:
        _check(file, name, as_json=as_json)
        return
    if data is None and not home.is_dir():
        raise click.ClickException(f"home {home} does not exist, name an agent home or a data folder")
    folder = data_folder(home, data)
    with file.open("rb") as lines:
        try:
            header = read_header(lines.readline())
            key = _key(header, name)
            make_data_folder(folder)
            imported = anyio.run(_imported, lines, header, key, folder, stored_blobs(home, folder))
        except BadExport as exc:
            raise click.ClickException(f"{file} is not imported: {exc}") from exc
        except AlreadyThere as exc:
            remedy = "name another one with --as"
            raise click.ClickException(f"conversation {shortened(str(exc))!r} is there already, {remedy}") from exc
    _tell(imported, "imported", as_json=as_json)


def _tell(imported: Imported, did: str, *, as_json: bool) -> None:
    if as_json:
        print_json(imported)
    else:
        what = f"{counted(imported.records, 'record')}, {counted(imported.requests, 'request')} rebuilt"
        what += f", {counted(imported.blobs, 'blob')}" if imported.blobs else ""
        click.echo(f"{did} {shortened(imported.path)}: {what}")


def _check(file: Path, name: str | None, *, as_json: bool) -> None:
    """As an import would, into nowhere."""
    with file.open("rb") as lines:
        try:
            header = read_header(lines.readline())
            importing = _importing(header, _Nowhere(), _key(header, name), blobs=MemoryBlobs())
            for line in lines:
                importing.line(line)
            checked = importing.end()
        except BadExport as exc:
            raise click.ClickException(f"{file} could not be imported: {exc}") from exc
    _tell(checked, f"{file} is whole, nothing was imported of", as_json=as_json)


class _Nowhere:
    def append(self, records: Sequence[JournalRecord], **rest: object) -> None:
        """Keeps nothing."""


def _importing(header: ExportHeader, importer: Appends, key: ConversationKey, *, blobs: Blobs) -> Importing:
    now_us = SystemClock().now_us()
    return Importing(header, importer, key=key, blobs=blobs, now_us=now_us, new_id=RandomIds().new_id)


def _key(header: ExportHeader, name: str | None) -> ConversationKey:
    """Raises: BadExport, click.BadParameter: it is no name of a conversation."""
    parts = (name or f"{header.tenant}/{header.owner}/{header.conversation}").split("/")
    if len(parts) == _PARTS - 1:
        parts = [DEFAULT_TENANT, *parts]
    is_name = len(parts) == _PARTS and all(map(is_owner_name, parts[:2])) and CONVERSATION_ID.fullmatch(parts[-1])
    if not is_name:
        expected = "expected [tenant/]owner/conversation, the last of letters, digits, '_' or '-'"
        if name is None:
            raise BadExport(f"its header names {'/'.join(parts)[:_SHOWN_CHARS]!r}, {expected}")
        raise click.BadParameter(f"{name!r} is no conversation, {expected}", param_hint="--as")
    return ConversationKey(*parts)


async def _imported(
    lines: BinaryIO, header: ExportHeader, key: ConversationKey, folder: Path, blobs: Blobs
) -> Imported:  # anyio.run gives positions only
    with open_to_import(folder, key) as importer:
        importing = _importing(header, importer, key, blobs=blobs)
        begin = lines.tell()
        for line in lines:
            importing.line(line)
        came = importing.end()
        lines.seek(begin)
        for line in lines:
            await importing.keep_blob(line)
        return came
