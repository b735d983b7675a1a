"""Files looked into, one after the other, by a process of their own.

Above: the desk of uploads. Below: ``worker``, the program. It is started by the first file, ends by itself when none
came for a while, and is killed by one that takes too long.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import msgspec
import structlog
from anyio.streams.buffered import BufferedByteReceiveStream

from torpor.attachment_errors import AttachmentUnreadable
from torpor.attachments.looked import REFUSALS
from torpor.attachments.options import AttachmentOptions
from torpor.attachments.worker import Answer, Request
from torpor.errors import StoreFull, StoreUnavailable, Unavailable
from torpor.store.blobs import NO_SPACE

_PROGRAM: Final = """
import sys
sys.path[:] = sys.argv[1:]
from torpor.attachments.worker import main
main()
"""
"""Finds modules where the server does."""
_LINE_BYTES_MAX: Final = 65_536
_START_DEADLINE_S: Final = 10.0
_END_DEADLINE_S: Final = 5.0
_RETRY_S: Final = 5.0
_GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, anyio.IncompleteRead)
_log = structlog.get_logger()


class Inspector:
    """``async with inspector.running()``."""

    def __init__(self, options: AttachmentOptions) -> None:
        self._options = options
        self._turn = anyio.Lock()
        self._process: anyio.abc.Process | None = None
        self._answers: BufferedByteReceiveStream | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Inspector"]:
        """Its process ends with the block."""
        try:
            yield self
        finally:
            await self._end()

    async def look(self, path: Path, *, made: Path, name: str) -> Answer:
        """What the file is; ``made`` is written if something is to be sent in its place.

        Raises: AttachmentRefused: nothing that a model could be shown, or looking took too long or ended the process.
            Unavailable: no process could be started. StoreFull, StoreUnavailable: the machine is to blame.
        """
        request = msgspec.json.encode(Request(path=str(path), made=str(made), name=name)) + b"\n"
        async with self._turn:
            try:
                answer = await self._asked(request, name=name)
            except BaseException:
                await self._end()
                raise
        if answer.system_error:
            kind = StoreFull if answer.system_error in NO_SPACE else StoreUnavailable
            raise kind(f"{path} could not be looked into: {os.strerror(answer.system_error)}")
        if answer.code:
            raise REFUSALS[answer.code](answer.why)
        return answer

    async def _asked(self, request: bytes, *, name: str) -> Answer:
        with anyio.move_on_after(self._options.inspect_deadline_s):
            for is_again in (False, True):
                try:
                    return await self._exchanged(request)
                except _GONE as exc:
                    has_idled = await self._has_idled()
                    await self._end()
                    if is_again or not has_idled:
                        _log.warning("attachments.inspection_ended", why=type(exc).__name__)
                        break
            why = f"file {name!r} ended the process that looked into it, expected a whole one; save it again"
            raise AttachmentUnreadable(why)
        _log.warning("attachments.inspection_timed_out", deadline_s=self._options.inspect_deadline_s)
        took = f"took longer than {self._options.inspect_deadline_s:g} s to be looked into"
        raise AttachmentUnreadable(f"file {name!r} {took}; save it again, simpler or in parts")

    async def _exchanged(self, request: bytes) -> Answer:
        process = self._process or await self._started()
        assert process.stdin is not None
        assert self._answers is not None
        await process.stdin.send(request)
        line = await self._answers.receive_until(b"\n", _LINE_BYTES_MAX)
        return msgspec.json.decode(line, type=Answer)

    async def _started(self) -> anyio.abc.Process:
        command = [sys.executable, "-P", "-u", "-c", _PROGRAM, *sys.path]
        # A half started process would be nobody's, so cancellation waits for this.
        with anyio.fail_after(_START_DEADLINE_S, shield=True):
            try:
                # What a library prints of a damaged file is nothing for the server's log.
                process = await anyio.open_process(command, stderr=subprocess.DEVNULL, start_new_session=True)
            except OSError as exc:
                _log.warning("attachments.not_inspected", why=str(exc))
                raise Unavailable("the server cannot look into files now", retry_after_s=_RETRY_S) from exc
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._answers = process, BufferedByteReceiveStream(process.stdout)
        await process.stdin.send(msgspec.json.encode(self._options) + b"\n")
        return process

    async def _has_idled(self) -> bool:
        """Whether it ended by itself, and no file is to blame; waits for its end."""
        return self._process is not None and await self._process.wait() == 0

    async def _end(self) -> None:
        """Kill it and take note of its end. Shielded, and bounded."""
        process, self._process, self._answers = self._process, None, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.move_on_after(_END_DEADLINE_S, shield=True):
            await process.aclose()

    def __repr__(self) -> str:
        return f"<Inspector running={self._process is not None}>"
