"""The ports of a life: real store and real bus, with luck, log and cut around them.

``SimCore`` stands around the commit core, where writes become durable, and notes what did. ``SimStore`` and ``SimBus``
stand between the engine and its ports: what comes back waits at the gate of its life, and nothing passes after the cut.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from random import Random
from typing import Any

import anyio
import msgspec

from tests.simulation.faults import Fault, Sight
from tests.simulation.life import Life
from tests.support.oracle_evidence import (
    Commit,
    Delta,
    Grant,
    HandedOver,
    Json,
    Published,
    Released,
    RenewedInVain,
    SnapshotPut,
)
from torpor.bus.contract import Bus, LiveReply, Subscriber
from torpor.errors import Fenced, LeaseHeld, StoreFull, StoreUnavailable, TorporError, WrongSequence
from torpor.records.events import Delta as DeltaSaid
from torpor.records.events import Progress
from torpor.records.ids import ConversationKey
from torpor.records.journal import (
    AttemptStarted,
    JournalRecord,
    MessageReceived,
    ToolFinished,
    TurnCancelled,
    TurnFailed,
)
from torpor.store.contract import Lease, Loaded, Store, Ticket
from torpor.store.requests import Acquire, Append, AskHead, CommitCore, Outcome, PutSnapshot, Release, Renew, Request

_READS = frozenset({"load", "receipt", "events_after", "records_after", "due", "describe", "list_conversations"})


class SimClock:
    """Implements ``clock.Clock``."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def now_us(self) -> int:
        return self._life.now_us()

    def monotonic_s(self) -> float:
        return self._life.world.now_s()


