"""Which clients sent more frames than anybody may, for the log. Above: the server.

One that connects again and again would fill the log with lines, so they are gathered, and told now and then.
"""

from collections import Counter
from typing import Any, Final

import structlog

from torpor.gateway.auth import Principal
from torpor.gateway.close_reasons import CloseReason

FLOODS: Final = frozenset({CloseReason.HELD_TOO_MUCH, CloseReason.TOO_MANY_FRAMES})
"""Why a connection of such a client is closed."""
_TOLD: Final = 5
"""Clients in one line, those with the most connections."""
_log = structlog.get_logger()


class Floods:
    """Since they were last told."""

    def __init__(self) -> None:
        self._closed = Counter[tuple[str, str]]()

    def note(self, *, address: object, principal: Principal | None) -> None:
        """Args: address: host and port of the client, if it has them.  principal: None before it said who it is."""
        host = str(address[0]) if isinstance(address, tuple) and address else ""
        self._closed[host, f"{principal.tenant}/{principal.subject}" if principal is not None else ""] += 1

    def tell(self) -> None:
        if not self._closed:
            return
        clients: list[dict[str, Any]] = [
            {"address": host, "principal": name, "connections": count}
            for (host, name), count in self._closed.most_common(_TOLD)
        ]
        _log.warning("gateway.flooded", connections=self._closed.total(), clients=clients)
        self._closed.clear()
