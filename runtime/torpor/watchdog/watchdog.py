"""Looks after one event loop from a thread of its own, and says in the log what held it up.

Above: the composition root, which runs it; metrics, which read its statistics. Below: the judge, which tells what the
readings mean; the contract by which the tool host tells what runs. The loop itself does nothing but sleep and note when
it woke up.
"""

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.abc
import structlog

from torpor.clock import Clock
from torpor.watchdog.contract import Suspects
from torpor.watchdog.judge import Beat, Blocked, Cause, Finding, Judge, Reading, Resumed, Suspended
from torpor.watchdog.naming import bystanders, culprits, names, passed
from torpor.watchdog.options import WatchdogOptions
from torpor.watchdog.stacks import EMPTY, Stack, cpu_of_s, in_line_s, stack_of, turns_of
from torpor.watchdog.statistics import WatchdogStatistics

_BEATS_MAX: Final = 1_024
"""Not looked at yet; the oldest are lost first."""

_log = structlog.get_logger()


class Watchdog:
    """For the loop on which ``running`` is entered."""

    def __init__(
        self, options: WatchdogOptions, *, clock: Clock, process_cpu_s: Callable[[], float], suspects: Suspects
    ) -> None:
        """Args: process_cpu_s: what the process has used of the processor since it began."""
        self._options = options
        self._now_s = clock.monotonic_s
        self._cpu_s = process_cpu_s
        self._suspects = suspects
        self._judge = Judge(options, now_s=self._now_s(), cpu_s=self._cpu_s())
        self._judging = threading.Lock()
        self._beats: deque[Beat] = deque(maxlen=_BEATS_MAX)
        self._next_beat_s = 0.0
        self._loop_thread = 0
        self._named: set[str] = set()
        """Tools that were told of while the loop has been late."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch until the block ends."""
        is_over = threading.Event()
        self._loop_thread = threading.get_ident()
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._beat, name="watchdog:beat")
            threading.Thread(target=self._watch, args=(is_over,), name="watchdog", daemon=True).start()
            try:
                yield
            finally:
                is_over.set()
                tasks.cancel_scope.cancel()

    def statistics(self) -> WatchdogStatistics:
        with self._judging:
            return self._judge.statistics()

    async def _beat(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        self._next_beat_s = self._now_s() + self._options.beat_s
        task_status.started()
        while True:
            await anyio.sleep(self._options.beat_s)
            at_s = self._now_s()
            self._beats.append(Beat(self._next_beat_s, at_s))
            self._next_beat_s = at_s + self._options.beat_s

    def _watch(self, is_over: threading.Event) -> None:
        while True:
            now_s = self._now_s()
            pause_s = self._judge.next_look_s(self._next_beat_s, now_s=now_s)
            if is_over.wait(pause_s):
                return
            try:
                self._look(due_s=now_s + pause_s)
            except Exception:  # noqa: BLE001  # a background edge: what cannot be told must not end the watch
                _log.error("watchdog.failed", exc_info=True)

    def _look(self, *, due_s: float) -> None:
        at_s = self._now_s()
        beats = [self._beats.popleft() for _ in range(len(self._beats))]
        next_beat_s = self._next_beat_s  # read after the beats, so that none is both heard and missed
        stack = stack_of(self._loop_thread) if at_s - next_beat_s >= self._options.lag_warn_s else EMPTY
        reading = Reading(
            due_s=due_s,
            at_s=at_s,
            cpu_s=self._cpu_s(),
            in_line_s=in_line_s(threading.get_native_id()),
            next_beat_s=next_beat_s,
            turns=turns_of(threading.get_native_id()),
        )
        with self._judging:
            findings = list(self._judge.look(reading, beats))
        for finding in findings:
            self._tell(finding, stack)

    def _tell(self, finding: Finding, stack: Stack) -> None:
        match finding:
            case Blocked():
                self._tell_blocked(finding, stack)
            case Resumed():
                others = self._suspects.between(finding.since_s, finding.until_s)
                self._named.update(names(passed(finding, others, long_s=self._options.lag_warn_s)))
                _log.info("loop.resumed", blocked_s=round(finding.blocked_s, 3), tools=tuple(sorted(self._named)))
                self._named.clear()
            case Suspended():
                running = bystanders(finding, self._suspects.between(finding.since_s, finding.until_s))
                for_s = round(finding.until_s - finding.since_s, 3)
                _log.info("process.suspended", for_s=for_s, cpu_s=round(finding.cpu_s, 3), running=names(running))

    def _tell_blocked(self, blocked: Blocked, stack: Stack) -> None:
        suspects = self._suspects.between(blocked.since_s, blocked.until_s)
        found = culprits(blocked, suspects, stack=stack, cpu_of_s=cpu_of_s, long_s=self._options.lag_warn_s)
        if not blocked.is_over:
            self._named.update(names(found))
        frames = stack.frames
        if blocked.cause is Cause.INTERPRETER_HELD:
            # The loop's own stack tells nothing of what another thread did.
            threads = [run.thread_id for run in found if run.thread_id and run.ended_s is None]
            frames = stack_of(threads[0]).frames if threads else frames
        _log.warning(
            "loop.blocked",
            for_s=round(blocked.until_s - blocked.since_s, 3),
            cause=blocked.cause.value,
            tools=names(found),
            frames=frames,
        )
