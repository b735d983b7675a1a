"""Row U1: what it takes to have a picture at a server, beside sending its bytes to a bare ``websockets`` server.

``python -m bench.attachments [--json]``. The picture goes over a real socket in pieces, each of which is answered; then
its digest is compared, a process of its own looks into it, and it is stored. The bare server answers each piece and
takes the digest. Both take turns; medians count, of the time and of the CPU of this process, which is both ends.
"""

import hashlib
import io
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import msgspec
from PIL import Image
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from bench.command import run
from bench.report import Row
from torpor.app import running
from torpor.client.files import PIECE_BYTES
from torpor.client.torpor_client import TorporClient
from torpor.operations.logs import LogOptions, configure_logs
from torpor.settings import read_settings

SIDE_PX: Final = 1_000
"""Of a square of noise, which is as large as a picture of that size comes: three megabytes."""
UPLOADS: Final = 15
"""That are timed, of each kind."""
WARM: Final = 3
AGENT: Final = 'name = "clerk"\nsystem = "You answer."\n[model]\nkind = "scripted"\nrehearsal = "any"\n'
REHEARSAL: Final = '[[rule]]\nmatch = ""\n\n[[rule.step]]\nsay = "Yes."\n'


class Taken(msgspec.Struct, frozen=True):
    """Medians of one kind of upload."""

    wall_ms: float
    cpu_ms: float


def picture(number: int) -> bytes:
    """A PNG of its own."""
    noise = random.Random(number).randbytes(3 * SIDE_PX * SIDE_PX)
    file = io.BytesIO()
    Image.frombytes("RGB", (SIDE_PX, SIDE_PX), noise).save(file, "PNG", compress_level=1)
    return file.getvalue()


async def bare(connection: ServerConnection) -> None:
    """Take pieces, and the digest once a text says that it was all."""
    digest = hashlib.sha256()
    async for piece in connection:
        if isinstance(piece, bytes):
            digest.update(piece)
            await connection.send("taken")
        else:
            await connection.send(digest.hexdigest())
            digest = hashlib.sha256()


async def compared(home: Path) -> tuple[Taken, Taken]:
    """A bare upload and one to an engine."""
    settings = read_settings(home, {})
    async with (
        running(settings, data=home / "data", host="127.0.0.1", port=0) as server,
        TorporClient(server.url, server.development_token) as client,
        serve(bare, "127.0.0.1", 0, compression=None) as plain,
        connect(f"ws://127.0.0.1:{plain.sockets[0].getsockname()[1]}", compression=None) as socket,
    ):

        async def barely(data: bytes) -> None:
            for begin in range(0, len(data), PIECE_BYTES):
                await socket.send(data[begin : begin + PIECE_BYTES])
                await socket.recv()
            await socket.send("all")
            await socket.recv()

        async def wholly(data: bytes) -> None:
            await client.upload(data, name="noise.png")

        kinds: tuple[Callable[[bytes], Awaitable[None]], ...] = (barely, wholly)
        taken: tuple[list[Taken], ...] = ([], [])
        for number in range(WARM + UPLOADS):
            data = picture(number)
            for upload, into in zip(kinds, taken, strict=True):
                wall_s, cpu_s = time.perf_counter(), time.process_time()
                await upload(data)
                wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
                into.append(Taken(wall_s * 1e3, cpu_s * 1e3))
    floor, torpor = (
        Taken(
            statistics.median(each.wall_ms for each in into[WARM:]),
            statistics.median(each.cpu_ms for each in into[WARM:]),
        )
        for into in taken
    )
    return floor, torpor


def rows() -> Iterable[Row]:
    configure_logs(LogOptions(level="error"))
    with TemporaryDirectory(prefix="torpor-bench-") as folder:
        home = Path(folder)
        for name, text in (("agents/clerk", AGENT), ("rehearsals/any", REHEARSAL)):
            path = home / "config" / f"{name}.toml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        floor, torpor = anyio.run(compared, home)
    for what, ours, plain in (
        ("a picture of 3 MB, sent, looked into and stored", torpor.wall_ms, floor.wall_ms),
        ("the same, CPU of this process", torpor.cpu_ms, floor.cpu_ms),
    ):
        yield Row(id="U1", what=what, unit="ms", torpor=ours, base=plain, base_name="a bare websocket")


if __name__ == "__main__":
    sys.exit(run("bench.attachments", rows=rows, probes={}))
