"""The life of an actor as a table: what it is doing, and what each signal makes of it.

THAWING -> IDLE <-> IN_TURN
             |
             v
        HIBERNATING -> STOPPED      (a crash or a newer fence leads to STOPPED from anywhere)
"""

from enum import Enum
from typing import Final

from torpor.errors import IllegalTransition


class ActorState(Enum):
    """What an actor is doing."""

    THAWING = "thawing"
    IDLE = "idle"
    IN_TURN = "running"
    HIBERNATING = "hibernating"
    STOPPED = "stopped"


class Signal(Enum):
    """What can happen to it."""

    LOADED = "loaded"
    WORK_FOUND = "work_found"
    RESTED = "rested"
    MAILBOX_CLOSED = "mailbox_closed"
    RELEASED = "released"
    ENDED = "ended"
    """It crashed, was fenced, or its process stops."""


TRANSITIONS: Final = {
    (ActorState.THAWING, Signal.LOADED): ActorState.IDLE,
    (ActorState.IDLE, Signal.WORK_FOUND): ActorState.IN_TURN,
    (ActorState.IN_TURN, Signal.RESTED): ActorState.IDLE,
    (ActorState.IDLE, Signal.MAILBOX_CLOSED): ActorState.HIBERNATING,
    (ActorState.HIBERNATING, Signal.RELEASED): ActorState.STOPPED,
}


def next_state(state: ActorState, signal: Signal) -> ActorState:
    """The state after ``signal``. Raises: IllegalTransition: the table does not list the pair."""
    if signal is Signal.ENDED:
        return ActorState.STOPPED
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(state, signal) from None
