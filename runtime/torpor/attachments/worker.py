"""The program that looks into files: a process of its own, so that no file can hurt the server.

It reads a request a line from its input, writes an answer a line, and ends when nothing was asked for a while or the
server is gone. What it may use of memory is bounded; how long it may take is bounded by who asks, who kills it.
"""

import errno
import os
import resource
import select
import sys
from pathlib import Path

import msgspec

from torpor.attachment_errors import AttachmentRefused, AttachmentTooLarge
from torpor.attachments.ingest import looked_into
from torpor.attachments.options import AttachmentOptions


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Look into the file at ``path``; what is to be sent in its place is written to ``made``."""

    path: str
    made: str
    name: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What it is, or why it is refused."""

    code: str = ""
    """Of the refusal; empty for none."""
    why: str = ""
    media_type: str = ""
    tokens: int = 0
    pages: int = 0
    note: str = ""
    is_made: bool = False
    """Whether there is something in its place."""
    system_error: int = 0
    """Of the machine, for which the file is not to blame: it cannot be read, or nothing be written in its place."""


def answered(request: Request, options: AttachmentOptions) -> Answer:
    """Raises: whatever a library raises of a file that nobody foresaw."""
    try:
        data = Path(request.path).read_bytes()
    except OSError as exc:
        return Answer(system_error=exc.errno or errno.EIO)
    try:
        looked = looked_into(data, name=request.name, options=options)
    except AttachmentRefused as exc:
        return Answer(code=exc.code, why=str(exc))
    except MemoryError:
        why = f"file {request.name!r} unpacks to more than can be looked into; make it smaller"
        return Answer(code=AttachmentTooLarge.code, why=why)
    try:
        if looked.data is not None:
            Path(request.made).write_bytes(looked.data)
    except OSError as exc:
        return Answer(system_error=exc.errno or errno.EIO)
    return Answer(
        media_type=looked.media_type,
        tokens=looked.tokens,
        pages=looked.pages,
        note=looked.note,
        is_made=looked.data is not None,
    )


def main() -> None:
    """The first line is the options."""
    os.umask(0o077)
    lines = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - nothing may be read ahead of select
    options = msgspec.json.decode(lines.readline(), type=AttachmentOptions)
    resource.setrlimit(resource.RLIMIT_AS, (options.inspect_memory_bytes, options.inspect_memory_bytes))
    decoder = msgspec.json.Decoder(Request)
    while line := lines.readline():
        sys.stdout.buffer.write(msgspec.json.encode(answered(decoder.decode(line), options)) + b"\n")
        sys.stdout.buffer.flush()
        if not select.select([lines], [], [], options.inspect_idle_s)[0]:
            return
