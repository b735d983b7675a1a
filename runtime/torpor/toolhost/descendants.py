"""Whatever a process has started, however far it went from it: found by who started whom, and killed.

A process that calls ``setsid`` leaves the group of its parent and not the tree. One whose parent has ended stays below
the nearest process that called ``adopt_orphans``. Linux only; elsewhere nothing is found.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
"""linux/prctl.h"""
_ROUNDS: Final = 4
"""What is killed may have started something just before."""


def adopt_orphans() -> None:
    """From now on, what is started below this process stays below it."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> set[int]:
    """Of a process that is there."""
    found: set[int] = set()
    unseen = [pid]
    while unseen:
        children = _children(unseen.pop()) - found
        found |= children
        unseen += children
    return found


def kill_descendants(pid: int) -> None:
    """Those of ``pid``, which is stopped meanwhile so that it starts no more; it is for the caller to kill."""
    if not (found := descendants(pid)):
        return
    _send(pid, signal.SIGSTOP)
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        for child in found:
            _send(child, signal.SIGKILL)
        killed |= found
        found = descendants(pid) - killed
        if not found:
            break


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found.update(map(int, (task / "children").read_text().split()))
    return found


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
