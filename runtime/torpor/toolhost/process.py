"""One worker process, seen from the server: started, told, heard, and ended with whatever it started.

Above: ``processes``, which decides who gets it. Below: ``process_worker``, the program that runs in it.
"""

import os
import signal
import sys
from contextlib import suppress
from typing import Final

import anyio
import anyio.abc
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from torpor.errors import ToolError
from torpor.toolhost.declare import Origin
from torpor.toolhost.descendants import kill_descendants
from torpor.toolhost.process_frames import FRAME_BYTES_MAX, LENGTH, FromWorker, Module, Setup, framed
from torpor.toolhost.process_output import tell

_PROGRAM: Final = """
import sys
sys.path[:] = sys.argv[2:]
from torpor.toolhost.process_worker import main
main(int(sys.argv[1]))
"""
"""Finds modules where the server does."""
_START_DEADLINE_S: Final = 10.0
_END_DEADLINE_S: Final = 5.0
_LOOK_S: Final = 1.0
"""Between two looks whether a process that says nothing is there."""
_LAST_WORDS_S: Final = 0.5
"""For what it printed before its end, where something that it started holds the pipe open."""
_LEAVE_DEADLINE_S: Final = 1.0
"""For the system to tell how a process ended that closed its pipes."""


class NotStarted(ToolError):
    """The call was never made."""


class Stray(Exception):
    """A frame of another call than the one that runs: nothing this process says can be trusted any more."""


class Process:
    """Made by ``started``; has one call at a time."""

    def __init__(self, process: anyio.abc.Process, *, lifeline: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._calls = process.stdin
        self._answers = BufferedByteReceiveStream(process.stdout)
        self._printed = process.stderr
        self._told = anyio.Event()
        self._tool = ""
        self._lifeline = lifeline
        self._decoder = msgspec.json.Decoder(FromWorker)
        self._modules: set[str] = set()
        self._unsent = b""
        self._length: int | None = None
        """Of the frame whose head was read."""
        self.idle_since_s = 0.0

    @classmethod
    async def started(cls, setup: Setup) -> "Process":
        """Begin the program; what it is told waits in the pipe until it is ready.

        Raises: NotStarted: the system has no room for another process.
        """
        try:
            theirs, ours = os.pipe()
        except OSError as exc:
            raise NotStarted(f"no process could be started for it: {exc.strerror or exc}") from exc
        command = [sys.executable, "-P", "-u", "-c", _PROGRAM, str(theirs), *sys.path]
        try:
            # A half started process would be nobody's, so cancellation waits for this.
            with anyio.fail_after(_START_DEADLINE_S, shield=True):
                process = await anyio.open_process(command, start_new_session=True, pass_fds=(theirs,))
        except OSError as exc:
            os.close(ours)
            raise NotStarted(f"no process could be started for it: {exc.strerror or exc}") from exc
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        worker = cls(process, lifeline=ours)
        worker._unsent = framed(setup)
        return worker

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def tell(self) -> None:
        """Hand on what it prints, to its end; to be run beside everything else."""
        try:
            await tell(self._printed, tool=lambda: self._tool)
        finally:
            self._told.set()

    async def send(self, encoded: bytes, origin: Origin, *, tool: str) -> None:
        """A call, and what must be known before it."""
        self._tool = tool
        path = str(origin.path)
        parts, self._unsent = [self._unsent], b""
        if path not in self._modules:
            self._modules.add(path)
            parts.append(framed(Module(path=path, source=origin.source)))
        await self._calls.send(b"".join((*parts, encoded)))

    async def receive(self, *, number: int) -> FromWorker:
        """The next frame of this call.

        Raises: Stray.  anyio.EndOfStream, and the like: the process has ended, also where what it started holds the
            pipe open.
        """
        has_ended = False
        while True:
            with anyio.move_on_after(_LOOK_S):
                frame = await self._read()
                if frame.call != number:
                    raise Stray
                return frame
            if has_ended:
                raise anyio.EndOfStream
            has_ended = self.has_ended  # what it said before is read first

    async def _read(self) -> FromWorker:
        """Cancelled in between, the next one goes on where this one was."""
        if self._length is None:
            (self._length,) = LENGTH.unpack(await self._answers.receive_exactly(LENGTH.size))
            if self._length > FRAME_BYTES_MAX:
                raise anyio.BrokenResourceError
        body = await self._answers.receive_exactly(self._length)
        self._length = None
        return self._decoder.decode(body)

    async def how_it_ended(self) -> str:
        """In words, when its pipes are closed; what it has started ends as well."""
        if not self.has_ended:
            with anyio.move_on_after(_LEAVE_DEADLINE_S, shield=True):
                await self._process.wait()
        if (status := self._process.returncode) is None:
            return "what it said could not be understood"
        self._kill_group()
        if status >= 0:
            return f"exit status {status}"
        number = -status
        name = next((known.name for known in signal.Signals if known == number), str(number))
        return f"killed by {name}" + (", perhaps since memory ran out" if number == signal.SIGKILL else "")

    def kill(self) -> None:
        """It, and what it has started."""
        if not self.has_ended:  # long after its end, the number may be another's
            kill_descendants(self._process.pid)
            self._kill_group()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill it and take note of its end, so that it leaves no trace in the system. Shielded, and bounded."""
        self.kill()
        with anyio.move_on_after(_LAST_WORDS_S, shield=True):
            await self._told.wait()
        with anyio.move_on_after(_END_DEADLINE_S, shield=True):
            await self._process.aclose()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
