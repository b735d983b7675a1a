"""An engine of real parts over doubles: ``async with running_engine(…) as engine``.

Supervisor, actors, turn loop, bus and in-memory store are the real ones; model, tools, clock and ids are the test's.
Leaving is abrupt unless ``stop_deadline_s`` says otherwise; what lasts is ``engine.store.data``, or ``image()`` of it
as a power cut leaves it, from which another engine goes on.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
from structlog.testing import capture_logs

from tests.support.doubles import CountingIds, FakeTool, FakeToolbox, Ledger, ManualClock, Play, PlayedModel, reads
from tests.support.probed_store import ProbedStore
from torpor.actor.loop import Actor
from torpor.actor.mailbox import PendingReply
from torpor.actor.options import ActorOptions
from torpor.actor.parts import ActorParts
from torpor.bus.local import LocalBus
from torpor.clock import Clock, IdSource
from torpor.conversation.budget import Profile
from torpor.conversation.fold import fold
from torpor.conversation.graphemes import open_tail
from torpor.conversation.retry import RetryOptions
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import StepOptions
from torpor.conversation.summary import CompactionOptions
from torpor.errors import Unavailable
from torpor.model.contract import Model
from torpor.records.commands import CancelTurn, Hibernate, Receipt, SendMessage, Wake
from torpor.records.events import Delta, Progress
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord
from torpor.records.terms import Offer, WhenBusy
from torpor.store.blobs import MemoryBlobs
from torpor.store.memory_data import MemoryData
from torpor.subagents.definition import Subagent
from torpor.subagents.options import SubagentOptions
from torpor.supervisor.directory import StoredDirectory
from torpor.supervisor.forks import StoredForks
from torpor.supervisor.lives import Lives
from torpor.supervisor.memory import Memory
from torpor.supervisor.options import SupervisorOptions
from torpor.supervisor.registry import Supervisor
from torpor.supervisor.spawn import Subagents
from torpor.toolhost.contract import Elsewhere
from torpor.turn.agents import UNBOUND, Agent, Agents
from torpor.turn.contract import UNOBSERVED, Observer
from torpor.turn.definition import AgentDefinition
from torpor.turn.fold_history import Summariser
from torpor.turn.live_context import LiveModel
from torpor.turn.options import TurnOptions
from torpor.turn.places import FairPlaces
from torpor.turn.prepare import Surroundings

KEY = ConversationKey("acme", "ann", "c_1")
DEADLINE_S = 30.0
"""For every wait of a test; long, since it ends only tests that would hang."""
PLAYED: Mapping[str, Any] = {"kind": "played"}
ONCE = RetryOptions(retries_max=0)
AT_ONCE = RetryOptions(retries_max=2, base_s=0.0)
QUICK = SupervisorOptions(sweep_s=0.01, restart_backoff_s=0.0, stop_deadline_s=0.0)

FORK_RECORDS_MAX = 1_000
SMALL_WINDOW_TOKENS = 8_000
"""Of the model that folds."""

_Kind = TypeVar("_Kind", bound=JournalRecord)


class Recorder:
    """Implements ``bus.contract.Subscriber``: keeps what it hears and notes what it heard too early."""

    def __init__(self, store: ProbedStore) -> None:
        self._store = store
        self._changed = anyio.Event()
        self.records: list[JournalRecord] = []
        self.deltas: list[Delta] = []
        self.progress: list[Progress] = []
        self.is_gone = False
        self.standings = 0
        """Quarantines and releases."""
        self.early: list[object] = []
        """What was heard before the record behind it was durable."""

    def on_records(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
        head = self._store.data.of(key).head
        self.early.extend(record for record in records if record.seq > head.seq)
        self.records.extend(records)
        self._tell()

    def on_delta(self, key: ConversationKey, delta: Delta) -> None:
        if delta.call not in self._store.core.requested:
            self.early.append(delta)
        self.deltas.append(delta)
        self._tell()

    def on_standing(self, key: ConversationKey) -> None:
        self.standings += 1
        self._tell()

    def on_gone(self, key: ConversationKey) -> None:
        self.is_gone = True
        self._tell()

    def on_progress(self, key: ConversationKey, progress: Progress) -> None:
        self.progress.append(progress)
        self._tell()

    def of(self, kind: type[_Kind]) -> list[_Kind]:
        return [record for record in self.records if isinstance(record, kind)]

    async def until(self, kind: type[_Kind], *, count: int = 1) -> _Kind:
        """Wait for the ``count``-th record of this kind and return it."""
        with anyio.fail_after(DEADLINE_S):
            while len(self.of(kind)) < count:
                await self._changed.wait()
        return self.of(kind)[count - 1]

    async def until_text(self, text: str) -> None:
        """Wait until the deltas of one call say ``text``, or all of it that can be shown while more may come."""
        shown = {text, text[: open_tail(text)]}
        with anyio.fail_after(DEADLINE_S):
            while shown.isdisjoint(self.said().values()):
                await self._changed.wait()

    def said(self) -> dict[str, str]:
        """What the deltas add up to, by call."""
        said: dict[str, str] = {}
        for delta in self.deltas:
            before = said.get(delta.call, "")
            assert delta.offset == len(before), f"delta at {delta.offset} follows {len(before)} characters"
            said[delta.call] = before + delta.text
        return said

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Engine:
    """What a test holds in its hands."""

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        parts: ActorParts,
        store: ProbedStore,
        bus: LocalBus,
        clock: Clock,
        model: PlayedModel,
        toolbox: FakeToolbox,
        blobs: MemoryBlobs,
    ) -> None:
        self.supervisor = supervisor
        self.parts = parts
        self.store = store
        self.bus = bus
        self.clock = clock
        self.model = model
        self.toolbox = toolbox
        self.ledger = toolbox.ledger
        self.blobs = blobs
        self.directory = StoredDirectory(
            clock=clock,
            served=supervisor,
            store=store,
            blobs=self.blobs,
            bus=bus,
            cancel_deadline_s=DEADLINE_S,
            observer=parts.observer,
        )
        self.forks = StoredForks(
            served=supervisor,
            store=store,
            bus=bus,
            clock=clock,
            new_id=parts.ids.new_id,
            creations=parts.creations,
            records_max=FORK_RECORDS_MAX,
            retry_after_s=0.0,
        )
        self.recorders: list[Recorder] = []
        self._sent = sum(len(held.receipts) for held in store.data.conversations.values())

    def watch(self, key: ConversationKey = KEY) -> Recorder:
        """Record what this conversation publishes from now on."""
        recorder = Recorder(self.store)
        self.bus.subscribe(key, recorder)
        self.recorders.append(recorder)
        return recorder

    @property
    def lives(self) -> Lives:
        """What lives there, from within."""
        return self.supervisor._lives

    def living(self) -> list[ConversationKey]:
        """Every conversation with an actor."""
        return [entry.actor.key for entry in self.lives.entries()]

    def actor(self, key: ConversationKey) -> Actor:
        """Of a conversation that lives."""
        entry = self.lives.get(key)
        assert entry is not None, f"{key.path} does not live"
        return entry.actor

    def post(
        self,
        text: str,
        *,
        key: ConversationKey = KEY,
        message_id: str = "",
        when_busy: WhenBusy = WhenBusy.QUEUE,
        agent: str = "",
        resume: Offer | None = None,
        lookback: int = 0,
    ) -> PendingReply:
        """Put a message into the mailbox."""
        if not message_id:
            self._sent += 1
            message_id = f"m_{self._sent}"
        command = SendMessage(
            message_id=MessageId(message_id),
            principal=key.owner,
            text=text,
            when_busy=when_busy,
            agent=agent,
            resume=resume,
            lookback=lookback,
        )
        return self.supervisor.post(key, command)

    async def send(
        self,
        text: str,
        *,
        key: ConversationKey = KEY,
        message_id: str = "",
        when_busy: WhenBusy = WhenBusy.QUEUE,
        agent: str = "",
    ) -> Receipt:
        """Send a message and wait until it is accepted."""
        return await receipt_of(self.post(text, key=key, message_id=message_id, when_busy=when_busy, agent=agent))

    async def insist(self, text: str, *, key: ConversationKey = KEY) -> Receipt:
        """Send a message again under its id, as a client does, until it is accepted."""
        self._sent += 1
        message_id = f"m_{self._sent}"
        with anyio.fail_after(DEADLINE_S):
            while True:
                try:
                    return await self.send(text, key=key, message_id=message_id)
                except Unavailable:
                    await anyio.lowlevel.checkpoint()

    async def ask(self, text: str, *, key: ConversationKey = KEY) -> None:
        """Send a message and wait until nothing is left to do."""
        await self.send(text, key=key)
        await self.rested(key)

    async def cancel(self, key: ConversationKey = KEY) -> object:
        with anyio.fail_after(DEADLINE_S):
            return await self.supervisor.deliver(key, CancelTurn(principal=key.owner))

    async def hibernate(self, key: ConversationKey = KEY, *, deadline_s: float = DEADLINE_S) -> object:
        with anyio.fail_after(2 * DEADLINE_S):
            return await self.supervisor.deliver(key, Hibernate(deadline_s=deadline_s))

    async def wake(self, key: ConversationKey = KEY) -> object:
        with anyio.fail_after(DEADLINE_S):
            return await self.supervisor.deliver(key, Wake())

    async def rested(self, key: ConversationKey = KEY) -> None:
        """Wait until the conversation is not due and its actor, if one lives, is idle."""
        with anyio.fail_after(DEADLINE_S):
            while True:
                live = self.supervisor.live_status(key)
                if self.store.data.of(key).due_us is None and (live is None or live.state == "idle"):
                    return
                await anyio.lowlevel.checkpoint()

    async def records(self, key: ConversationKey = KEY) -> tuple[JournalRecord, ...]:
        """The durable journal."""
        return (await self.store.load(key, use_snapshot=False)).tail

    async def records_of(self, kind: type[_Kind], *, key: ConversationKey = KEY) -> list[_Kind]:
        return [record for record in await self.records(key) if isinstance(record, kind)]

    async def state(self, key: ConversationKey = KEY) -> ConversationState:
        """The fold of the durable journal."""
        return fold(ConversationState(), await self.records(key))

    def assert_sound(self) -> None:
        """Nothing was heard before its commit, and no request broke a rule."""
        assert [what for recorder in self.recorders for what in recorder.early] == []
        assert self.model.refused == []


async def receipt_of(reply: PendingReply) -> Receipt:
    """Wait for the receipt of a message that was posted."""
    with anyio.fail_after(DEADLINE_S):
        receipt = await reply.wait()
    assert isinstance(receipt, Receipt)
    return receipt


def agent(
    name: str = "clerk",
    *,
    model: Model,
    toolbox: FakeToolbox,
    system: str = "You are a clerk.",
    default: bool = True,
    table: Mapping[str, Any] = PLAYED,
    profile: Profile = UNBOUND,
    summariser: Model | None = None,
    live: LiveModel | None = None,
    max_tokens: int = 4096,
    elsewhere: Elsewhere | None = None,
) -> Agent:
    definition = AgentDefinition(name=name, system=system, model=dict(table), default=default, max_tokens=max_tokens)
    asked = None
    if summariser is not None:
        asked = Summariser(definition.summary, model=summariser, name="small", window_tokens=SMALL_WINDOW_TOKENS)
    return Agent(
        definition,
        model=model,
        toolbox=toolbox,
        profile=profile,
        summariser=asked,
        live=live,
        elsewhere=elsewhere,
    )


@asynccontextmanager
async def running_engine(
    *plays: Play,
    tools: Iterable[FakeTool] = (),
    data: MemoryData | None = None,
    ledger: Ledger | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    holder: str = "s_1",
    agents: Sequence[str] = ("clerk",),
    system: str = "You are a clerk.",
    steps: StepOptions | None = None,
    retry: RetryOptions = ONCE,
    turn: TurnOptions | None = None,
    actor: ActorOptions | None = None,
    options: SupervisorOptions = QUICK,
    host: Model | None = None,
    table: Mapping[str, Any] = PLAYED,
    profile: Profile = UNBOUND,
    summariser: Model | None = None,
    live: LiveModel | None = None,
    max_tokens: int = 4096,
    compaction: CompactionOptions | None = None,
    surroundings: Surroundings | None = None,
    memory: Memory | None = None,
    chance: Callable[[], float] = lambda: 0.5,
    subagents: Mapping[str, Subagent] | None = None,
    subagent_options: SubagentOptions | None = None,
    observer: Observer = UNOBSERVED,
    elsewhere: Elsewhere | None = None,
) -> AsyncIterator[Engine]:
    """An engine that runs while the context is open, and is sound when it is left without an error.

    Args: plays: what the model does, call by call.  tools: beside ``look``, a read that is always offered.
        data, ledger: of an engine before this one.  ids: others than that had, where names must not come again.
        agents: names, the first being the default.
        host: asked in place of the plays.  table: the agents' ``[model]``.
        profile, max_tokens, summariser, compaction: what bounds the window of the agents, and who folds it.
        memory, chance: as the supervisor has them.  subagents: by name; a tool has to spawn them.
        elsewhere: where the agents have more tools from.
    """
    clock, bus, turn = clock or ManualClock(), LocalBus(), turn or TurnOptions(cancel_grace_s=0.0)
    model = PlayedModel(plays)
    toolbox = FakeToolbox((reads("look"), *tools), ledger=ledger or Ledger())
    blobs = MemoryBlobs()
    async with ProbedStore(data or MemoryData()) as store:
        parts = ActorParts(
            store=store,
            bus=bus,
            clock=clock,
            ids=ids or CountingIds(),
            agents=Agents(
                tuple(
                    agent(
                        name,
                        model=host or model,
                        toolbox=toolbox,
                        system=system,
                        default=name == agents[0],
                        table=table,
                        profile=profile,
                        summariser=summariser,
                        live=live,
                        max_tokens=max_tokens,
                        elsewhere=elsewhere,
                    )
                    for name in agents
                )
            ),
            places=FairPlaces(
                turn.model_calls_max, per_owner=turn.model_calls_per_owner_max, monotonic_s=clock.monotonic_s
            ),
            steps=steps or StepOptions(),
            retry=retry,
            turn=turn,
            compaction=compaction or CompactionOptions(),
            surroundings=surroundings or Surroundings(),
            actor=actor or ActorOptions(),
            observer=observer,
            spawns=Subagents(subagents or {}, blobs=blobs, options=subagent_options or SubagentOptions()).of,
        )
        supervisor = Supervisor(
            parts, holder=holder, options=options, memory=memory, chance=chance, on_gone=blobs.let_go
        )
        engine = Engine(
            supervisor, parts=parts, store=store, bus=bus, clock=clock, model=model, toolbox=toolbox, blobs=blobs
        )
        with capture_logs():  # a crash on purpose is no news, and printing it takes a second
            async with supervisor.running(), engine.directory.running():
                yield engine
    engine.assert_sound()
