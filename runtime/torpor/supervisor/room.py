"""How many actors may live, and what whoever finds no room is told.

Above: ``lives``, which asks before it starts an actor and at each look around. Below: the memory port. Nothing is
queued here: who is turned away was told to come again, later the more of them there are, and not all at once.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from torpor.errors import Busy
from torpor.supervisor.memory import Memory, bound_bytes
from torpor.supervisor.options import SupervisorOptions
from torpor.supervisor.statistics import Refusal

_log = structlog.get_logger()

_MEASURED_EVERY_S: Final = 0.1
_REMEMBERED_MAX: Final = 10_000
"""Of those turned away; at so many the longest wait is told anyway."""
_LEAVE_PART: Final = 8
"""One part of so many hibernates at each look, while memory is short."""
_FULL: Final = {
    Refusal.LIVE: ("server", "supervisor.live_max"),
    Refusal.MEMORY: ("memory of the server", "supervisor.memory_max_bytes or supervisor.memory_share"),
}
"""What is full, and what bounds it."""


class Room:
    """See the module docstring."""

    def __init__(
        self,
        options: SupervisorOptions,
        *,
        memory: Memory,
        chance: Callable[[], float],
        monotonic_s: Callable[[], float],
    ) -> None:
        """Args: chance: a number from 0 up to 1, another one each time."""
        self._options = options
        self._memory = memory
        self._chance = chance
        self._monotonic_s = monotonic_s
        self._bound_bytes = bound_bytes(options, memory)
        self._measured_s = -_MEASURED_EVERY_S
        self._turned_away = deque[float](maxlen=_REMEMBERED_MAX)
        self._is_short = False

    def memory_bytes(self) -> int:
        """Of the process, now; 0 where it cannot be told."""
        return self._memory.used_bytes()

    def is_short_of_memory(self) -> bool:
        """Whether the process is over its bound; measured now and then."""
        if not self._bound_bytes:
            return False
        now_s = self._monotonic_s()
        if now_s - self._measured_s >= _MEASURED_EVERY_S:
            self._measured_s = now_s
            self._tell(self._memory.used_bytes())
        return self._is_short

    def trim(self) -> None:
        """Give back what those that left have freed, and measure again when asked."""
        self._memory.trim()
        self._measured_s = -_MEASURED_EVERY_S

    def surplus(self, live: int) -> int:
        """How many of the live ones are more than may live."""
        return max(0, live - self._options.live_max)

    def leaving_for_memory(self, live: int) -> int:
        """How many of them should leave at this look, since memory is short."""
        return max(1, live // _LEAVE_PART) if live else 0

    def turned_away(self, why: Refusal, *, live: int, waiting: int) -> Busy:
        """What the sender of a command that found no room is told.

        Args: waiting: conversations that wait for their turn to thaw.
        """
        now_s = self._monotonic_s()
        longest_s = self._options.busy_retry_after_max_s
        while self._turned_away and now_s - self._turned_away[0] > longest_s:
            self._turned_away.popleft()
        queue = waiting + len(self._turned_away)
        self._turned_away.append(now_s)
        wait_s = min(self._options.busy_retry_after_s * (1 + queue / self._options.thaws_max), longest_s)
        what, bound = _FULL[why]
        # Half of it to all of it: those that were turned away together do not come back together.
        retry_after_s = round(wait_s * (1 + self._chance()) / 2, 3)
        return Busy(what, waiting=queue, awake=live, bound=bound, retry_after_s=retry_after_s)

    def _tell(self, used_bytes: int) -> None:
        is_short = used_bytes > self._bound_bytes
        if is_short is not self._is_short:
            self._is_short = is_short
            name = "memory.short" if is_short else "memory.sufficient"
            _log.warning(name, used_bytes=used_bytes, bound_bytes=self._bound_bytes)
