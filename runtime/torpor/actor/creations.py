"""How many conversations one owner may have: counted when one begins, and those that begin at the same time with them.

Above: the actor, before the first record of its conversation. Below: the store, which counts from an index.
"""

from typing import Final, Protocol

from torpor.errors import TooManyConversations
from torpor.records.ids import ConversationKey

DEFAULT_MAX: Final = 10_000


class Counts(Protocol):
    """The one read of ``store.contract.Store`` that is needed here."""

    async def count_conversations(self, *, tenant: str, owner: str, limit: int) -> int: ...


class Creations:
    """One for a process."""

    def __init__(self, *, limit: int = DEFAULT_MAX) -> None:
        self._limit = limit
        self._under_way: dict[tuple[str, str], set[str]] = {}
        """By owner, what was admitted and is not known to be durable."""

    async def admit(self, key: ConversationKey, *, counts: Counts) -> None:
        """Let ``key`` begin; to be followed by ``settle``, whatever comes of it. Raises: TooManyConversations."""
        owner = (key.tenant, key.owner)
        there = await counts.count_conversations(tenant=key.tenant, owner=key.owner, limit=self._limit)
        # Nothing may be awaited from here on: two that begin at once must not both take the last place.
        under_way = self._under_way.get(owner, set())
        if there + len(under_way - {key.conversation}) >= self._limit:
            raise TooManyConversations(limit=self._limit)
        self._under_way[owner] = under_way | {key.conversation}

    def settle(self, key: ConversationKey) -> None:
        """It is durable, and counted by the store from now on, or it did not begin; settling twice is once."""
        owner = (key.tenant, key.owner)
        under_way = self._under_way.get(owner, set()) - {key.conversation}
        if under_way:
            self._under_way[owner] = under_way
        else:
            self._under_way.pop(owner, None)

    def __repr__(self) -> str:
        return f"<Creations under_way={sum(map(len, self._under_way.values()))} limit={self._limit}>"
