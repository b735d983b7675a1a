"""Standard input as lines, read without a thread, which would hold up the end of the process while it waits for one."""

import os
from collections.abc import AsyncGenerator
from typing import Final

import anyio

_CHUNK_BYTES: Final = 65_536


async def lines_of(descriptor: int) -> AsyncGenerator[str, None]:
    """Each line of ``descriptor`` without its end, until there are no more; the last one may lack its end.

    Bytes that are not UTF-8 become U+FFFD.
    """
    rest = b""
    while True:
        await readable(descriptor)
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _text(line)
    if rest:
        yield _text(rest)


async def readable(descriptor: int) -> None:
    """Return once reading from ``descriptor`` would not wait."""
    try:
        await anyio.wait_readable(descriptor)
    except PermissionError:
        await anyio.lowlevel.checkpoint()  # a file or /dev/null: reading never waits, and cannot be waited for


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode(errors="replace")
