"""Public records as clients read them, encoded once however many of them watch."""

from collections import deque
from typing import Final

import msgspec

from torpor.conversation.publish import event_of
from torpor.errors import InvariantBroken
from torpor.records.events import AnyEvent
from torpor.records.frames import ServerFrame
from torpor.records.journal import JournalRecord

_KEPT: Final = 16
"""What one commit publishes, at most times; every watcher is told of all of it before the next."""


class EncodedEvent(ServerFrame, frozen=True, tag="event"):
    """A ``frames.EventFrame`` whose event is JSON already."""

    conversation: str
    epoch: int
    event: msgspec.Raw


class EventTexts:
    """One for all connections of a server."""

    def __init__(self) -> None:
        self._latest: deque[tuple[JournalRecord, msgspec.Raw]] = deque(maxlen=_KEPT)

    def of(self, record: JournalRecord) -> msgspec.Raw:
        """The event that ``record`` becomes; the same object is encoded once. Raises: InvariantBroken: it is none."""
        for known, text in self._latest:
            if known is record:
                return text
        text = msgspec.Raw(msgspec.json.encode(public(record)))
        self._latest.append((record, text))
        return text


def public(record: JournalRecord) -> AnyEvent:
    """Its event. Raises: InvariantBroken: it has none."""
    if (event := event_of(record)) is None:
        raise InvariantBroken(f"record {record.seq} ({type(record).__name__}) has no public side")
    return event
