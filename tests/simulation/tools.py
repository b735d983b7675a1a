"""The tools of a run, what they did to the world, and the toolbox of one life.

The toolbox is the real one; the tools in it take their time, fail by luck and note in a ledger of their own what they
did. ``file`` and ``book`` keep the idempotency key; ``file`` and ``ship`` can be asked what became of a call. A probe
that answers *never* makes sure of it: another life that still means to act finds its call called off.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final

import anyio
import msgspec

from tests.simulation.faults import Fault, Sight
from tests.simulation.life import Life
from tests.simulation.world import World
from tests.support.oracle_evidence import ToolStep
from torpor.errors import StoreFull, ToolRefused
from torpor.records.ids import ConversationKey
from torpor.store.contract import Blobs
from torpor.store.kept import Kept
from torpor.toolhost.contract import Toolbox, ToolContext, ToolResult, ToolSpec
from torpor.toolhost.declare import NeverHappened, Tool, tool
from torpor.toolhost.options import RESULT_CAP_MIN_BYTES, ToolOptions
from torpor.toolhost.registry import ToolRegistry

DEADLINE_S = 3.0


class SimulatedCrash(RuntimeError):
    """A part does what no contract allows."""


class Ledger:
    """What the tools did, across all lives; the world outside."""

    def __init__(self, world: World, *, holders: Callable[[ConversationKey], tuple[str, int]]) -> None:
        self.world = world
        self.done: dict[str, str] = {}
        """What a key's effect returned."""
        self.entitled: dict[str, str] = {}
        """The one life that may still act under a key, once it was told that nothing had happened."""
        self.blobs = world.blobs
        self.kept: defaultdict[str, Kept] = defaultdict(Kept)
        """What a process knows ends with it: by the name of a life."""
        self._holders = holders

    def note(
        self, life: Life, context: ToolContext, name: str, what: str, *, outcome: str = "", text: str = ""
    ) -> None:
        world = self.world
        world.evidence.tool_steps.append(
            ToolStep(
                moment=world.moment(),
                life=life.name,
                conversation=context.conversation,
                turn=context.turn,
                call_id=context.call_id,
                tool=name,
                key=context.idempotency_key,
                what=what,
                is_holder=self._holders(context.key)[0] == life.holder and not life.is_dead,
                outcome=outcome,
                text=text,
            )
        )
        world.note(life.name, f"tool {name} {what}", call=context.call_id, outcome=outcome)


class SimBlobs:
    """Implements ``store.contract.ErasableBlobs``."""

    def __init__(self, ledger: Ledger, life: Life) -> None:
        self._ledger = ledger
        self._life = life

    async def put(self, key: ConversationKey, data: bytes) -> str:
        if self._life.world.roll(Fault.BLOB_REFUSED):
            raise StoreFull("no room for a blob")
        self._life.reach("blob.put")
        await self._life.gate()
        handle = hashlib.sha256(data).hexdigest()
        self._ledger.kept[self._life.name].keep(key, handle)
        self._ledger.blobs[key.owner, handle] = data
        return handle

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        await self._life.gate()
        data = self._ledger.blobs.get((key.owner, handle))
        return None if data is None else data[offset : None if size is None else offset + size]

    async def size_bytes(self, key: ConversationKey, handle: str) -> int | None:
        data = await self.get(key, handle)
        return None if data is None else len(data)

    async def remove(self, key: ConversationKey, handles: Sequence[str]) -> None:
        await self._life.gate()
        for handle in handles:
            if not self._ledger.kept[self._life.name].is_kept(key, handle):
                self._ledger.blobs.pop((key.owner, handle), None)
        self._life.reach("blob.removed")
        await self._life.gate()

    def deciding(self) -> AbstractContextManager[None]:
        return self._ledger.kept[self._life.name].deciding()

    def keep(self, key: ConversationKey, handles: Sequence[str]) -> None:
        for handle in handles:
            self._ledger.kept[self._life.name].keep(key, handle)

    def let_go(self, key: ConversationKey) -> None:
        self._ledger.kept[self._life.name].let_go(key)

    async def stored(self, key: ConversationKey) -> tuple[str, ...]:
        await self._life.gate()
        return tuple(handle for owner, handle in self._ledger.blobs if owner == key.owner)


