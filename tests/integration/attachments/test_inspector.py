"""The process that looks into files: what it finds, and what becomes of one that hangs, dies or eats memory."""

import io
import os
import signal
import struct
import sys
import zlib
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import anyio
import msgspec
import pytest
from PIL import Image

from tests.support import files_people_send as files
from torpor.attachment_errors import AttachmentEncrypted, AttachmentRefused, AttachmentUnreadable
from torpor.attachments.inspecting import cpu_of_s
from torpor.attachments.inspector import Inspector
from torpor.attachments.options import AttachmentOptions
from torpor.errors import Retry, StoreFull, StoreUnavailable, Unavailable

OPTIONS = AttachmentOptions()
DEADLINE_S = 60


@pytest.fixture
async def inspector() -> AsyncIterator[Inspector]:
    async with Inspector(OPTIONS).running() as running:
        yield running


async def look(inspector: Inspector, data: bytes, *, folder: Path) -> bytes:
    """What is sent of it."""
    path, made = folder / "file", folder / "made"
    path.write_bytes(data)
    with anyio.fail_after(DEADLINE_S):
        answer = await inspector.look(path, made=made, name="file")
    return made.read_bytes() if answer.is_made else data


async def test_it_tells_what_files_are_one_after_the_other(inspector: Inspector, tmp_path: Path) -> None:
    assert await look(inspector, b"text", folder=tmp_path) == b"text"
    with pytest.raises(AttachmentEncrypted, match="'file'"):
        await look(inspector, files.pdf(password="secret"), folder=tmp_path)
    made = await look(inspector, files.picture(3_000, 10), folder=tmp_path)
    assert Image.open(io.BytesIO(made)).size == (OPTIONS.picture_side_max_px, 5)


def bomb() -> bytes:
    """Few bytes that are a picture of many."""
    width, height = 8_000, 8_000
    told = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = b"IDAT" + zlib.compress(bytes((3 * width + 1) * height), 1)
    chunks = (told, packed, b"IEND")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_one_that_hurts_the_process_hurts_no_other(tmp_path: Path) -> None:
    options = msgspec.structs.replace(OPTIONS, picture_pixels_max=10**9, inspect_memory_bytes=350_000_000)
    async with Inspector(options).running() as inspector:
        with pytest.raises(AttachmentRefused):
            await look(inspector, bomb(), folder=tmp_path)
        assert await look(inspector, b"text", folder=tmp_path) == b"text"


async def test_one_that_takes_too_long_is_refused(tmp_path: Path) -> None:
    used_s = count(step=1.0)  # of the processor, which a file that takes too long has nearly all the time
    async with Inspector(OPTIONS, cpu_of=lambda pid: next(used_s)).running() as inspector:
        assert await look(inspector, b"text", folder=tmp_path) == b"text"
        inspector._options = msgspec.structs.replace(OPTIONS, inspect_deadline_s=0.0)  # for a process that is there
        with pytest.raises(AttachmentUnreadable, match="longer than 0 s"):
            await look(inspector, b"text", folder=tmp_path)


async def test_one_that_got_no_time_may_be_tried_again(tmp_path: Path) -> None:
    options = msgspec.structs.replace(OPTIONS, inspect_deadline_s=0.01)
    async with Inspector(options, cpu_of=lambda pid: 1.0).running() as inspector:
        with pytest.raises(Unavailable, match="file 'file' could not be looked into in time, retry in") as late:
            await look(inspector, b"text", folder=tmp_path)
    assert late.value.retry is Retry.SAFE
    assert cpu_of_s(os.getpid()) is not None or sys.platform != "linux"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_process_that_was_killed_while_it_had_no_file_is_no_fault_of_the_next(tmp_path: Path) -> None:
    pids: list[int] = []

    def noted(pid: int) -> float:
        pids.append(pid)
        return 0.0

    async with Inspector(OPTIONS, cpu_of=noted).running() as inspector:
        assert await look(inspector, b"text", folder=tmp_path) == b"text"
        os.kill(pids[0], signal.SIGKILL)
        with anyio.fail_after(DEADLINE_S):
            while not inspector._idle[0].is_over():  # noqa: ASYNC110 - nobody tells of a process that nobody asks
                await anyio.sleep(0.01)
        assert await look(inspector, b"text", folder=tmp_path) == b"text"
    assert len(set(pids)) == 2


async def test_a_machine_that_cannot_write_is_to_blame_and_not_the_file(inspector: Inspector, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(files.picture(3_000, 10))
    with anyio.fail_after(DEADLINE_S), pytest.raises(StoreFull, match="No space left"):
        await inspector.look(tmp_path / "file", made=Path("/dev/full"), name="file")
    with anyio.fail_after(DEADLINE_S), pytest.raises(StoreUnavailable, match="No such file"):
        await inspector.look(tmp_path / "none", made=tmp_path / "made", name="none")


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_process_that_ended_for_want_of_files_is_started_again(tmp_path: Path) -> None:
    options = msgspec.structs.replace(OPTIONS, inspect_idle_s=0.001)
    async with Inspector(options).running() as inspector:
        for _ in range(2):
            assert await look(inspector, b"text", folder=tmp_path) == b"text"
