"""What the supervisor counts, and how it tells it."""

from collections import Counter
from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from torpor.actor.lifecycle import ActorState
from torpor.supervisor.entry import Entry


class Sleep(StrEnum):
    """Why an actor hibernated."""

    IDLE = "idle"
    LRU = "lru"
    """Another one wanted its place."""
    MEMORY = "memory"
    ASKED = "asked"
    """By an operator, or since the process stops."""


class Refusal(StrEnum):
    """Why no further actor was started."""

    LIVE = "live"
    """As many as may live are at work."""
    MEMORY = "memory"


class SupervisorStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Now, and since the start of the process."""

    live: Mapping[str, int]
    """Actors by what they are doing; those that wait for their turn to thaw are ``thawing``."""
    resting: int
    """Of these, with nothing to do and nothing to read."""
    waiting_commands: int
    """In mailboxes, or for the next incarnation."""
    waiting_thaws: int
    memory_bytes: int
    """Of the process, resident; 0 where it cannot be told."""
    thaws: int
    crashes: int
    restarts: int
    """After a crash."""
    quarantines: int
    releases: int
    hibernations: Mapping[str, int]
    refused: Mapping[str, int]
    """Commands that would have started an actor."""


class Counts:
    """What happened since the start."""

    __slots__ = ("crashes", "hibernations", "quarantines", "refused", "releases", "restarts", "thaws")

    def __init__(self) -> None:
        self.thaws = 0
        self.crashes = 0
        self.restarts = 0
        self.quarantines = 0
        self.releases = 0
        self.hibernations = Counter[str](dict.fromkeys(Sleep, 0))
        self.refused = Counter[str](dict.fromkeys(Refusal, 0))


def statistics_of(
    entries: Collection[Entry], counts: Counts, *, waiting_thaws: int, memory_bytes: int
) -> SupervisorStatistics:
    """Of the live conversations as they are, and of what happened before; a look at each."""
    live = Counter({state.value: 0 for state in ActorState if state is not ActorState.STOPPED})
    live.update(shown(entry.actor.state).value for entry in entries)
    return SupervisorStatistics(
        live=live,
        resting=sum(entry.actor.state is ActorState.IDLE and not entry.waiting for entry in entries),
        waiting_commands=sum(entry.waiting for entry in entries),
        waiting_thaws=waiting_thaws,
        memory_bytes=memory_bytes,
        thaws=counts.thaws,
        crashes=counts.crashes,
        restarts=counts.restarts,
        quarantines=counts.quarantines,
        releases=counts.releases,
        hibernations=dict(counts.hibernations),
        refused=dict(counts.refused),
    )


def shown(state: ActorState) -> ActorState:
    """Between two incarnations a conversation is on its way back."""
    return ActorState.THAWING if state is ActorState.STOPPED else state
