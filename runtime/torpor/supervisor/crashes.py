"""What follows a crash: a pause that grows, or quarantine. Pure but for what it remembers.

Above: ``lives``, which starts actors again. Two bounds hold beside each other: crashes in a row without a commit
between them, which end what never gets anywhere, and crashes within a window whatever was committed, which end what
gets somewhere and crashes again and again. Failures of the store are nobody's own, so they lengthen the pause and
count for neither.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

import msgspec

from torpor.errors import Fenced, JournalCorrupt, StoreError
from torpor.records.ids import ConversationKey
from torpor.supervisor.options import SupervisorOptions

_SPREAD: Final = 0.25
"""A pause is this part shorter or longer, at most, so that what crashed together does not start together."""
_DOUBLINGS_MAX: Final = 16


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done after a crash."""

    in_a_row: int
    pause_s: float
    """Before the next start."""
    given_up: str = ""
    """Why there is none; empty when there is."""


class _Past:
    """Of one conversation."""

    __slots__ = ("in_a_row", "times_s")

    def __init__(self, crashes_max: int) -> None:
        self.in_a_row = 0
        self.times_s = deque[float](maxlen=crashes_max)
        """The last ones that were its own, whatever was committed between them."""


class Crashes:
    """Remembers each conversation for as long as its last crash may count."""

    def __init__(self, options: SupervisorOptions, *, chance: Callable[[], float]) -> None:
        """Args: chance: a number from 0 up to 1, another one each time."""
        self._options = options
        self._chance = chance
        self._pasts: OrderedDict[ConversationKey, _Past] = OrderedDict()
        """The one that crashed last at the end."""
        self._kept_s = max(options.crash_window_s, 2 * options.restart_backoff_max_s)
        self._last_s: dict[ConversationKey, float] = {}

    def add(self, key: ConversationKey, *, now_s: float, has_progressed: bool, is_own: bool) -> Verdict:
        """Args: has_progressed: whether anything was committed since the start.  is_own: not a failure of the store."""
        self._forget_old(now_s)
        past = self._pasts.setdefault(key, _Past(self._options.crashes_max))
        self._pasts.move_to_end(key)
        self._last_s[key] = now_s
        past.in_a_row = 1 if has_progressed else past.in_a_row + 1
        if is_own:
            past.times_s.append(now_s)
        return Verdict(
            in_a_row=past.in_a_row,
            pause_s=self._pause_s(past.in_a_row),
            given_up=self._too_many(past, now_s) if is_own else "",
        )

    def rested(self, key: ConversationKey) -> None:
        """It left in good order: crashes before and after that are not in a row."""
        if (past := self._pasts.get(key)) is not None:
            past.in_a_row = 0

    def forget(self, key: ConversationKey) -> None:
        """Begin anew."""
        self._pasts.pop(key, None)
        self._last_s.pop(key, None)

    def __len__(self) -> int:
        return len(self._pasts)

    def _too_many(self, past: _Past, now_s: float) -> str:
        options = self._options
        if past.in_a_row > options.restarts_max:
            return f"{past.in_a_row} crashes in a row"
        if len(past.times_s) == options.crashes_max and now_s - past.times_s[0] <= options.crash_window_s:
            return f"{options.crashes_max} crashes within {options.crash_window_s:g} s"
        return ""

    def _pause_s(self, in_a_row: int) -> float:
        options = self._options
        pause_s = options.restart_backoff_s * 2.0 ** min(in_a_row - 1, _DOUBLINGS_MAX)
        spread = _SPREAD * (2 * self._chance() - 1)
        return float(min(pause_s, options.restart_backoff_max_s) * (1 + spread))

    def _forget_old(self, now_s: float) -> None:
        while self._pasts and now_s - self._last_s[next(iter(self._pasts))] > self._kept_s:
            key, _ = self._pasts.popitem(last=False)
            del self._last_s[key]


def root_cause(exc: Exception) -> Exception:
    """Of the errors that ended an actor's tasks together, the one that decides: a fence first, then the store's."""
    if not isinstance(exc, ExceptionGroup):
        return exc
    leaves = [root_cause(inner) for inner in exc.exceptions]
    for kind in (Fenced, JournalCorrupt, StoreError):
        if (found := next((leaf for leaf in leaves if isinstance(leaf, kind)), None)) is not None:
            return found
    return leaves[0]
