"""A circuit for one model host: after enough failures in a row a dead host costs one probe at a time, not a storm.

CLOSED --failures--> OPEN --cool-down--> PROBING --success--> CLOSED
                       ^                    |
                       +------failure-------+
"""

from enum import Enum

import msgspec

from torpor.clock import Clock
from torpor.records.bounds import Count, Pause


class CircuitOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts and seconds."""

    failures_max: Count = 5
    """Failures in a row of a host's own making, before no more calls are let through."""
    cool_down_s: Pause = 15.0
    """Until one call may try again."""


class CircuitState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


class Circuit:
    """Asked before each call, told after each; never waits."""

    def __init__(self, options: CircuitOptions, *, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._failures = 0
        self._opens_at_s = 0.0
        self._state = CircuitState.CLOSED

    @property
    def state(self) -> CircuitState:
        return self._state

    def blocked_for_s(self) -> float:
        """0 when a call may go out now, which then is the probe if one is due; otherwise how long none may."""
        if self._state is CircuitState.CLOSED:
            return 0.0
        rest_s = self._opens_at_s - self._clock.monotonic_s()
        if rest_s > 0:
            return rest_s
        # A probe that never reports back (its turn was cancelled) must not keep the circuit open for ever.
        self._state = CircuitState.PROBING
        self._opens_at_s = self._clock.monotonic_s() + self._options.cool_down_s
        return 0.0

    def succeeded(self) -> None:
        """The host answered, be it with a refusal of the request."""
        self._failures = 0
        self._state = CircuitState.CLOSED

    def failed(self) -> None:
        """The host could not be reached, or failed on its side."""
        self._failures += 1
        if self._state is CircuitState.PROBING or self._failures >= self._options.failures_max:
            self._state = CircuitState.OPEN
            self._opens_at_s = self._clock.monotonic_s() + self._options.cool_down_s

    def __repr__(self) -> str:
        return f"<Circuit {self._state.value} failures={self._failures}>"
