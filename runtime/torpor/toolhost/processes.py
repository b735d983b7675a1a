"""A few worker processes for tools that compute, each started when first needed and killed when its call is given up.

Above: the toolbox, which sets deadlines and tells the model. Below: ``process_worker``, the program that they run. A
process has one call at a time. A call that is cancelled, or past its deadline, ends with its process and with what that
has started; the next call gets another one.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

import anyio
import anyio.abc
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from torpor.conversation.text import CleanText
from torpor.errors import ToolError, ToolFailed, ToolRefused
from torpor.toolhost.declare import Origin
from torpor.toolhost.process_frames import (
    FRAME_BYTES_MAX,
    LENGTH,
    Begun,
    Call,
    Denied,
    Failed,
    FromWorker,
    Module,
    NotBegun,
    Reported,
    Returned,
    Setup,
    framed,
)

_PROGRAM: Final = """
import sys
sys.path[:] = sys.argv[2:]
from torpor.toolhost.process_worker import main
main(int(sys.argv[1]))
"""
"""Finds modules where the server does."""
_START_DEADLINE_S: Final = 10.0
_END_DEADLINE_S: Final = 5.0
_LEAVE_DEADLINE_S: Final = 1.0
"""For the system to tell how a process ended that closed its pipes."""
_LOST: Final = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


class NotStarted(ToolError):
    """The call was never made."""


class ToolCrashed(ToolError):
    """The process ended in the middle of the call, which may or may not have taken effect."""

    code = "tool_crashed"


class ToolRaised(ToolFailed):
    """The tool's function raised something that it did not mean to."""

    def __init__(self, words: str, *, error: str, where: str) -> None:
        super().__init__(words)
        self.error = error
        self.where = where


class ProcessesStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """How the processes for tools stand."""

    limit: int
    busy: int
    idle: int
    waiting: int
    """Calls for which no process was free."""
    started: int
    """Since the server began."""
    killed: int
    """Because their call was given up."""
    crashed: int


class Listener(NamedTuple):
    """Who is told how a call goes, on the loop."""

    begun: Callable[[], None]
    heard: Callable[[str], None]


class Processes:
    """At most ``count``; all of them have ended when ``running`` has."""

    def __init__(self, count: int, *, idle_s: float, memory_bytes: int, progress_cap_chars: int) -> None:
        self._places = anyio.CapacityLimiter(count)
        self._idle_s = idle_s
        self._setup = Setup(memory_bytes=memory_bytes, progress_cap_chars=progress_cap_chars)
        self._idle: list[_Process] = []
        """The one that was used last at the end."""
        self._rested = anyio.Event()
        self._started = 0
        self._killed = 0
        self._crashed = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stop those that nobody used for a while, and all of them in the end."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._sweep, name="tools:processes")
                yield
                tasks.cancel_scope.cancel()
        finally:
            idle, self._idle = self._idle, []
            for process in idle:
                process.kill()  # all at once, before the end of each is waited for
            for process in idle:
                await process.end()

    async def run(self, call: Call, origin: Origin, *, listener: Listener) -> CleanText:
        """Make ``call`` in a process that is free, and return what the model will read.

        Cancellation: the process is killed; without ``listener.begun`` nothing was done.
        Raises: ToolError: what the tool raised.  NotStarted.  ToolCrashed.
        """
        encoded = _encoded(call)
        place = object()
        await self._places.acquire_on_behalf_of(place)
        try:
            while True:
                process, is_fresh = await self._taken(), False
                if process is None:
                    process, is_fresh = await self._fresh(), True
                try:
                    return await self._asked(process, call.tool, encoded, origin, listener=listener)
                except NotStarted:
                    if is_fresh or not process.has_ended:
                        raise
                    # Others may have ended it while it was idle, such as the system when memory ran out.
        finally:
            self._places.release_on_behalf_of(place)

    async def _asked(
        self, process: "_Process", tool: str, encoded: bytes, origin: Origin, *, listener: Listener
    ) -> CleanText:
        has_begun = is_kept = is_lost = False
        try:
            await process.send(encoded, origin)
            while True:
                frame = await process.receive()
                match frame:
                    case Begun():
                        has_begun = True
                        listener.begun()
                    case Reported():
                        listener.heard(frame.text)
                    case _:
                        is_kept = True
                        return _answer(frame, tool=tool)
        except (*_LOST, msgspec.DecodeError):
            is_lost = True
            self._crashed += 1
            how = await process.how_it_ended()
            if has_begun:
                raise ToolCrashed(f"tool {tool!r} ended with its process, {how}") from None
            raise NotStarted(f"tool {tool!r} was not started: its process ended first, {how}") from None
        finally:
            if is_kept:
                process.idle_since_s = anyio.current_time()
                self._idle.append(process)
                self._rested.set()
            else:
                self._killed += not is_lost
                await process.end()

    async def _taken(self) -> "_Process | None":
        while self._idle:
            process = self._idle.pop()
            if not process.has_ended:
                return process
            await process.end()
        return None

    async def _fresh(self) -> "_Process":
        self._started += 1
        return await _Process.started(self._setup)

    async def _sweep(self) -> None:
        while True:
            if not self._idle:
                self._rested = anyio.Event()
                await self._rested.wait()
                continue  # it may be in use again
            await anyio.sleep_until(min(process.idle_since_s for process in self._idle) + self._idle_s)
            due_s = anyio.current_time() - self._idle_s
            old = [process for process in self._idle if process.idle_since_s <= due_s]
            self._idle = [process for process in self._idle if process.idle_since_s > due_s]
            for process in old:
                await process.end()

    def statistics(self) -> ProcessesStatistics:
        return ProcessesStatistics(
            limit=int(self._places.total_tokens),
            busy=int(self._places.borrowed_tokens),
            idle=len(self._idle),
            waiting=self._places.statistics().tasks_waiting,
            started=self._started,
            killed=self._killed,
            crashed=self._crashed,
        )

    def __repr__(self) -> str:
        return f"<Processes busy={int(self._places.borrowed_tokens)} idle={len(self._idle)}>"


