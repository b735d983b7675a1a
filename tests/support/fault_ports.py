"""The ports of a server with a trap before and behind everything that acts on the outside."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import anyio
import msgspec

from tests.support.fault_points import JOB_WRITES, Trap, name_of
from tests.support.side_model import GRANDCHILD, purpose_of
from torpor.bus.contract import Bus
from torpor.model.contract import Model, ModelReply, ModelRequest, ReplySink
from torpor.records.events import Delta
from torpor.records.ids import CHILD_MARK, ConversationKey
from torpor.records.journal import JournalRecord
from torpor.store.contract import Blobs, Snapshot, Store, Ticket
from torpor.store.job_contract import JobStore
from torpor.toolhost.contract import Toolbox, ToolContext, ToolResult

STALL_S: Final = 0.03
"""How long the rest of a process goes on while its disk stalls."""
_GRANDCHILD_DEPTH: Final = 2
_RESEARCH: Final = b'"type":"research"'
"""In every bundle of this home, and in no result of its tools."""


class _Around:
    """Hands on whatever a subclass does not take in its own hands."""

    def __init__(self, port: Any, trap: Trap) -> None:
        self._port = port
        self._trap = trap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


class _Store(_Around):
    def append(self, key: ConversationKey, *, records: tuple[JournalRecord, ...], **rest: Any) -> Ticket:
        names = sorted({name_of(record) for record in records})
        if key.conversation.count(CHILD_MARK) == _GRANDCHILD_DEPTH:
            names += [f"{GRANDCHILD}/{name}" for name in names]
        passed = [self._trap.is_here(f"append.lost:{name}") for name in names]
        if any(passed):
            asyncio.get_running_loop().call_later(STALL_S, self._trap.hold)
            return _NeverDurable()
        ticket = self._port.append(key, records=records, **rest)
        self._trap.reach("append.handed")
        return _Ticket(ticket, tuple(f"append.after:{name}" for name in names), self._trap)

    async def put_snapshot(self, key: ConversationKey, *, fence: int, snapshot: Snapshot) -> None:
        self._trap.reach("snapshot.before")
        await self._port.put_snapshot(key, fence=fence, snapshot=snapshot)
        self._trap.reach("snapshot.after")


class _NeverDurable:
    """Of a batch that is on no disk and will be on none."""

    async def wait(self) -> None:
        await anyio.sleep_forever()


class _Ticket:
    """Passes its points once, whoever hears first that the batch is durable."""

    def __init__(self, ticket: Ticket, points: tuple[str, ...], trap: Trap) -> None:
        self._ticket = ticket
        self._points = points
        self._trap = trap

    async def wait(self) -> None:
        await self._ticket.wait()
        points, self._points = self._points, ()
        for point in points:
            self._trap.reach(point)


class _Blobs(_Around):
    async def put(self, key: ConversationKey, data: bytes) -> str:
        what = "bundle" if _RESEARCH in data else "blob"
        self._trap.reach(f"{what}.before")
        handle: str = await self._port.put(key, data)
        self._trap.reach(f"{what}.after")
        return handle


class _Bus(_Around):
    def publish_delta(self, key: ConversationKey, delta: Delta) -> None:
        self._trap.reach("delta.flush")
        self._port.publish_delta(key, delta)


class _Model(_Around):
    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        purpose = purpose_of(request)
        self._trap.reach(f"{purpose}.start")
        reply: ModelReply = await self._port.reply(request, sink)
        self._trap.reach(f"{purpose}.end")
        return reply


class _Toolbox(_Around):
    async def call(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult:
        self._trap.reach(f"tool.start:{name}")
        result: ToolResult = await self._port.call(name, arguments, context)
        self._trap.reach(f"tool.end:{name}")
        return result

    async def probe(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult | None:
        self._trap.reach("probe.start")
        result: ToolResult | None = await self._port.probe(name, arguments, context)
        self._trap.reach("probe.end")
        return result


class _Jobs(_Around):
    def __getattr__(self, name: str) -> Any:
        return self._trapped(name) if name in JOB_WRITES else super().__getattr__(name)

    def _trapped(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def write(*place: Any, **rest: Any) -> Any:
            self._trap.reach(f"{name}.before")
            answer = await getattr(self._port, name)(*place, **rest)
            self._trap.reach(f"{name}.after")
            return answer

        return write


def trapped_store(store: Store, trap: Trap) -> Store:
    return cast("Store", _Store(store, trap))


def trapped_blobs(blobs: Blobs, trap: Trap) -> Blobs:
    return cast("Blobs", _Blobs(blobs, trap))


def trapped_bus(bus: Bus, trap: Trap) -> Bus:
    return cast("Bus", _Bus(bus, trap))


def trapped_model(model: Model, trap: Trap) -> Model:
    return cast("Model", _Model(model, trap))


def trapped_toolbox(toolbox: Toolbox, trap: Trap) -> Toolbox:
    return cast("Toolbox", _Toolbox(toolbox, trap))


def trapped_jobs(jobs: JobStore, trap: Trap) -> JobStore:
    return cast("JobStore", _Jobs(jobs, trap))
