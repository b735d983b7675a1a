"""Files of this machine on their way to a message."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import anyio
import click

from torpor.client.failures import RequestRefused
from torpor.records.attachments import MEDIA_TYPE, Attachment, told_of


class Uploads(Protocol):
    """What is needed of a client."""

    async def upload(self, data: bytes, *, name: str) -> dict[str, Any]: ...


async def attached(client: Uploads, file: Path, *, say: Callable[[str], None]) -> str:
    """What a message names the file by, once the server has it; what it made of it is said.

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
    return str(row["attachment"])


def _told(row: dict[str, Any]) -> str:
    media_type = row["media_type"] if MEDIA_TYPE.fullmatch(row["media_type"]) else "a file"
    found = Attachment(
        blob="", media_type=media_type, size_bytes=0, tokens=0, name=row.get("name", ""), pages=row.get("pages", 0)
    )
    note = f"; {row['note']}" if row.get("note") else ""
    return f"{told_of(found)}, about {row['tokens']} tokens{note}"
