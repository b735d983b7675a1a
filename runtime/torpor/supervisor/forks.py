"""Conversations that begin with what another one began with: copied in one write, so that nobody sees half a copy.

Above: the gateway. Below: ``forking``, which decides what is copied; the registry, which sees to it that nobody serves
the new one meanwhile; the store.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Final, Protocol

from torpor.actor.creations import Creations
from torpor.bus.contract import Bus
from torpor.clock import Clock
from torpor.conversation.state import BadHistory
from torpor.errors import (
    ClientError,
    ConversationExists,
    JournalCorrupt,
    NotForkable,
    Quarantined,
    Unavailable,
    UnknownConversation,
    WrongSequence,
)
from torpor.records.ids import ConversationKey
from torpor.records.journal import PUBLIC_RECORDS, ConversationForked, JournalRecord
from torpor.store.contract import Lease, Store
from torpor.supervisor.forking import ForkConversation, copied, receipts_of
from torpor.turn.contract import UNOBSERVED, Observer

_PAGE: Final = 256


class SetsAside(Protocol):
    """What is needed of the registry."""

    def set_aside(self, key: ConversationKey, *, verdict: ClientError) -> AbstractAsyncContextManager[Lease]: ...

    def holding(self, key: ConversationKey) -> AbstractContextManager[None]: ...


class StoredForks:
    """Implements ``supervisor.contract.Forks``."""

    def __init__(
        self,
        *,
        served: SetsAside,
        store: Store,
        bus: Bus,
        clock: Clock,
        new_id: Callable[[], str],
        creations: Creations,
        records_max: int,
        retry_after_s: float,
        observer: Observer = UNOBSERVED,
    ) -> None:
        """Args: records_max: that one fork copies.  retry_after_s: what commands are told that meet one.  observer: is
        told of each; what they copy happened before."""
        self._served = served
        self._store = store
        self._bus = bus
        self._clock = clock
        self._new_id = new_id
        self._creations = creations
        self._records_max = records_max
        self._retry_after_s = retry_after_s
        self._observer = observer

    async def fork(self, fork: ForkConversation) -> None:
        """See the contract."""
        # Until the copy names what the source names, nobody may take the source's blobs away.
        with self._served.holding(fork.source):
            if (row := await self._store.describe(fork.source)) is None:
                raise UnknownConversation(fork.source.conversation)
            if row.quarantine and not fork.is_operators:
                raise Quarantined(fork.source.conversation, reason=row.quarantine)
            if not await self._is_done(fork):
                await self._begin(fork, agent=row.agent)

    async def _begin(self, fork: ForkConversation, *, agent: str) -> None:
        await self._creations.admit(fork.into, counts=self._store)
        try:
            await self._make(fork, await self._read(fork.source), agent=agent)
        finally:
            self._creations.settle(fork.into)

    async def _is_done(self, fork: ForkConversation) -> bool:
        """Raises: ConversationExists: there is something else of that id."""
        if await self._store.describe(fork.into) is None:
            return False
        if fork.source == fork.into or not fork.is_made_by(await self._read(fork.into)):
            raise ConversationExists(fork.into.conversation)
        return True

    async def _make(self, fork: ForkConversation, records: list[JournalRecord], *, agent: str) -> None:
        try:
            copy = copied(fork, records, now_us=self._clock.now_us())
        except BadHistory as exc:
            raise JournalCorrupt(fork.source.path, reason=str(exc)) from exc
        verdict = Unavailable("the conversation is just being begun", retry_after_s=self._retry_after_s)
        async with self._served.set_aside(fork.into, verdict=verdict) as lease:
            try:
                await self._store.begin(lease, records=copy, batch_id=self._new_id(), dedupe=receipts_of(copy))
            except WrongSequence:
                raise ConversationExists(fork.into.conversation) from None
        begins = max(at for at, record in enumerate(copy) if isinstance(record, ConversationForked))
        new = [record for record in copy[begins:] if isinstance(record, PUBLIC_RECORDS)]
        # Whoever watches the id already hears that there is something, and reads the rest.
        self._bus.publish(fork.into, new)
        self._observer.committed(fork.into, new, agent=agent)

    async def _read(self, key: ConversationKey) -> list[JournalRecord]:
        """Raises: NotForkable: it has too many records. JournalCorrupt."""
        records: list[JournalRecord] = []
        while page := await self._store.records_after(key, seq=len(records), limit=_PAGE):
            records += page
            if len(records) > self._records_max:
                what = f"conversation {key.conversation!r} has more than {self._records_max} records"
                raise NotForkable(f"{what}, which is the most that a fork copies")
        return records
