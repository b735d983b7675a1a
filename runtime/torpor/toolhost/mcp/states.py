"""How a connection to a server stands, and how long it rests after a failure. Pure.

idle --wanted--> starting --listed--> up --lost--> resting --rested--> starting
  ^                 |                  |              |
  |                 +---failed---------|------------->+
  +------------------------------------+ stopped, since nobody called for a while
"""

from enum import StrEnum
from typing import Final

from torpor.errors import IllegalTransition
from torpor.toolhost.mcp.options import McpOptions

_DOUBLINGS_MAX: Final = 30


class ServerState(StrEnum):
    """Of one connection."""

    IDLE = "idle"
    """Nobody needs it; what it offered when it was up still counts, unless it was given up while it rested."""
    STARTING = "starting"
    UP = "up"
    RESTING = "resting"
    """It failed, and is tried again after a pause."""


class ServerSignal(StrEnum):
    """What happens to one."""

    WANTED = "wanted"
    LISTED = "listed"
    FAILED = "failed"
    LOST = "lost"
    STOPPED = "stopped"
    RESTED = "rested"


TRANSITIONS: Final = {
    (ServerState.IDLE, ServerSignal.WANTED): ServerState.STARTING,
    (ServerState.STARTING, ServerSignal.LISTED): ServerState.UP,
    (ServerState.STARTING, ServerSignal.FAILED): ServerState.RESTING,
    (ServerState.UP, ServerSignal.LOST): ServerState.RESTING,
    (ServerState.UP, ServerSignal.STOPPED): ServerState.IDLE,
    (ServerState.RESTING, ServerSignal.RESTED): ServerState.STARTING,
    (ServerState.RESTING, ServerSignal.STOPPED): ServerState.IDLE,
}


def next_state(state: ServerState, signal: ServerSignal) -> ServerState:
    """Raises: IllegalTransition."""
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(state, signal) from None


def pause_s(failures: int, *, options: McpOptions, chance: float) -> float:
    """Before the next attempt. Args: failures: in a row, at least 1.  chance: from 0 up to 1, drawn anew each time."""
    whole_s = min(options.backoff_s * 2 ** min(failures - 1, _DOUBLINGS_MAX), options.backoff_max_s)
    return float(whole_s * (1 - options.backoff_jitter * chance))
