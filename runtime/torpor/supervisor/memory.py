"""How much memory the process uses, and how much it may: the supervisor's port, and the machine's own answer."""

import ctypes
import resource
import sys
from pathlib import Path
from typing import Final, Protocol

from torpor.supervisor.options import SupervisorOptions

_UNLIMITED_BYTES: Final = 2**60
"""A limit as large as this is none; older systems write one."""


class Memory(Protocol):
    """Owned by whoever runs the supervisor, so that tests own it."""

    def used_bytes(self) -> int:
        """Resident; 0 where it cannot be told. Asked on the event loop: quick."""
        ...

    def limit_bytes(self) -> int:
        """What the process may use before the system ends it; 0 for no limit that is known."""
        ...

    def trim(self) -> None:
        """Give back to the system what was freed."""
        ...


class Unmeasured:
    """Implements ``Memory``: there is always enough."""

    def used_bytes(self) -> int:
        return 0

    def limit_bytes(self) -> int:
        return 0

    def trim(self) -> None:
        return


class ProcessMemory:
    """Implements ``Memory`` on Linux: pages from ``/proc``, the limit of its control group. Elsewhere it knows nothing.

    Args: proc, groups: where these are mounted.
    """

    def __init__(self, *, proc: Path = Path("/proc/self"), groups: Path = Path("/sys/fs/cgroup")) -> None:
        self._pages = proc / "statm"
        self._limit_bytes = _limit_bytes(proc / "cgroup", groups)

    def used_bytes(self) -> int:
        try:
            return int(self._pages.read_bytes().split()[1]) * resource.getpagesize()
        except (OSError, ValueError, IndexError):
            return 0

    def limit_bytes(self) -> int:
        return self._limit_bytes

    def trim(self) -> None:
        if sys.platform == "linux":
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, others need not
            if trim is not None:
                trim(0)


def bound_bytes(options: SupervisorOptions, memory: Memory) -> int:
    """What the process should stay below; 0 for no bound."""
    share_bytes = round(options.memory_share * memory.limit_bytes())
    return min((bound for bound in (options.memory_max_bytes, share_bytes) if bound), default=0)


def _limit_bytes(membership: Path, groups: Path) -> int:
    """The tightest limit of the process's control group and of those around it."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return 0
    limits: list[int] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if not controllers:
            limits += _limits(groups, name, file="memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(groups / "memory", name, file="memory.limit_in_bytes")
    return min(limits, default=0)


def _limits(root: Path, name: str, *, file: str) -> list[int]:
    """Inside a container the group's own name may not exist below the mount, whose top then is the group."""
    inner = Path(name.lstrip("/"))
    found = [_limit(root / place / file) for place in (inner, *inner.parents)]
    return [limit for limit in found if limit]


def _limit(path: Path) -> int:
    try:
        limit = int(path.read_text())
    except (OSError, ValueError):  # "max" is no number
        return 0
    return limit if 0 < limit < _UNLIMITED_BYTES else 0
