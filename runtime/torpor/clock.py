"""The clock, the ids and the randomness of the process, as ports.

Everything above takes a ``Clock`` and an ``IdSource``, so that simulation can own time and names. Only this module
and the composition root touch the real ones.
"""

import os
import time
from typing import Final, Protocol

_CHANCE_BYTES: Final = 6


class Clock(Protocol):
    """Wall time for records, monotonic time for durations."""

    def now_us(self) -> int:
        """UTC, microseconds since 1970; may step."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary origin; never steps back."""
        ...


class IdSource(Protocol):
    """Names that never repeat within a store."""

    def new_id(self) -> str:
        """16 characters of ``[0-9a-f]``."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic_s(self) -> float:
        return time.monotonic()


def chance() -> float:
    """A number from 0 up to 1 that nobody can foresee."""
    return int.from_bytes(os.urandom(_CHANCE_BYTES), "big") / 256**_CHANCE_BYTES


class RandomIds:
    """64 random bits from the operating system per id, drawn many at a time, since a call to it costs as much as an id.

    A forked process would repeat the ids of its parent; servers do not fork.
    """

    def __init__(self) -> None:
        self._drawn: list[str] = []

    def new_id(self) -> str:
        if not self._drawn:
            digits = os.urandom(8 * 64).hex()
            self._drawn = [digits[start : start + 16] for start in range(0, len(digits), 16)]
        return self._drawn.pop()
