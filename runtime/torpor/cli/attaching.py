"""Files of this machine on their way to a message."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import anyio
import click

from torpor.cli.paths import shortened
from torpor.client.failures import RequestRefused
from torpor.operations.counted import counted
from torpor.records.attachments import MEDIA_TYPE, Attachment, told_of
from torpor.records.frames import Welcome


class Uploads(Protocol):
    """What is needed of a client."""

    async def upload(self, data: bytes, *, name: str) -> dict[str, Any]: ...


def why_not(welcome: Welcome, conversation: str, *, files: int) -> str:
    """What is in the way of a message to ``conversation`` with so many files; empty where nothing is."""
    if not files:
        return ""
    *owners, _ = conversation.split("/")
    if (welcome.tenant, welcome.owner) != tuple([welcome.tenant, *(owners or [welcome.owner])][-2:]):
        return f"{shortened(conversation)} is another's, and files can be sent to your own conversations only"
    if welcome.message_attachments_max and files > welcome.message_attachments_max:
        most = welcome.message_attachments_max
        return f"the message has {files} files, expected at most {most}; send them in several messages"
    return ""


async def attached(client: Uploads, file: Path, *, say: Callable[[str], None]) -> dict[str, Any]:
    """What the server keeps of the file, with what a message names it by as ``attachment``; it is said as well.

    Raises: click.ClickException: the file cannot be read, or no model could be shown it.
    """
    try:
        data = await anyio.Path(file).read_bytes()
    except OSError as exc:
        raise click.ClickException(f"cannot read {file}: {(exc.strerror or str(exc)).lower()}") from exc
    if not data:
        raise click.ClickException(f"cannot attach {file}: it has no bytes")
    try:
        row = await client.upload(data, name=file.name)
    except RequestRefused as exc:
        raise click.ClickException(f"cannot attach {file}: {exc}") from exc
    say(f"attached {_told(row)}")
    return row


def _told(row: dict[str, Any]) -> str:
    media_type = row["media_type"] if MEDIA_TYPE.fullmatch(row["media_type"]) else "a file"
    found = Attachment(
        blob="", media_type=media_type, size_bytes=0, tokens=0, name=row.get("name", ""), pages=row.get("pages", 0)
    )
    note = f"; {row['note']}" if row.get("note") else ""
    return f"{told_of(found)}, about {counted(row['tokens'], 'token')}{note}"
