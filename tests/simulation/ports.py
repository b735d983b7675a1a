"""The ports of a life: real store and real bus, with luck, log and cut around them.

They stand between the engine and what it asks of the outside: what comes back waits at the gate of its life, and
nothing passes after the cut. Where writes become durable stands ``core``.
"""

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import anyio
import msgspec

from tests.simulation.core import note_grant, note_release
from tests.simulation.faults import Fault, Sight
from tests.simulation.life import Life
from tests.support.oracle_evidence import Delta, Json, Published, RenewedInVain
from torpor.bus.contract import Bus, LiveReply, Subscriber
from torpor.errors import Fenced, StoreUnavailable
from torpor.records.events import Delta as DeltaSaid
from torpor.records.events import Progress
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord
from torpor.store.contract import Lease, Loaded, Store, Ticket

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
        life.reach("append")
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

    def publish_standing(self, key: ConversationKey) -> None:
        if not self._life.is_dead:
            self._bus.publish_standing(key)

    def publish_gone(self, key: ConversationKey) -> None:
        if not self._life.is_dead:
            self._bus.publish_gone(key)

    def subscribe(self, key: ConversationKey, subscriber: Subscriber) -> None:
        self._bus.subscribe(key, subscriber)

    def unsubscribe(self, key: ConversationKey, subscriber: Subscriber) -> None:
        self._bus.unsubscribe(key, subscriber)

    def live_reply(self, key: ConversationKey) -> LiveReply | None:
        return self._bus.live_reply(key)

    def is_watched(self, key: ConversationKey) -> bool:
        return self._bus.is_watched(key)
