"""The right to write conversations: taken when an actor starts, renewed while it lives.

Above: the registry. Below: the store. Embedded stores give leases that end with the process; there is nothing to renew
then, and no look at the live conversations.
"""

from collections.abc import Iterable

from torpor.clock import Clock
from torpor.errors import Fenced
from torpor.records.ids import ConversationKey
from torpor.store.contract import Lease, Store
from torpor.supervisor.entry import Entry
from torpor.supervisor.options import SupervisorOptions


class Leases:
    """Of one supervisor."""

    def __init__(self, store: Store, *, clock: Clock, holder: str, options: SupervisorOptions) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder
        self._ttl_s = options.lease_ttl_s
        self._has_lapsing = False

    async def acquire(self, key: ConversationKey) -> Lease:
        """Raises: LeaseHeld: another server has it. StoreError."""
        lease = await self._store.acquire(key, holder=self._holder, ttl_s=self._ttl_s, now_us=self._clock.now_us())
        self._has_lapsing = self._has_lapsing or lease.expires_us > 0
        return lease

    async def renew(self, entries: Iterable[Entry]) -> None:
        """Those of live actors; one whose lease is somebody else's by now is cut off. Raises: StoreError."""
        if not self._has_lapsing:
            return
        for entry in tuple(entries):
            lease = entry.lease
            if lease is None or not lease.expires_us or not entry.holds(lease):
                continue
            try:
                renewed = await self._store.renew(lease, ttl_s=self._ttl_s, now_us=self._clock.now_us())
            except Fenced:
                # Meanwhile it may have been given back, or replaced by that of the next incarnation.
                if entry.holds(lease):
                    entry.scope.cancel()
            else:
                entry.lease = renewed if entry.holds(lease) else entry.lease
