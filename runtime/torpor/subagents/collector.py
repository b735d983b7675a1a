"""A channel from the tools of one sub-agent to its findings, past the model.

Above: whoever runs the sub-agent, which hands a sending end to each call and drains beside it. Below: the tools, which
know ``toolhost.contract.FindingSink``. Selections travel in the same channel, so that each is judged by everything that
was found before it.

    with Collector(capacity=64, findings_max=256, selected_max=8) as collector:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            ...  # tools write into collector.sink, or into clones of it that are closed when their call ends
            findings = await collector.finish(deadline_s=5)
"""

import reprlib
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from torpor.errors import ToolFailed, ToolRefused
from torpor.subagents.findings import Findings, fitted
from torpor.toolhost.contract import Finding, Selection


class _Select:
    """A selection on its way, and what became of it once it is judged."""

    def __init__(self, ids: tuple[str, ...]) -> None:
        self.ids = ids
        self.outcome: Selection | None = None
        self.judged = anyio.Event()


class Sink:
    """A sending end; implements ``toolhost.contract.FindingSink``."""

    def __init__(self, stream: MemoryObjectSendStream[Finding | _Select]) -> None:
        self._stream = stream

    async def found(self, finding: Finding) -> None:
        """As the contract says. Cancellation: the finding is handed over or not, never half."""
        await self._send(fitted(finding))

    async def select(self, ids: Sequence[str]) -> Selection:
        """As the contract says. Cancellation: the selection may be made all the same."""
        asked = _Select(_ids_in(ids))
        await self._send(asked)
        await asked.judged.wait()
        assert asked.outcome is not None, "who judges a selection says what became of it"
        return asked.outcome

    def clone(self) -> "Sink":
        """Another end of the same channel, which stays open until both are closed. Raises: ToolRefused: this one is."""
        try:
            return Sink(self._stream.clone())
        except anyio.ClosedResourceError:
            raise _closed() from None

    def close(self) -> None:
        """Again is nothing."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _send(self, item: Finding | _Select) -> None:
        try:
            await self._stream.send(item)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise _closed() from None


class Inlet:
    """What a tool may do with a sending end: all but close it; implements ``toolhost.contract.FindingSink``."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    async def found(self, finding: Finding) -> None:
        await self._sink.found(finding)

    async def select(self, ids: Sequence[str]) -> Selection:
        return await self._sink.select(ids)


class Collector:
    """One for a sub-agent; whoever makes it enters it, drains it in a task, and finishes it."""

    def __init__(self, *, capacity: int, findings_max: int, selected_max: int) -> None:
        """Args: capacity: findings on their way; who has one more waits.  The others: as ``Findings`` takes them."""
        self._capacity = capacity
        send, self._receive = anyio.create_memory_object_stream[Finding | _Select](capacity)
        self.sink = Sink(send)
        """The first sending end, which ``finish`` closes."""
        self.findings = Findings(findings_max=findings_max, selected_max=selected_max)
        """Those that have arrived."""
        self._ended = anyio.Event()

    async def drain(self) -> None:
        """Take what comes until the last sending end is closed, or the collector is."""
        try:
            async for item in self._receive:
                self._take(item)
        except anyio.ClosedResourceError:
            pass
        finally:
            self._ended.set()

    async def finish(self, *, deadline_s: float) -> Findings:
        """Everything that was handed over, once the last sending end is closed.

        One that is still open after ``deadline_s`` is not waited for: what it hands over later is refused.
        """
        self.sink.close()
        with anyio.move_on_after(deadline_s):
            await self._ended.wait()
        self.close()
        return self.findings

    def close(self) -> None:
        """Take what is on its way, and refuse what comes later; never waits, and again is nothing."""
        self.sink.close()
        while True:
            try:
                self._take(self._receive.receive_nowait())
            except (anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
                break
        self._receive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, item: Finding | _Select) -> None:
        if isinstance(item, _Select):
            item.outcome = self.findings.select(item.ids)
            item.judged.set()
        else:
            self.findings.add(item)

    def __repr__(self) -> str:
        waiting = self._receive.statistics().current_buffer_used
        return f"<Collector waiting={waiting}/{self._capacity} {self.findings!r}>"


def _ids_in(ids: object) -> tuple[str, ...]:
    """Raises: ToolFailed: a tool selects something else, which who judges it could not take."""
    if isinstance(ids, Iterable) and not isinstance(ids, str):
        asked = tuple(ids)
        if all(isinstance(id_, str) for id_ in asked):
            return asked
    raise ToolFailed(f"a tool selects {reprlib.repr(ids)}, expected a list of ids")


def _closed() -> ToolRefused:
    return ToolRefused("nothing is collected any more, since the sub-agent has ended")