class _Process:
    """One worker, seen from the server."""

    def __init__(self, process: anyio.abc.Process, *, lifeline: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._calls = process.stdin
        self._answers = BufferedByteReceiveStream(process.stdout)
        self._lifeline = lifeline
        self._decoder = msgspec.json.Decoder(FromWorker)
        self._modules: set[str] = set()
        self._unsent = b""
        self.idle_since_s = 0.0

    @classmethod
    async def started(cls, setup: Setup) -> "_Process":
        """Begin the program; what it is told waits in the pipe until it is ready.

        Raises: NotStarted: the system has no room for another process.
        """
        theirs, ours = os.pipe()
        command = [sys.executable, "-P", "-u", "-c", _PROGRAM, str(theirs), *sys.path]
        try:
            # A half started process would be nobody's, so cancellation waits for this.
            with anyio.fail_after(_START_DEADLINE_S, shield=True):
                process = await anyio.open_process(command, stderr=None, start_new_session=True, pass_fds=(theirs,))
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

    async def send(self, encoded: bytes, origin: Origin) -> None:
        """A call, and what must be known before it."""
        path = str(origin.path)
        parts, self._unsent = [self._unsent], b""
        if path not in self._modules:
            self._modules.add(path)
            parts.append(framed(Module(path=path, source=origin.source)))
        await self._calls.send(b"".join((*parts, encoded)))

    async def receive(self) -> FromWorker:
        (length,) = LENGTH.unpack(await self._answers.receive_exactly(LENGTH.size))
        if length > FRAME_BYTES_MAX:
            raise anyio.BrokenResourceError
        return self._decoder.decode(await self._answers.receive_exactly(length))

    async def how_it_ended(self) -> str:
        """In words, when its pipes are closed; what it has started ends as well."""
        with anyio.move_on_after(_LEAVE_DEADLINE_S, shield=True):
            status = await self._process.wait()
            self._kill_group()
            if status >= 0:
                return f"exit status {status}"
            number = -status
            name = next((known.name for known in signal.Signals if known == number), str(number))
            return f"killed by {name}" + (", perhaps since memory ran out" if number == signal.SIGKILL else "")
        return "what it said could not be understood"

    def kill(self) -> None:
        """It, and what it has started."""
        if not self.has_ended:  # long after its end, the number may be another's
            self._kill_group()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill it and take note of its end, so that it leaves no trace in the system. Shielded, and bounded."""
        self.kill()
        with anyio.move_on_after(_END_DEADLINE_S, shield=True):
            await self._process.aclose()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def _encoded(call: Call) -> bytes:
    try:
        return framed(call)
    except ValueError as exc:
        raise NotStarted(f"tool {call.tool!r} was not started: {exc}") from exc


def _answer(frame: FromWorker, *, tool: str) -> CleanText:
    match frame:
        case Returned():
            return CleanText(frame.text, frame.replaced)
        case Denied():
            raise ToolRefused(frame.text)
        case NotBegun():
            raise NotStarted(frame.text)
        case Failed() if frame.error:
            raise ToolRaised(f"tool {tool!r} failed: {frame.text}", error=frame.error, where=frame.where)
        case _:
            raise ToolFailed(getattr(frame, "text", ""))
