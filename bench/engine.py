"""An engine to measure: the real supervisor, actors, turn loop, bus and SQLite store around an instant model."""

import gc
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import structlog

from bench.work import SYSTEM_PROMPT, TURN, InstantModel, InstantTools, Shape, message
from torpor.actor.options import ActorOptions
from torpor.actor.parts import ActorParts
from torpor.bus.local import LocalBus
from torpor.clock import RandomIds, SystemClock
from torpor.conversation.budget import Profile
from torpor.conversation.steps import StepOptions
from torpor.model.contract import Model
from torpor.records.commands import Hibernate, SendMessage, Wake
from torpor.records.events import Delta, Progress
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord, TurnFinished
from torpor.store.blobs import MemoryBlobs
from torpor.store.contract import Store
from torpor.store.sqlite.engine import open_sqlite
from torpor.subagents.definition import Subagent
from torpor.subagents.options import SubagentOptions
from torpor.supervisor.options import SupervisorOptions
from torpor.supervisor.registry import Supervisor
from torpor.supervisor.spawn import Subagents
from torpor.toolhost.contract import Toolbox
from torpor.turn.agents import UNBOUND, Agent, Agents
from torpor.turn.definition import AgentDefinition
from torpor.turn.options import TurnOptions
from torpor.turn.places import FairPlaces

HIBERNATE_S: Final = 30.0
_MODEL_CALLS_MAX: Final = 10_000
_LIVE_MAX: Final = 100_000
_HOUR_S: Final = 3600.0
AWAKE: Final = SupervisorOptions(
    idle_timeout_s=_HOUR_S, pack_after_s=_HOUR_S, live_max=_LIVE_MAX, memory_share=0.0, thaws_max=_LIVE_MAX
)
"""Nobody goes to sleep unless asked to."""


class Talker:
    """A client of one conversation: says the same thing, and waits until the turn is finished."""

    __slots__ = ("_done", "_engine", "_said", "key")

    def __init__(self, key: ConversationKey, engine: "Engine") -> None:
        self.key = key
        self._engine = engine
        self._said = 0
        self._done = anyio.Event()
        engine.bus.subscribe(key, self)

    async def turn(self) -> None:
        """One whole turn, from the message to its last event."""
        await self.send()
        await self.finished()

    async def send(self) -> None:
        """Send a message and wait for its receipt."""
        self._said += 1
        self._done = anyio.Event()
        text = message(self.key.conversation, self._said, self._engine.shape)
        command = SendMessage(message_id=MessageId(f"m_{self._said}"), principal="ada", text=text)
        await self._engine.supervisor.deliver(self.key, command)

    async def finished(self) -> None:
        """Wait for the last event of the turn."""
        await self._done.wait()

    async def hibernate(self) -> None:
        await self._engine.supervisor.deliver(self.key, Hibernate(deadline_s=HIBERNATE_S))

    async def thaw(self) -> None:
        await self._engine.supervisor.deliver(self.key, Wake())

    def leave(self) -> None:
        """Stop listening."""
        self._engine.bus.unsubscribe(self.key, self)

    def on_records(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
        if isinstance(records[-1], TurnFinished):
            self._done.set()

    def on_delta(self, key: ConversationKey, delta: Delta) -> None: ...

    def on_standing(self, key: ConversationKey) -> None: ...

    def on_gone(self, key: ConversationKey) -> None: ...

    def on_progress(self, key: ConversationKey, progress: Progress) -> None: ...


class Engine:
    """What a benchmark holds in its hands."""

    def __init__(self, supervisor: Supervisor, *, store: Store, bus: LocalBus, shape: Shape) -> None:
        self.supervisor = supervisor
        self.store = store
        self.bus = bus
        self.shape = shape

    def talker(self, name: str) -> Talker:
        return Talker(ConversationKey("clinic", "ada", name), self)


@asynccontextmanager
async def running_engine(
    data: Path,
    *,
    shape: Shape = TURN,
    model: Model | None = None,
    options: SupervisorOptions = AWAKE,
    profile: Profile = UNBOUND,
    wrap_store: Callable[[Store], Store] = lambda store: store,
    toolbox: Toolbox | None = None,
    subagents: Mapping[str, Subagent] | None = None,
) -> AsyncIterator[Engine]:
    """An engine over the database in ``data``, with the options of a home but for those that a benchmark must set.

    Args: toolbox: instead of instant tools.  subagents: by name; a tool has to spawn them.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    definition = AgentDefinition(name="bench", system=SYSTEM_PROMPT, model={"kind": "instant"})
    agent = Agent(
        definition, model=model or InstantModel(shape), toolbox=toolbox or InstantTools(shape), profile=profile
    )
    bus = LocalBus()
    async with open_sqlite(data) as opened:
        store = wrap_store(opened)
        parts = ActorParts(
            store=store,
            bus=bus,
            clock=SystemClock(),
            ids=RandomIds(),
            agents=Agents((agent,)),
            places=FairPlaces(_MODEL_CALLS_MAX, monotonic_s=SystemClock().monotonic_s),
            steps=StepOptions(),
            turn=TurnOptions(model_calls_max=_MODEL_CALLS_MAX),
            actor=ActorOptions(),
            spawns=Subagents(subagents, blobs=MemoryBlobs(), options=SubagentOptions()).of if subagents else None,
        )
        async with Supervisor(parts, holder="bench", options=options).running() as supervisor:
            gc.collect()
            gc.freeze()  # as a server does once it has started
            yield Engine(supervisor, store=store, bus=bus, shape=shape)
