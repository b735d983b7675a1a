"""Where tools run: on the event loop, in a thread, or in a process of their own.

Above: toolboxes, which share one set of places. Below: the threads, the processes, and the list of what runs now, which
the watchdog reads.
"""

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from types import CodeType
from typing import Any

import anyio.from_thread
import anyio.lowlevel
import msgspec

from torpor.conversation.text import CleanText, clean
from torpor.toolhost.calls import Calls
from torpor.toolhost.contract import AT_ONCE, Onset, ToolContext
from torpor.toolhost.declare import Runs, Tool
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.own_tasks import OwnTasks
from torpor.toolhost.process_frames import Call
from torpor.toolhost.processes import Listener, Processes, ProcessesStatistics
from torpor.toolhost.results import rendered
from torpor.toolhost.signature import Routine
from torpor.toolhost.workers import Workers, WorkersStatistics


class PlacesStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """How the places for tools stand."""

    threads: WorkersStatistics
    processes: ProcessesStatistics


class Places:
    """All of them."""

    def __init__(self, options: ToolOptions, *, calls: Calls | None) -> None:
        self._calls = calls
        self.progress_cap_chars = options.progress_cap_chars
        self.workers = Workers(options.worker_threads, per_tool=options.worker_threads_per_tool)
        self.own_tasks = OwnTasks()
        self.processes = Processes(
            options.worker_processes,
            idle_s=options.process_idle_s,
            memory_bytes=options.process_memory_bytes,
            progress_cap_chars=options.progress_cap_chars,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look after the processes and what runs on the loop; in the end all of that ends, and idle threads."""
        try:
            async with self.own_tasks.running(), self.processes.running():
                yield
        finally:
            self.close()

    def close(self) -> None:
        """Let idle threads end; calls under way go on to their end."""
        self.workers.close()

    def noted(self, tool: str, function: Callable[..., Any], *, is_on_loop: bool) -> AbstractContextManager[None]:
        """While the block runs, so does ``tool``, for whoever asks."""
        if self._calls is None:
            return nullcontext()
        return self._calls.noted(tool, _code_of(function), is_on_loop=is_on_loop)

    def statistics(self) -> PlacesStatistics:
        return PlacesStatistics(threads=self.workers.statistics(), processes=self.processes.statistics())

    def __repr__(self) -> str:
        return f"{self.workers!r} {self.processes!r}"


class Run:
    """One run of a tool or its probe: where it takes place, and what it may still say."""

    __slots__ = ("_is_own", "_onset", "_places", "_routine", "_tool", "has_begun", "is_over")

    def __init__(self, tool: Tool[..., Any], routine: Routine, *, places: Places, is_own: bool = False) -> None:
        """Args: is_own: on the loop it has a task of its own, since nobody knows whether it heeds a cancellation."""
        self._is_own = is_own
        self._tool = tool
        self._routine = routine
        self._places = places
        self._onset: Onset = AT_ONCE
        """Told when a call waits for a place, and asked when it has one."""
        self.has_begun = False
        self.is_over = False

    async def performed(self, arguments: msgspec.Raw, context: ToolContext) -> CleanText:
        """What the model will read of a call with these arguments.

        Raises: ToolInputInvalid.  Whatever the tool does.
        """
        given = self._tool.parameters.decode(arguments)
        if self._tool.runs is Runs.PROCESS:
            self._wait(context.onset)
            return await self._in_process(arguments, context)
        if self._tool.runs is Runs.THREAD and not self._places.workers.has_room(self._tool.name):
            self._wait(context.onset)
        return rendered(await self.perform(given, context))

    async def perform(self, given: dict[str, Any], context: ToolContext) -> Any:
        """What the routine returns, run in this process."""
        routine, name = self._routine, self._tool.name
        if routine.context_name:
            given[routine.context_name] = msgspec.structs.replace(
                context,
                report=self._heard(context.report),
                collector=context.collector if routine.is_async else None,  # nobody could wait for what it is given
            )
        if routine.is_async:
            self.has_begun = True

            async def go() -> Any:
                with self._places.noted(name, routine.function, is_on_loop=True):
                    return await routine.function(**given)

            return await (self._places.own_tasks.run(go, tool=name) if self._is_own else go())

        def work() -> Any:
            with self._places.noted(name, routine.function, is_on_loop=False):
                return routine.function(**given)

        return await self._places.workers.run(work, tool=name, begun=self._begin_in_thread)

    async def _in_process(self, arguments: msgspec.Raw, context: ToolContext) -> CleanText:
        origin = self._tool.origin
        assert origin is not None, "the registry takes no other"
        call = Call(
            tool=self._tool.name,
            path=str(origin.path),
            arguments=arguments,
            tenant=context.tenant,
            owner=context.owner,
            conversation=context.conversation,
            principal=context.principal,
            turn=context.turn,
            call_id=context.call_id,
            idempotency_key=context.idempotency_key,
        )
        listener = Listener(
            starts=self._onset.begin, begun=self._begin, heard=functools.partial(self._hear, context.report)
        )
        return await self._places.processes.run(call, origin, listener=listener)

    def _wait(self, onset: Onset) -> None:
        self._onset = onset
        onset.wait()

    def _begin_in_thread(self) -> None:
        self._onset.begin()
        self._begin()

    def _begin(self) -> None:
        self.has_begun = True

    def _hear(self, report: Callable[[str], None], text: str) -> None:
        """Silent once the run is over."""
        if not self.is_over:
            report(clean(str(text)).text[: self._places.progress_cap_chars])

    def _heard(self, report: Callable[[str], None]) -> Callable[[str], None]:
        """``report`` for text of any kind, from where the routine runs."""
        hear = functools.partial(self._hear, report)
        if self._routine.is_async:
            return hear
        token = anyio.lowlevel.current_token()
        return lambda text: anyio.from_thread.run_sync(hear, text, token=token)


def _code_of(function: Callable[..., Any]) -> CodeType | None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code if isinstance(code, CodeType) else None
