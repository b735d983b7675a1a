"""A file of a conversation as people name it: the digest of its bytes, which may be cut short where it is unique."""

import re
from typing import Final

import click

from torpor.cli.paths import shortened
from torpor.client.torpor_client import TorporClient
from torpor.records.attachments import HANDLE

_BEGIN: Final = re.compile(r"[0-9a-f]{1,63}")


async def blob_named(client: TorporClient, path: str, told: str) -> str:
    """The one that the messages of the conversation name; a whole one is left to the server.

    Raises: click.ClickException: there is none that begins so, or there are several.
    """
    told = told.lower()
    if HANDLE.fullmatch(told):
        return told
    name = shortened(path)
    lister = f"`torpor send --json` tells them of what it sends, and an operator sees all by `torpor inspect {name}`"
    if not _BEGIN.fullmatch(told):
        raise click.ClickException(f"{told[:80]!r} is not the name of a file, expected hexadecimal digits; {lister}")
    found = {blob for blob in await _blobs(client, path) if blob.startswith(told)}
    if not found:
        raise click.ClickException(f"no message of {name} has a file {told!r}, {lister}")
    if len(found) > 1:
        raise click.ClickException(f"file {told!r} of {name} may be any of {len(found)}, name more of it")
    return found.pop()


async def _blobs(client: TorporClient, path: str) -> set[str]:
    found: set[str] = set()
    before = 0
    while rows := await client.history(path, before=before):
        found.update(each["blob"] for row in rows for each in row.get("attachments", ()))
        if (before := rows[0]["event"]) <= 1:
            break
    return found
