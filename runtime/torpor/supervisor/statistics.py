"""What the supervisor counts, and how it tells it."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

import msgspec


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
