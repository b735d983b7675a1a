"""A server as a whole, for operators: what its parts count, the turns that run, and its end.

Above: the gateway, which shows it to whoever may operate. Below: the parts that report to ``metrics``, the supervisor.
"""

from collections.abc import Mapping

import msgspec

from torpor.operations.metrics import Metrics
from torpor.supervisor.contract import Draining, RunningTurn
from torpor.supervisor.drain import Drain
from torpor.supervisor.registry import Supervisor


class Overview:
    """Implements ``gateway.status.Operated``."""

    def __init__(self, *, metrics: Metrics, supervisor: Supervisor, drain: Drain) -> None:
        self._metrics = metrics
        self._supervisor = supervisor
        self._drain = drain

    async def statistics(self) -> Mapping[str, msgspec.Struct]:
        return await self._metrics.rooms()

    def turns(self) -> tuple[RunningTurn, ...]:
        return self._supervisor.turns()

    def drain(self, *, deadline_s: float | None) -> Draining:
        return self._drain.begin(deadline_s=deadline_s)
