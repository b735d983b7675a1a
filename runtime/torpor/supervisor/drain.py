"""The end of a server, in order: nothing begins any more, what runs comes to the end of its step, the rest is cut off.

    begin ──▶ no turn, step or job begins; commands are answered ``unavailable``, except those that end a turn
          ──▶ jobs end, or are put back        ──▶ turns come to the end of their step, or are cut off at the deadline

Above: the composition root, which runs it before it closes the gateway, so that clients see how things end; operators,
who may begin it. Below: the registry and the job runner. What is not done stays due in the store, and goes on at the
next start without anybody's doing.
"""

from math import inf
from typing import Final

import anyio
import msgspec
import structlog

from torpor.clock import Clock
from torpor.jobs.runner import JobRunner
from torpor.supervisor.contract import Draining
from torpor.supervisor.registry import Supervisor

_MICROSECONDS: Final = 1_000_000
_log = structlog.get_logger()


class DrainStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of the one drain that a process can have."""

    draining: int
    """1 from its beginning, 0 before."""
    turns_left: int
    """That have not come to the end of a step; 0 while nothing drains."""
    cut_off: int
    """Turns that did not do so in time."""


class Drain:
    """See the module docstring. One for a process."""

    def __init__(self, *, actors: Supervisor, jobs: JobRunner, clock: Clock, deadline_s: float) -> None:
        """Args: deadline_s: for the turns that run, unless whoever begins it says another."""
        self._actors = actors
        self._jobs = jobs
        self._clock = clock
        self._deadline_s = deadline_s
        self._ends_s = inf
        """Monotonic."""
        self._ends_us = 0
        self._scope = anyio.CancelScope()
        """Of the waiting."""
        self._cut_off = 0
        self.began = anyio.Event()

    def begin(self, *, deadline_s: float | None = None) -> Draining:
        """Let nothing begin any more, and give turns that run ``deadline_s`` (by default the configured one) to come to
        the end of a step. One that has begun can be given less time, not more. Waits for nothing."""
        deadline_s = self._deadline_s if deadline_s is None else deadline_s
        if (ends_s := self._clock.monotonic_s() + deadline_s) < self._ends_s:
            self._ends_s = ends_s
            self._ends_us = self._clock.now_us() + round(deadline_s * _MICROSECONDS)
            self._scope.deadline = anyio.current_time() + deadline_s
        if not self.began.is_set():
            self.began.set()
            self._jobs.stop_claiming()
            self._actors.stop_taking()
            _log.info("server.draining", turns=len(self._actors.turns()), deadline_s=deadline_s)
        return self.status()

    def left_s(self) -> float:
        """Until what is left is cut off; all of the deadline while it has not begun."""
        return max(
            0.0, min(self._deadline_s if not self.began.is_set() else inf, self._ends_s - self._clock.monotonic_s())
        )

    async def finish(self) -> None:
        """Begin, unless that was done, and return when nothing runs any more or was cut off. Shielded, and bounded by
        the deadline."""
        if not self.began.is_set():
            self.begin()
        self._scope.shield = True
        with self._scope:
            await self._jobs.emptied()
            await self._actors.emptied()
        self._cut_off = self._actors.cut_off()
        _log.info("server.drained", cut_off=self._cut_off)

    def status(self) -> Draining:
        return Draining(
            draining=self.began.is_set(),
            turns=len(self._actors.turns()),
            jobs=self._jobs.statistics().running,
            ends_us=self._ends_us,
        )

    def statistics(self) -> DrainStatistics:
        """Costs a look at each live conversation while it drains."""
        is_draining = self.began.is_set()
        return DrainStatistics(
            draining=int(is_draining),
            turns_left=len(self._actors.turns()) if is_draining else 0,
            cut_off=self._cut_off,
        )

    def __repr__(self) -> str:
        return f"<Drain began={self.began.is_set()} cut_off={self._cut_off}>"
