"""Decisions kept per context: bounded, and shared between the many contexts for which they come out alike."""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from torpor.flags.contract import Decided, Decision, FlagContext

V = TypeVar("V")


class RecentlyUsed(Generic[V]):
    """At most ``size_max`` values; the one that was used longest ago leaves. A look costs the same at any size."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._values: dict[FlagContext, V] = {}

    def get(self, context: FlagContext) -> V | None:
        """The value, which counts as used by that."""
        value = self._values.pop(context, None)
        if value is not None:
            self._values[context] = value
        return value

    def put(self, context: FlagContext, value: V) -> None:
        self._values.pop(context, None)
        if len(self._values) >= self._size_max:
            del self._values[next(iter(self._values))]
        self._values[context] = value

    def latest_first(self) -> Iterator[V]:
        return reversed(self._values.values())

    def clear(self) -> None:
        self._values.clear()

    def __len__(self) -> int:
        return len(self._values)


class Shared:
    """Gives one object for equal decisions, as long as somebody holds it."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[str, Decided] = WeakValueDictionary()

    def decided(self, decisions: Iterable[Decision]) -> Decided:
        fresh = Decided(decisions)
        return self._known.setdefault(fresh.digest, fresh)
