"""A server as a whole, for operators: what its parts count, the turns that run, and its end.

Above: the gateway, which shows it to whoever may operate. Below: the parts that report to ``metrics``, the supervisor.
"""

from collections.abc import Callable, Mapping

import msgspec

from torpor.operations.metrics import Metrics
from torpor.operations.redaction import masked
from torpor.supervisor.contract import Draining, RunningTurn
from torpor.supervisor.drain import Drain
from torpor.supervisor.registry import Supervisor
from torpor.toolhost.mcp.connection import Standing


class Overview:
    """Implements ``gateway.status.Operated``."""

    def __init__(
        self, *, metrics: Metrics, supervisor: Supervisor, drain: Drain, mcp: Callable[[], tuple[Standing, ...]]
    ) -> None:
        self._metrics = metrics
        self._supervisor = supervisor
        self._drain = drain
        self._mcp = mcp

    async def statistics(self) -> Mapping[str, msgspec.Struct]:
        return await self._metrics.rooms()

    def turns(self) -> tuple[RunningTurn, ...]:
        return self._supervisor.turns()

    def mcp(self) -> tuple[Standing, ...]:
        return tuple(msgspec.structs.replace(each, printed=masked(each.printed)) for each in self._mcp())

    def drain(self, *, deadline_s: float | None) -> Draining:
        return self._drain.begin(deadline_s=deadline_s)
