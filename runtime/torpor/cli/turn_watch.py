"""One message and the turn that answers it, told from the items of a watch; knows no socket and no terminal."""

from collections.abc import Iterable
from enum import StrEnum

from torpor.records.events import (
    AnyEvent,
    ModelFailedEvent,
    ReplyFinishedEvent,
    ToolFinishedEvent,
    TurnCancelledEvent,
    TurnFailedEvent,
    TurnFinishedEvent,
    TurnRefusedEvent,
    TurnStartedEvent,
)
from torpor.records.terms import Offer


class Ending(StrEnum):
    """How the turn ended."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"
    REFUSED = "refused"


class AnsweringTurn:
    """Looks for the turn that takes ``message_id`` and follows it to its end.

    A message that steers may join a turn that runs already, which no event says. So the turn that runs when it is
    accepted is followed too, until another one turns out to take the message.
    """

    def __init__(self, message_id: str, *, accepted_at: int, steers: bool) -> None:
        """Args: accepted_at: number of the message's event; turns that ended before it are not meant."""
        self._message_id = message_id
        self._accepted_at = accepted_at
        self._steers = steers
        self._takes_it = False
        self.turn = 0
        self.text = ""
        """Of the last reply, or of the part that was said."""
        self.tools: list[dict[str, str]] = []
        self.ending: Ending | None = None
        self.code = ""
        self.detail = ""
        """Why it was cancelled, refused, or failed."""
        self.offers: tuple[Offer, ...] = ()
        self.stop_reason = ""
        """Of the last reply, in the host's word."""
        self.waits: list[ModelFailedEvent] = []
        """Model calls that failed, in order."""

    @property
    def is_certain(self) -> bool:
        """Whether the turn that has ended is the one, or only the one that ran when the message was accepted."""
        return self._takes_it

    def take(self, events: Iterable[AnyEvent]) -> None:
        """Events in order; those seen before, and those of other turns, change nothing."""
        for event in events:
            self._take(event)

    def _take(self, event: AnyEvent) -> None:
        if isinstance(event, TurnStartedEvent) and self._message_id in event.messages:
            self._begin(event.turn)
            self._takes_it = True
        elif self._is_joined(event):
            self._begin(event.turn)
        if event.turn == 0 or event.turn != self.turn or self.ending is not None:
            return
        match event:
            case ReplyFinishedEvent():
                self.text, self.stop_reason = event.text, event.stop_reason
            case ModelFailedEvent():
                self.waits.append(event)
            case ToolFinishedEvent():
                self.tools.append({"name": event.name, "outcome": event.outcome.value})
            case TurnFinishedEvent():
                self.ending = Ending.FINISHED
            case TurnCancelledEvent():
                self.ending, self.text, self.detail = Ending.CANCELLED, event.text, event.reason
            case TurnFailedEvent():
                self.ending, self.text = Ending.FAILED, event.text
                self.code, self.detail, self.offers = event.code, event.detail, event.offers
            case TurnRefusedEvent():
                self.ending, self.text, self.detail = Ending.REFUSED, "", event.detail
            case _:
                pass

    def _is_joined(self, event: AnyEvent) -> bool:
        return self._steers and self.turn == 0 and event.turn > 0 and event.event > self._accepted_at

    def _begin(self, turn: int) -> None:
        if turn != self.turn:
            self.turn, self.text, self.tools, self.ending = turn, "", [], None
            self.stop_reason, self.waits = "", []
