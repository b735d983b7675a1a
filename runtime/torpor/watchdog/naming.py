"""Whose code held up the loop: the runs that fit what was seen, by name; pure.

A thread's time on the processor tells the one that computed from those that waited; where the system does not tell it,
all that ran for most of the gap are named. On the loop, where all share one thread, the stack tells; without one, so
does a run that took most of the gap and ended with it.
"""

from collections.abc import Callable, Iterable
from typing import Final

from torpor.watchdog.contract import Suspect
from torpor.watchdog.judge import Blocked, Cause, Resumed, Suspended
from torpor.watchdog.stacks import Stack

_MOST: Final = 0.5


def culprits(
    blocked: Blocked,
    suspects: Iterable[Suspect],
    *,
    stack: Stack,
    cpu_of_s: Callable[[int], float | None],
    long_s: float,
) -> list[Suspect]:
    """Args: stack: of the loop's thread, when the watchdog saw that it was late.  long_s: see ``passed``."""
    known = tuple(suspects)
    on_loop = [suspect for suspect in known if not suspect.thread_id]
    seen = [run for run in on_loop if run.ended_s is None and run.code in stack.codes]
    if not seen:
        # A task that the tool began has the tool's file in its stack, not its function.
        files = stack.files
        seen = [run for run in on_loop if run.ended_s is None and run.code and run.code.co_filename in files]
    if seen:
        return seen
    found = [run for run in on_loop if run.ended_s is not None and _covers(run, blocked.since_s, blocked.until_s)]
    found += passed(blocked, on_loop, long_s=long_s)
    if blocked.cause is Cause.INTERPRETER_HELD:
        found += [run for run in known if run.thread_id and _computed(run, blocked, cpu_of_s=cpu_of_s)]
    return found


def passed(gap: Blocked | Resumed, suspects: Iterable[Suspect], *, long_s: float) -> list[Suspect]:
    """Those on the loop that began and ended in the gap, so that nobody else ran meanwhile, and took ``long_s``."""
    return [
        run
        for run in suspects
        if not run.thread_id
        and run.ended_s is not None
        and gap.since_s <= run.began_s
        and run.ended_s <= gap.until_s
        and run.ended_s - run.began_s >= long_s
    ]


def bystanders(suspended: Suspended, suspects: Iterable[Suspect]) -> list[Suspect]:
    """Those that were under way in threads: one that holds the interpreter and waits looks like a suspended process."""
    return [run for run in suspects if run.thread_id and _covers(run, suspended.since_s, suspended.until_s)]


def names(runs: Iterable[Suspect]) -> tuple[str, ...]:
    """Sorted, each once."""
    return tuple(sorted({run.name for run in runs}))


def _computed(run: Suspect, blocked: Blocked, *, cpu_of_s: Callable[[int], float | None]) -> bool:
    used_s: float | None = run.cpu_used_s
    if run.ended_s is None:
        now_s = cpu_of_s(run.native_id)
        used_s = None if now_s is None else now_s - run.cpu_began_s
    if used_s is None:
        return _covers(run, blocked.since_s, blocked.until_s)
    return used_s >= _MOST * blocked.cpu_s


def _covers(run: Suspect, since_s: float, until_s: float) -> bool:
    """Whether it ran for most of the time."""
    ended_s = until_s if run.ended_s is None else min(run.ended_s, until_s)
    return ended_s - max(run.began_s, since_s) >= _MOST * (until_s - since_s)
