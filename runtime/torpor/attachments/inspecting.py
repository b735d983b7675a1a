"""One process that looks into files, as its parent sees it.

Above: ``inspector``, which has some. Below: ``worker``, the program.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import anyio
import anyio.abc
import msgspec
import structlog
from anyio.streams.buffered import BufferedByteReceiveStream

from torpor.attachments.options import AttachmentOptions
from torpor.attachments.worker import Answer
from torpor.errors import Unavailable

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
RETRY_S: Final = 5.0
GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, anyio.IncompleteRead)
"""What is raised when it has ended."""
_log = structlog.get_logger()
CpuOf = Callable[[int], float | None]


def cpu_of_s(pid: int) -> float | None:
    """Processor time that a process has had so far, seconds; None where the system does not tell."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


class Inspecting:
    """Asked for one file at a time."""

    def __init__(self, process: anyio.abc.Process, *, cpu_of: CpuOf) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._requests = process.stdin
        self._answers = BufferedByteReceiveStream(process.stdout)
        self._cpu_of = cpu_of

    @classmethod
    async def started(cls, options: AttachmentOptions, *, cpu_of: CpuOf) -> Self:
        """Raises: Unavailable."""
        command = [sys.executable, "-P", "-u", "-c", _PROGRAM, *sys.path]
        # A half started process would be nobody's, so cancellation waits for this.
        with anyio.fail_after(_START_DEADLINE_S, shield=True):
            try:
                # What a library prints of a damaged file is nothing for the server's log.
                process = await anyio.open_process(command, stderr=subprocess.DEVNULL, start_new_session=True)
            except OSError as exc:
                _log.warning("attachments.not_inspected", why=str(exc))
                raise Unavailable("the server cannot look into files now", retry_after_s=RETRY_S) from exc
        new = cls(process, cpu_of=cpu_of)
        try:
            await new._requests.send(msgspec.json.encode(options) + b"\n")
        except BaseException:
            await new.end()
            raise
        return new

    async def answered(self, request: bytes) -> Answer:
        """Raises: one of ``GONE``."""
        await self._requests.send(request)
        line = await self._answers.receive_until(b"\n", _LINE_BYTES_MAX)
        return msgspec.json.decode(line, type=Answer)

    def cpu_s(self) -> float | None:
        """See ``cpu_of_s``."""
        return self._cpu_of(self._process.pid)

    def is_over(self) -> bool:
        """Whether it has ended, as far as is known."""
        return self._process.returncode is not None

    async def has_idled(self) -> bool:
        """Whether it ended by itself, and no file is to blame; waits for its end."""
        return await self._process.wait() == 0

    async def end(self) -> None:
        """Kill it and take note of its end. Shielded, and bounded. Once more, nothing."""
        with suppress(ProcessLookupError):
            self._process.kill()
        with anyio.move_on_after(_END_DEADLINE_S, shield=True):
            await self._process.aclose()

    def __repr__(self) -> str:
        return f"<Inspecting pid={self._process.pid}>"