class Act:
    """One run of one tool."""

    def __init__(self, name: str, context: ToolContext) -> None:
        self._name = name
        self._context = context
        self._life, self._ledger = _ACTING.get()

    def note(self, what: str, text: str) -> None:
        """A line in the ledger."""
        self._ledger.note(self._life, self._context, self._name, what, text=text)

    async def perform(self, *, writes: bool, keeps_key: bool = False) -> str:
        life, world, ledger, key = self._life, self._life.world, self._ledger, self._context.idempotency_key
        ledger.note(life, self._context, self._name, "started")
        self._context.report("at work")
        await self._take_time()
        if world.roll(Fault.TOOL_RAISED):
            raise ValueError("simulated")
        if world.roll(Fault.TOOL_REFUSED):
            raise ToolRefused("simulated refusal")
        if world.rng.random() < 0.5:
            await self._be_late()
        text = f"{self._name} did it"
        if keeps_key and key in ledger.done:
            world.saw(Sight.TOOL_RETRIED_BY_KEY)
            text = ledger.done[key]
        elif writes:
            await self._effect(text)
        await self._take_time()
        await self._be_late()
        return text + " at length" * 300 if world.roll(Fault.TOOL_LONG_RESULT) else text

    async def probe(self) -> str | NeverHappened | None:
        """What became of the call, as far as the outside world knows."""
        life, ledger, key = self._life, self._ledger, self._context.idempotency_key
        ledger.note(life, self._context, self._name, "probed")
        await anyio.sleep(life.world.rng.choice((0.0, 0.05)))
        await life.gate()
        if life.world.roll(Fault.PROBE_UNKNOWN):
            return None
        if (text := ledger.done.get(key)) is not None:
            life.world.saw(Sight.PROBE_KNOWN)
            return text
        life.world.saw(Sight.PROBE_NEVER)
        ledger.entitled[key] = life.name
        return NeverHappened()

    async def _effect(self, text: str) -> None:
        life, ledger, key = self._life, self._ledger, self._context.idempotency_key
        life.reach("tool.effect")
        await life.gate()
        if ledger.entitled.get(key, life.name) != life.name:
            raise ToolRefused("called off")
        ledger.done[key] = text
        ledger.note(life, self._context, self._name, "effect")
        life.reach("tool.effected")
        await life.gate()

    async def _take_time(self) -> None:
        world = self._life.world
        seconds = world.rng.choice((0.0, 0.0, 0.01, 0.1))
        await anyio.sleep(1.5 if world.roll(Fault.TOOL_SLOW) else seconds)
        await self._life.gate()

    async def _be_late(self) -> None:
        if self._life.world.roll(Fault.TOOL_TIMED_OUT):
            await anyio.sleep(DEADLINE_S + 1)
            await self._life.gate()


_ACTING: Final = ContextVar[tuple[Life, Ledger]]("acting")
"""On behalf of which life a tool runs; its toolbox says so."""


@tool(effect="read", deadline_s=DEADLINE_S)
async def look(what: str, context: ToolContext) -> str:
    """Look something up."""
    return await Act("look", context).perform(writes=False)


@tool(deadline_s=DEADLINE_S)
async def pay(what: str, context: ToolContext) -> str:
    """Pay for something."""
    return await Act("pay", context).perform(writes=True)


@tool(deadline_s=DEADLINE_S, accepts_key=True)
async def book(what: str, context: ToolContext) -> str:
    """Book something."""
    return await Act("book", context).perform(writes=True, keeps_key=True)


@tool(deadline_s=DEADLINE_S)
async def ship(what: str, context: ToolContext) -> str:
    """Ship something."""
    return await Act("ship", context).perform(writes=True)


@tool(deadline_s=DEADLINE_S, accepts_key=True)
async def file(what: str, context: ToolContext) -> str:
    """File something."""
    return await Act("file", context).perform(writes=True, keeps_key=True)


@ship.probe
async def became_of_ship(context: ToolContext) -> str | NeverHappened | None:
    return await Act("ship", context).probe()


@file.probe
async def became_of_file(context: ToolContext) -> str | NeverHappened | None:
    return await Act("file", context).probe()


TOOLS: Final[tuple[Tool[..., Any], ...]] = (look, pay, book, ship, file)


class SimToolbox:
    """Implements ``toolhost.contract.Toolbox`` around the real one."""

    def __init__(self, toolbox: Toolbox, life: Life, ledger: Ledger) -> None:
        self._toolbox = toolbox
        self._life = life
        self._ledger = ledger

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._toolbox.specs()

    def spec(self, name: str) -> ToolSpec | None:
        return self._toolbox.spec(name)

    async def call(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult:
        await self._life.gate()
        _ACTING.set((self._life, self._ledger))
        world = self._life.world
        is_crashing = world.roll(Fault.TOOL_CRASHED)
        if is_crashing and world.rng.random() < 0.5:
            raise SimulatedCrash("the toolbox gave up before")
        result = await self._toolbox.call(name, arguments, context)
        if self._life.is_dead:
            await anyio.sleep_forever()
        await self._life.gate()
        if is_crashing:
            raise SimulatedCrash("the toolbox gave up behind")
        self._ledger.note(self._life, context, name, "returned", outcome=result.outcome.value, text=result.text)
        return result

    async def probe(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult | None:
        await self._life.gate()
        _ACTING.set((self._life, self._ledger))
        answer = await self._toolbox.probe(name, arguments, context)
        if self._life.is_dead:
            await anyio.sleep_forever()
        await self._life.gate()
        return answer


def toolbox_of(
    life: Life, ledger: Ledger, *, tools: Iterable[Tool[..., Any]] = TOOLS, more: Iterable[Tool[..., Any]] = ()
) -> SimToolbox:
    """A toolbox of one life; its tools are asynchronous, so no thread is ever started."""
    blobs: Blobs = SimBlobs(ledger, life)
    options = ToolOptions(deadline_s=DEADLINE_S, result_cap_bytes=RESULT_CAP_MIN_BYTES, blob_deadline_s=DEADLINE_S)
    return SimToolbox(ToolRegistry(tools, blobs=blobs, options=options).toolbox(more=more), life, ledger)
