"""Which blobs were put and may be named by a record that is not written yet: nobody takes these away meanwhile.

Above: the blobs. Beside the store, which knows of written records only. Of use from any thread. Nothing of it outlives
the process: what a crash leaves is a blob that no record names, never a record whose blob is gone.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import msgspec

from torpor.records.ids import CHILD_MARK, ConversationKey

_Owner = tuple[str, str]


class Kept:
    """Of all owners."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handles: dict[_Owner, dict[str, set[str]]] = defaultdict(dict)
        """By conversation."""
        self._leaving: list[tuple[ConversationKey, set[str]]] = []
        """What was let go of while somebody decides."""
        self._deciding = 0

    def keep(self, key: ConversationKey, handle: str) -> None:
        """A record of this conversation may name it soon."""
        with self._lock:
            self._handles[_owner(key)].setdefault(key.conversation, set()).add(handle)

    def let_go(self, key: ConversationKey) -> None:
        """Nothing that was kept for this conversation will be named by a record that is not written by now; the same
        holds for its sub-agents."""
        with self._lock:
            kept = self._handles.get(_owner(key), {})
            for name in [name for name in kept if _is_within(name, key)]:
                handles = kept.pop(name)
                if self._deciding:
                    self._leaving.append((msgspec.structs.replace(key, conversation=name), handles))
            if not kept:
                self._handles.pop(_owner(key), None)

    def is_kept(self, key: ConversationKey, handle: str) -> bool:
        """For another conversation of the same owner; its sub-agents' are its own, but not the other way round."""
        with self._lock:
            kept = self._handles.get(_owner(key), {})
            return any(handle in handles for name, handles in kept.items() if not _is_within(name, key)) or any(
                handle in handles and _owner(other) == _owner(key) and not _is_within(other.conversation, key)
                for other, handles in self._leaving
            )

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """In the block, from the look at the records to the removal, what is let go of is kept on."""
        with self._lock:
            self._deciding += 1
        try:
            yield
        finally:
            with self._lock:
                self._deciding -= 1
                if not self._deciding:
                    self._leaving.clear()

    def __repr__(self) -> str:
        return f"<Kept owners={len(self._handles)} deciding={self._deciding}>"


class KeptBlobs:
    """What is the same of blobs wherever they lie: see ``store.contract.ErasableBlobs``."""

    def __init__(self) -> None:
        self._kept = Kept()

    def deciding(self) -> AbstractContextManager[None]:
        return self._kept.deciding()

    def keep(self, key: ConversationKey, handles: Sequence[str]) -> None:
        for handle in handles:
            self._kept.keep(key, handle)

    def let_go(self, key: ConversationKey) -> None:
        self._kept.let_go(key)


def _owner(key: ConversationKey) -> _Owner:
    return key.tenant, key.owner


def _is_within(name: str, key: ConversationKey) -> bool:
    """Whether that is the conversation ``key`` or works for it. Args: name: of one of the same owner."""
    return name == key.conversation or name.startswith(key.conversation + CHILD_MARK)
