"""How long a verb waits for a server that answers late, or has gone away, and what it says meanwhile."""

import re
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import anyio

from torpor.records.frames import Welcome

_NUMBER: Final = re.compile(r"\d[\d.]*")


class Patience:
    """Waits no longer than ``deadline_s`` in all, and ``outage_s`` at a time without a server: ``with``.

    What is in the block is cancelled when it is over; ``ran_out`` then says why, in words that follow "no reply".
    """

    def __init__(self, *, deadline_s: float, outage_s: float, url: str, say: Callable[[str], None]) -> None:
        """Args: say: shows a line to whoever waits."""
        self._deadline_s = deadline_s
        self._outage_s = outage_s
        self._url = url
        self._say = say
        self._scope = anyio.CancelScope()
        self._ends_s = 0.0
        self._is_waiting = False
        self._is_connected = False
        self._was_connected = False
        self._reasons: set[str] = set()
        self.ran_out = ""

    def __enter__(self) -> Self:
        self._is_waiting = True
        self._ends_s = anyio.current_time() + self._deadline_s
        self._bound()
        self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._is_waiting = False
        is_over = self._scope.__exit__(kind, exc, trace)
        if self._scope.cancelled_caught:
            is_late = anyio.current_time() >= self._ends_s
            self.ran_out = (
                f"within {self._deadline_s:g} s"
                if is_late
                else f"and no connection to {self._url} for {self._outage_s:g} s"
            )
        return is_over

    def on_connection(self, welcome: Welcome | None) -> None:
        """The connection came or went; said once for each outage and each return."""
        if not self._is_waiting:
            return
        self._is_connected = welcome is not None
        if welcome is None:
            self._say(f"connection to {self._url} lost, trying again for {self._outage_s:g} s")
        elif self._was_connected:
            self._say("connected again")
        self._was_connected = True
        self._bound()

    def on_put_off(self, why: str) -> None:
        """The server did not take the message now; each reason is said once, whatever numbers are in it."""
        reason = _NUMBER.sub("", why)
        if self._is_waiting and reason not in self._reasons:
            self._reasons.add(reason)
            self._say(f"not accepted yet: {why}; it is sent again, as one message, until a server takes it")

    def _bound(self) -> None:
        outage_ends_s = self._ends_s if self._is_connected else anyio.current_time() + self._outage_s
        self._scope.deadline = min(self._ends_s, outage_ends_s)
