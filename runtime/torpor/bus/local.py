"""The bus within one process: a dictionary of subscribers, called in place."""

from collections.abc import Sequence

from torpor.bus.contract import LiveReply, Subscriber
from torpor.records.events import Delta, Progress
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord, ModelReplied, TurnCancelled, TurnFailed, TurnFinished

_ENDS_REPLY = (ModelReplied, TurnCancelled, TurnFailed, TurnFinished)


class LocalBus:
    """Implements ``bus.contract.Bus``. Holds one entry per watched conversation and one per reply being written."""

    def __init__(self) -> None:
        self._subscribers: dict[ConversationKey, dict[Subscriber, None]] = {}
        self._live: dict[ConversationKey, tuple[str, list[str]]] = {}

    def publish(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
        if key in self._live and any(isinstance(record, _ENDS_REPLY) for record in records):
            del self._live[key]
        for subscriber in tuple(self._subscribers.get(key, ())):
            subscriber.on_records(key, records)

    def publish_delta(self, key: ConversationKey, delta: Delta) -> None:
        call, pieces = self._live.get(key, ("", []))
        if call != delta.call:
            pieces = []
            self._live[key] = (delta.call, pieces)
        pieces.append(delta.text)
        for subscriber in tuple(self._subscribers.get(key, ())):
            subscriber.on_delta(key, delta)

    def publish_progress(self, key: ConversationKey, progress: Progress) -> None:
        for subscriber in tuple(self._subscribers.get(key, ())):
            subscriber.on_progress(key, progress)

    def publish_standing(self, key: ConversationKey) -> None:
        for subscriber in tuple(self._subscribers.get(key, ())):
            subscriber.on_standing(key)

    def publish_gone(self, key: ConversationKey) -> None:
        self._live.pop(key, None)
        for subscriber in tuple(self._subscribers.get(key, ())):
            subscriber.on_gone(key)

    def subscribe(self, key: ConversationKey, subscriber: Subscriber) -> None:
        self._subscribers.setdefault(key, {})[subscriber] = None

    def unsubscribe(self, key: ConversationKey, subscriber: Subscriber) -> None:
        subscribers = self._subscribers.get(key, {})
        subscribers.pop(subscriber, None)
        if not subscribers:
            self._subscribers.pop(key, None)

    def live_reply(self, key: ConversationKey) -> LiveReply | None:
        if (live := self._live.get(key)) is None:
            return None
        call, pieces = live
        return LiveReply(call=call, text="".join(pieces))

    def is_watched(self, key: ConversationKey) -> bool:
        return key in self._subscribers

    def __repr__(self) -> str:
        return f"<LocalBus watched={len(self._subscribers)} live={len(self._live)}>"
