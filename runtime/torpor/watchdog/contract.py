"""What may have held up the event loop, as whoever runs foreign code tells it."""

from collections.abc import Sequence
from types import CodeType
from typing import Protocol

import msgspec


class Suspect(msgspec.Struct, kw_only=True, eq=False):
    """One run of foreign code in this process: under way, or over for a short while."""

    name: str
    code: CodeType | None
    """Of its function, to be found in a stack."""
    thread_id: int
    """As the interpreter has it; 0 for the event loop's own."""
    native_id: int
    """As the system has it."""
    began_s: float
    """Monotonic."""
    cpu_began_s: float
    """What its thread had used of the processor by then."""
    ended_s: float | None = None
    cpu_used_s: float = 0.0
    """Of the processor, once it has ended."""


class Suspects(Protocol):
    """Asked from another thread than the loop's."""

    def between(self, began_s: float, ended_s: float) -> Sequence[Suspect]:
        """Those that ran at any time in between; those that ended long ago may be forgotten."""
        ...


class NoSuspects:
    """Nothing foreign runs here."""

    def between(self, began_s: float, ended_s: float) -> Sequence[Suspect]:
        return ()
