"""Places for model calls, given out fairly: owners take turns, however many calls one of them has waiting.

Above: a turn's calls, summaries and live contexts, each through the ``Share`` of its owner; the supervisor, which paces
thaws with places of its own. Whoever waits for a child of its own must hold no place meanwhile: all of them could be
held by parents whose children wait for one.

    a place is free, and the owner may have one more ──▶ taken at once
    otherwise: waits in its owner's line; a place that becomes free goes to the next owner's line, round and round
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

import anyio
import msgspec

from torpor.records.ids import ConversationKey

Owner: TypeAlias = tuple[str, str]
"""Tenant and owner."""


class PlacesStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Now, and since the start; no owner is named."""

    places: int
    taken: int
    waiting: int
    owners: int
    """That hold a place."""
    owners_waiting: int
    owner_taken_most: int
    """Places that one owner holds, of the one that holds most."""
    owner_waiting_most: int
    grants: int
    """Places given out so far."""
    waited_s: float
    """Time that calls have waited so far, together; those that still wait are not in it."""


class FairPlaces:
    """See the module docstring. One event loop."""

    def __init__(self, count: int, *, monotonic_s: Callable[[], float], per_owner: int = 0) -> None:
        """Args: count: 1 or more.  per_owner: that one owner may hold at once; 0 for as many as there are."""
        self._count = count
        self._per_owner = per_owner or count + 1
        self._monotonic_s = monotonic_s
        self._free = count
        self._taken = Counter[Owner]()
        self._lines: dict[Owner, OrderedDict[anyio.Event, None]] = {}
        """Who waits, by owner, in order of arrival."""
        self._turns: OrderedDict[Owner, None] = OrderedDict()
        """Owners with a line that may have one more place, the next one first. Empty while a place is free."""
        self._grants = 0
        self._waited_s = 0.0

    def of(self, key: ConversationKey) -> "Share":
        """The way to a place for a call on behalf of this conversation."""
        return Share(self, (key.tenant, key.owner))

    def take_nowait(self, owner: Owner) -> bool:
        """Take a place that is free; False when there is none for this owner."""
        if not self._free or not self._may_have_more(owner):
            return False
        self._grant(owner)
        return True

    async def take(self, owner: Owner) -> None:
        """Wait for a place. Cancellation: none is held, and one just given goes to the next in turn."""
        if self.take_nowait(owner):
            return
        granted, has_place = anyio.Event(), False
        self._lines.setdefault(owner, OrderedDict())[granted] = None
        if self._may_have_more(owner):
            self._turns.setdefault(owner)
        began_s = self._monotonic_s()
        try:
            await granted.wait()
            has_place = True
        finally:
            self._waited_s += self._monotonic_s() - began_s
            if not has_place:
                self._leave(owner, granted)

    def give_back(self, owner: Owner) -> None:
        """The call has ended."""
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]
        self._free += 1
        if owner in self._lines:
            self._turns.setdefault(owner)
        self._hand_out()

    def statistics(self) -> PlacesStatistics:
        lines = [len(line) for line in self._lines.values()]
        return PlacesStatistics(
            places=self._count,
            taken=self._count - self._free,
            waiting=sum(lines),
            owners=len(self._taken),
            owners_waiting=len(lines),
            owner_taken_most=max(self._taken.values(), default=0),
            owner_waiting_most=max(lines, default=0),
            grants=self._grants,
            waited_s=self._waited_s,
        )

    def _may_have_more(self, owner: Owner) -> bool:
        return self._taken[owner] < self._per_owner

    def _grant(self, owner: Owner) -> None:
        self._free -= 1
        self._taken[owner] += 1
        self._grants += 1

    def _hand_out(self) -> None:
        while self._free and self._turns:
            owner, _ = self._turns.popitem(last=False)
            line = self._lines[owner]
            granted, _ = line.popitem(last=False)
            self._grant(owner)
            granted.set()
            if not line:
                del self._lines[owner]
            elif self._may_have_more(owner):
                self._turns[owner] = None

    def _leave(self, owner: Owner, granted: anyio.Event) -> None:
        if granted.is_set():
            self.give_back(owner)
            return
        line = self._lines[owner]
        del line[granted]
        if not line:
            del self._lines[owner]
            self._turns.pop(owner, None)

    def __repr__(self) -> str:
        waiting = sum(map(len, self._lines.values()))
        return f"<FairPlaces taken={self._count - self._free}/{self._count} waiting={waiting}>"


class Share:
    """One owner's way to the places: ``async with share:`` around a call, any number of them at once."""

    __slots__ = ("_owner", "_places")

    def __init__(self, places: FairPlaces, owner: Owner) -> None:
        self._places = places
        self._owner = owner

    async def __aenter__(self) -> None:
        # A place that is free costs no pass of the event loop.
        if not self._places.take_nowait(self._owner):
            await self._places.take(self._owner)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._places.give_back(self._owner)
