"""A few worker processes for tools that compute, each started when first needed and killed when its call is given up.

Above: the toolbox, which sets deadlines and tells the model. Below: one ``process`` each, which has one call at a time.
A call that is cancelled, or past its deadline, ends with its process and with what that has started; the next call gets
another one.
"""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import anyio
import anyio.abc
import msgspec
import structlog

from torpor.conversation.text import CleanText
from torpor.errors import ToolError, ToolFailed, ToolRefused
from torpor.toolhost.declare import Origin
from torpor.toolhost.process import NotStarted, Process, Stray
from torpor.toolhost.process_frames import (
    Begun,
    Call,
    Denied,
    Failed,
    FromWorker,
    NotBegun,
    Reported,
    Returned,
    Setup,
    framed,
)

_LOST: Final = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)
_log = structlog.get_logger()


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

    starts: Callable[[], None]
    """A process is there, and is told next; a ``ToolError`` of it ends the call, which has done nothing."""
    begun: Callable[[], None]
    heard: Callable[[str], None]


class Processes:
    """At most ``count``; all of them have ended when ``running`` has."""

    def __init__(self, count: int, *, idle_s: float, memory_bytes: int, progress_cap_chars: int) -> None:
        self._places = anyio.CapacityLimiter(count)
        self._idle_s = idle_s
        self._setup = Setup(memory_bytes=memory_bytes, progress_cap_chars=progress_cap_chars)
        self._idle: list[Process] = []
        """The one that was used last at the end."""
        self._tasks: anyio.abc.TaskGroup | None = None
        self._rested = anyio.Event()
        self._numbers = itertools.count(1)
        self._started = 0
        self._killed = 0
        self._crashed = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stop those that nobody used for a while, and all of them in the end."""
        try:
            async with anyio.create_task_group() as self._tasks:
                tasks = self._tasks
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
        call = msgspec.structs.replace(call, number=next(self._numbers))
        encoded = _encoded(call)
        place = object()
        await self._places.acquire_on_behalf_of(place)
        try:
            while True:
                process, is_fresh = await self._taken(), False
                if process is None:
                    process, is_fresh = await self._fresh(), True
                try:
                    listener.starts()
                except ToolError:
                    self._rest(process)
                    raise
                try:
                    return await self._asked(process, call, encoded, origin, listener=listener)
                except NotStarted:
                    if is_fresh or not process.has_ended:
                        raise
                    # Others may have ended it while it was idle, such as the system when memory ran out.
        finally:
            self._places.release_on_behalf_of(place)

    async def _asked(
        self, process: Process, call: Call, encoded: bytes, origin: Origin, *, listener: Listener
    ) -> CleanText:
        tool = call.tool
        has_begun = is_kept = is_lost = False
        try:
            await process.send(encoded, origin, tool=tool)
            while True:
                frame = await process.receive(number=call.number)
                match frame:
                    case Begun():
                        has_begun = True
                        listener.begun()
                    case Reported():
                        listener.heard(frame.text)
                    case _:
                        is_kept = True
                        return _answer(frame, tool=tool)
        except (*_LOST, msgspec.DecodeError, Stray) as exc:
            is_lost = True
            self._crashed += 1
            if isinstance(exc, Stray):
                _log.error("tool.stray_frame", tool=tool, why="its process said something of another call")
                how = "which said something of another call"
            else:
                how = await process.how_it_ended()
            if has_begun:
                raise ToolCrashed(f"tool {tool!r} ended with its process, {how}") from None
            raise NotStarted(f"tool {tool!r} was not started: its process ended first, {how}") from None
        finally:
            if is_kept:
                self._rest(process)
            else:
                self._killed += not is_lost
                await process.end()

    def _rest(self, process: Process) -> None:
        process.idle_since_s = anyio.current_time()
        self._idle.append(process)
        self._rested.set()

    async def _taken(self) -> Process | None:
        while self._idle:
            process = self._idle.pop()
            if not process.has_ended:
                return process
            await process.end()
        return None

    async def _fresh(self) -> Process:
        assert self._tasks is not None, "the processes are not running"
        self._started += 1
        process = await Process.started(self._setup)
        self._tasks.start_soon(process.tell, name="tools:printed")
        return process

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
