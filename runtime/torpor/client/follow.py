"""Where one watched conversation stands: every event once and in order, every reply without a hole. Pure.

Above: the core, which owns one of these for each watch. Below: a sink, which takes items or has no room for them.

    SYNCING ──answered──▶ FOLLOWING ──no room──▶ BEHIND ──drained──▶ SYNCING
       ▲                      │
       └──number missing──────┘        and from any: ──connection lost──▶ SYNCING (BEHIND stays)

Only what is taken by the sink moves the cursor, so what it had no room for is asked for again from there.
"""

from enum import Enum, auto
from typing import Final, Protocol

from torpor.client.items import AnyItem, DeltaItem, EventItem, ProgressItem, ReloadItem, ResumedItem, StatusItem
from torpor.client.wire import IncomingEvent, IncomingReload
from torpor.errors import IllegalTransition
from torpor.records.events import ReplyFinishedEvent
from torpor.records.frames import Cursor, DeltaFrame, ProgressFrame, Resumed, StatusFrame, Subscription


class State(Enum):
    SYNCING = auto()
    """Asked for; what comes before the answer belongs to an earlier question."""
    FOLLOWING = auto()
    BEHIND = auto()
    """The sink had no room; nothing is taken until it is drained."""


class Signal(Enum):
    ANSWERED = auto()
    ASKED_AGAIN = auto()
    NO_ROOM = auto()


TRANSITIONS: Final = {
    (State.SYNCING, Signal.ANSWERED): State.FOLLOWING,
    (State.SYNCING, Signal.ASKED_AGAIN): State.SYNCING,
    (State.SYNCING, Signal.NO_ROOM): State.BEHIND,
    (State.FOLLOWING, Signal.ANSWERED): State.FOLLOWING,
    (State.FOLLOWING, Signal.ASKED_AGAIN): State.SYNCING,
    (State.FOLLOWING, Signal.NO_ROOM): State.BEHIND,
    (State.BEHIND, Signal.ASKED_AGAIN): State.SYNCING,
}


def next_state(state: State, signal: Signal) -> State:
    """Raises: IllegalTransition: the table does not list the pair."""
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(state, signal) from None


class Sink(Protocol):
    """Takes items, or has no room."""

    def offer(self, item: AnyItem) -> bool: ...

    def fail(self, error: Exception) -> None:
        """Nothing more comes, and why."""
        ...


class Follow:
    """See the module docstring."""

    def __init__(self, conversation: str, *, cursor: Cursor | None, sink: Sink) -> None:
        self.conversation = conversation
        self.sink = sink
        self._cursor = cursor
        self._state = State.SYNCING
        self._call = ""
        """The reply that is being shown."""
        self._shown = 0
        """How much of its text the sink has taken, in code points."""
        self._finished_call = ""

    @property
    def is_behind(self) -> bool:
        return self._state is State.BEHIND

    def ask(self) -> Subscription:
        """What to ask the server for; until its answer nothing is taken."""
        self._state = next_state(self._state, Signal.ASKED_AGAIN)
        return Subscription(conversation=self.conversation, cursor=self._cursor)

    def on_resumed(self, frame: Resumed) -> None:
        if self.is_behind:
            return
        self._state = next_state(self._state, Signal.ANSWERED)
        self._take(ResumedItem(conversation=self.conversation, epoch=frame.epoch, head=frame.head, status=frame.status))

    def on_reload(self, frame: IncomingReload) -> None:
        if self.is_behind:
            return
        self._state = next_state(self._state, Signal.ANSWERED)
        item = ReloadItem(
            conversation=self.conversation,
            epoch=frame.epoch,
            head=frame.head,
            status=frame.status,
            events=frame.known,
        )
        if self._take(item):
            self._cursor = Cursor(epoch=frame.epoch, event=frame.head)
            self._call, self._shown = "", 0

    def on_event(self, frame: IncomingEvent) -> bool:
        """False when a number is missing, so that the server must be asked again."""
        if self._state is not State.FOLLOWING or self._cursor is None:
            return True
        number = frame.number
        if frame.epoch == self._cursor.epoch and number <= self._cursor.event:
            return True
        if (frame.epoch, number) != (self._cursor.epoch, self._cursor.event + 1):
            return False
        event = frame.known
        if event is None or self._take(EventItem(conversation=self.conversation, epoch=frame.epoch, event=event)):
            self._cursor = Cursor(epoch=frame.epoch, event=number)
            if isinstance(event, ReplyFinishedEvent):
                self._finished_call = event.call
        return True

    def on_delta(self, frame: DeltaFrame) -> None:
        if self._state is not State.FOLLOWING or frame.call == self._finished_call:
            return
        if frame.call != self._call:
            self._call, self._shown = frame.call, 0
        new = frame.text[max(self._shown - frame.offset, 0) :]
        if frame.offset > self._shown or not new:
            return  # a hole, which the finished reply fills, or what was shown already
        item = DeltaItem(conversation=self.conversation, call=frame.call, offset=self._shown, text=new)
        if self.sink.offer(item):
            self._shown += len(new)

    def on_progress(self, frame: ProgressFrame) -> None:
        if self._state is State.FOLLOWING:
            self.sink.offer(
                ProgressItem(
                    conversation=self.conversation,
                    call_id=frame.call_id,
                    name=frame.name,
                    text=frame.text,
                    type=frame.type,
                )
            )

    def on_status(self, frame: StatusFrame) -> None:
        if self._state is State.FOLLOWING:
            self._take(StatusItem(conversation=self.conversation, status=frame.status))

    def _take(self, item: AnyItem) -> bool:
        if self.sink.offer(item):
            return True
        self._state = next_state(self._state, Signal.NO_ROOM)
        return False

    def __repr__(self) -> str:
        cursor = f"({self._cursor.epoch}, {self._cursor.event})" if self._cursor else None
        return f"<Follow {self.conversation!r} {self._state.name} cursor={cursor}>"