class SimIds:
    """Implements ``clock.IdSource``."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def new_id(self) -> str:
        return f"{self._random.getrandbits(64):016x}"


def plain(record: JournalRecord) -> Json:
    """A record as its JSON."""
    decoded: Json = msgspec.json.decode(msgspec.json.encode(record))
    return decoded


class SimCore:
    """Implements ``store.requests.CommitCore`` around the real one."""

    def __init__(self, core: CommitCore, life: Life, *, holders: Callable[[ConversationKey], tuple[str, int]]) -> None:
        """Args: holders: who holds a conversation, by name and fence; an empty name for nobody."""
        self._core = core
        self._life = life
        self._holders = holders

    def latency_s(self) -> float:
        """How long the next group of writes takes."""
        world = self._life.world
        if world.roll(Fault.STORE_SLOW):
            return world.rng.choice((0.3, 1.0, 1.5 * world.plan.lease_ttl_s))
        return world.rng.choice((0.0, 0.0, 0.002, 0.02)) if world.is_stormy else 0.001

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        told = {index: error for index, request in enumerate(requests) if (error := self._refusal(request)) is not None}
        carried = [index for index in range(len(requests)) if index not in told and not self._life.is_dead]
        outcomes: list[Outcome] = [told.get(index) for index in range(len(requests))]
        before = [self._holders(_key_of(requests[index])) for index in carried]
        if carried:
            for index, outcome in zip(carried, self._core.commit([requests[index] for index in carried]), strict=True):
                outcomes[index] = outcome
        for index, holder in zip(carried, before, strict=True):
            self._note(requests[index], outcomes[index], holder)
            if not isinstance(outcomes[index], TorporError):
                outcomes[index] = self._lost_reply(requests[index]) or outcomes[index]
        self._life.reach("core.committed")
        return outcomes

    def _refusal(self, request: Request) -> TorporError | None:
        """Why the request is not carried out."""
        world = self._life.world
        if self._life.is_dead or not self._life.reach("core.commit"):
            return StoreUnavailable("the process has ended")
        match request:
            case PutSnapshot() if world.roll(Fault.SNAPSHOT_REFUSED):
                return StoreFull("no room for a snapshot")
            case Append() if world.roll(Fault.STORE_FULL):
                return StoreFull("no room")
            case Append() | Acquire() | Renew() | Release() | AskHead() if world.roll(Fault.STORE_UNAVAILABLE):
                return StoreUnavailable("not carried out")
            case _:
                return None

    def _lost_reply(self, request: Request) -> TorporError | None:
        """What is answered instead of success."""
        world = self._life.world
        match request:
            case Append() if world.roll(Fault.STORE_WRONG_SEQUENCE):
                numbers = request.numbers
                return WrongSequence(
                    request.key.path, expected_seq=numbers.expected_seq, head_seq=request.records[-1].seq
                )
            case Append() | PutSnapshot() | Acquire() | Renew() | Release() if world.roll(Fault.STORE_LOST_REPLY):
                return StoreUnavailable("carried out, reply lost")
            case _:
                return None

    def _note(self, request: Request, outcome: Outcome, holder: tuple[str, int]) -> None:
        life, world = self._life, self._life.world
        evidence, conversation = world.evidence, _key_of(request).conversation
        world.note(life.name, type(request).__name__, outcome=outcome if isinstance(outcome, TorporError) else "ok")
        match request, outcome:
            case Append(), Fenced():
                world.saw(Sight.APPEND_FENCED)
            case PutSnapshot(), Fenced():
                world.saw(Sight.SNAPSHOT_FENCED)
            case Renew(), Fenced():
                world.saw(Sight.RENEWED_TOO_LATE)
            case Acquire(), LeaseHeld():
                world.saw(Sight.LEASE_REFUSED)
            case _, TorporError():
                pass
            case Append(), _:
                for record in request.records:
                    world.counts.update(_met(record))
                evidence.commits.append(
                    Commit(
                        moment=world.moment(),
                        at_s=world.now_s(),
                        life=life.name,
                        conversation=conversation,
                        fence=request.fence,
                        first_seq=request.records[0].seq,
                        last_seq=request.records[-1].seq,
                        is_due=request.due_us is not None,
                    )
                )
                world.note(life.name, "durable", records=[_brief(record) for record in request.records])
            case PutSnapshot(), _:
                world.snapshots.append((request.key, request.snapshot))
                evidence.snapshots.append(
                    SnapshotPut(
                        moment=world.moment(),
                        life=life.name,
                        conversation=conversation,
                        fence=request.fence,
                        seq=request.snapshot.seq,
                    )
                )
            case Acquire(), Lease():
                if holder[0] not in {"", request.holder}:
                    world.saw(Sight.LEASE_TAKEN_OVER)
                note_grant(life, outcome)
            case Release(), _ if request.lease.fence == holder[1]:
                note_release(life, request.lease)
            case _:
                pass


def note_grant(life: Life, lease: Lease) -> None:
    """A lease was given."""
    world = life.world
    world.evidence.grants.append(
        Grant(moment=world.moment(), life=life.name, conversation=lease.key.conversation, fence=lease.fence)
    )


def note_release(life: Life, lease: Lease) -> None:
    """A lease was given back by whoever held it."""
    world = life.world
    world.saw(Sight.HIBERNATED)
    world.evidence.released.append(
        Released(moment=world.moment(), life=life.name, conversation=lease.key.conversation, fence=lease.fence)
    )


def _key_of(request: Request) -> ConversationKey:
    match request:
        case Renew() | Release():
            return request.lease.key
        case Append() | PutSnapshot() | Acquire() | AskHead():
            return request.key
        case _:
            return getattr(request, "key", ConversationKey("", "", ""))


def _met(record: JournalRecord) -> Iterator[str]:
    """What a committed record counts for."""
    yield f"record:{record.__struct_config__.tag}"
    match record:
        case ToolFinished():
            yield f"outcome:{record.outcome}"
        case AttemptStarted():
            yield f"attempt:{record.step}"
        case MessageReceived():
            yield f"when_busy:{record.when_busy}"
        case TurnCancelled():
            yield f"cancelled:{record.reason}"
        case TurnFailed():
            yield f"failed:{record.code}"
        case _:
            pass


def _brief(record: JournalRecord) -> str:
    return f"{record.seq}:{record.__struct_config__.tag}/t{record.turn}"


class _LateTicket:
    """Implements ``store.contract.Ticket``; what was handed over while the process stood still leaves when it wakes."""

    def __init__(self, life: Life, hand_over: Callable[[], Ticket]) -> None:
        self._life = life
        self._hand_over = hand_over
        self._ticket = None if life.is_dead or life.is_paused else hand_over()

    async def wait(self) -> None:
        await self._life.gate()
        if self._ticket is None:
            self._ticket = self._hand_over()
        try:
            await self._ticket.wait()
        finally:
            if self._life.is_dead:
                await anyio.sleep_forever()
        await self._life.gate()


class SimStore:
    """Stands for a ``store.contract.Store`` in everything that the engine asks of one."""

    def __init__(self, store: Store, life: Life, *, notes_leases: bool) -> None:
        """Args: notes_leases: whether leases are granted without the commit core, which then cannot note them."""
        self._store = store
        self._life = life
        self._notes_leases = notes_leases

    def append(self, key: ConversationKey, *, records: Sequence[JournalRecord], fence: int, **rest: Any) -> Ticket:
        life = self._life
        if life.reach("append"):
            life.world.evidence.handed.append(
                HandedOver(
                    moment=life.world.moment(),
                    life=life.name,
                    conversation=key.conversation,
                    fence=fence,
                    first_seq=records[0].seq,
                    last_seq=records[-1].seq,
                )
            )
        return _LateTicket(life, lambda: self._store.append(key, records=records, fence=fence, **rest))

    async def acquire(self, key: ConversationKey, **rest: Any) -> Lease:
        lease: Lease = await self._gated("acquire", self._store.acquire, key, **rest)
        if self._notes_leases:
            note_grant(self._life, lease)
        return lease

    async def renew(self, lease: Lease, **rest: Any) -> Lease:
        life, world = self._life, self._life.world
        asked = world.moment()
        try:
            renewed: Lease = await self._gated("renew", self._store.renew, lease, **rest)
        except Fenced:
            world.evidence.renewed_in_vain.append(
                RenewedInVain(moment=asked, life=life.name, conversation=lease.key.conversation, fence=lease.fence)
            )
            raise
        return renewed

    async def load(self, key: ConversationKey, **rest: Any) -> Loaded:
        loaded: Loaded = await self._gated("load", self._store.load, key, **rest)
        if loaded.snapshot is not None:
            self._life.world.saw(Sight.SNAPSHOT_USED)
        return loaded

    async def release(self, lease: Lease) -> None:
        await self._gated("release", self._store.release, lease)
        if self._notes_leases:
            note_release(self._life, lease)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._store, name)

        async def gated(*args: Any, **named: Any) -> Any:
            return await self._gated(name, method, *args, **named)

        return gated

    async def _gated(self, name: str, method: Callable[..., Awaitable[Any]], *args: Any, **named: Any) -> Any:
        life = self._life
        await life.gate()
        if name in _READS or name == "put_snapshot":
            await life.world.dawdle()
        if name in _READS and life.world.roll(Fault.STORE_READ_FAILED):
            raise StoreUnavailable(f"{name} failed")
        life.reach(f"store.{name}")
        await life.gate()
        try:
            answer = await method(*args, **named)
        finally:
            if life.is_dead:
                await anyio.sleep_forever()
        life.reach(f"store.{name}.answered")
        await life.gate()
        return answer


class SimBus:
    """Implements ``bus.contract.Bus`` around the real one."""

    def __init__(self, bus: Bus, life: Life) -> None:
        self._bus = bus
        self._life = life

    def publish(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
        if not self._life.reach("bus.publish"):
            return
        world = self._life.world
        for record in records:
            world.evidence.published.append(
                Published(
                    moment=world.moment(),
                    life=self._life.name,
                    conversation=key.conversation,
                    record=plain(record),
                )
            )
        self._bus.publish(key, records)
        self._life.reach("bus.published")

    def publish_delta(self, key: ConversationKey, delta: DeltaSaid) -> None:
        if not self._life.reach("bus.delta"):
            return
        world = self._life.world
        world.evidence.deltas.append(
            Delta(
                moment=world.moment(),
                life=self._life.name,
                conversation=key.conversation,
                call=delta.call,
                offset=delta.offset,
                text=delta.text,
            )
        )
        self._bus.publish_delta(key, delta)

    def publish_progress(self, key: ConversationKey, progress: Progress) -> None:
        if not self._life.is_dead:
            self._bus.publish_progress(key, progress)

    def subscribe(self, key: ConversationKey, subscriber: Subscriber) -> None:
        self._bus.subscribe(key, subscriber)

    def unsubscribe(self, key: ConversationKey, subscriber: Subscriber) -> None:
        self._bus.unsubscribe(key, subscriber)

    def live_reply(self, key: ConversationKey) -> LiveReply | None:
        return self._bus.live_reply(key)

    def is_watched(self, key: ConversationKey) -> bool:
        return self._bus.is_watched(key)
