"""How what an actor committed reaches whoever is watching.

Publishing never waits and never fails: a subscriber takes what it is given into its own bounded buffer or drops it.
Records are published after their commit, in order; deltas in order within a call. A subscriber that misses something
reads the journal.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from torpor.records.events import Delta, Progress
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord


class LiveReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply that is being written: everything said so far in ``call``."""

    call: str
    text: str


class Subscriber(Protocol):
    """Called on the event loop; must not wait and must not raise."""

    def on_records(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
        """Public records, just committed, in order."""
        ...

    def on_delta(self, key: ConversationKey, delta: Delta) -> None: ...

    def on_progress(self, key: ConversationKey, progress: Progress) -> None: ...

    def on_standing(self, key: ConversationKey) -> None:
        """It was quarantined or released, which no record says: look at its directory row."""
        ...

    def on_gone(self, key: ConversationKey) -> None:
        """It was deleted: nothing more comes of it, and its id may be used again for another one."""
        ...


class Bus(Protocol):
    """See the module docstring."""

    def publish(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
        """Hand on committed public records; one that ends a reply or a turn ends the live reply."""
        ...

    def publish_delta(self, key: ConversationKey, delta: Delta) -> None: ...

    def publish_progress(self, key: ConversationKey, progress: Progress) -> None: ...

    def publish_standing(self, key: ConversationKey) -> None: ...

    def publish_gone(self, key: ConversationKey) -> None:
        """Nothing of it is left, in the store or here."""
        ...

    def subscribe(self, key: ConversationKey, subscriber: Subscriber) -> None:
        """From now on; subscribing twice is once."""
        ...

    def unsubscribe(self, key: ConversationKey, subscriber: Subscriber) -> None:
        """No call reaches it afterwards; not subscribed is not an error."""
        ...

    def live_reply(self, key: ConversationKey) -> LiveReply | None:
        """For a late joiner; None when no reply is being written."""
        ...

    def is_watched(self, key: ConversationKey) -> bool: ...
