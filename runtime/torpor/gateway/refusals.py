"""Which clients were turned away and why, for the log. Above: the server.

Whoever connects a web application or an issuer of tokens finds there what is wrong. A client that tries again and again
would fill the log with lines, so they are gathered, and told now and then.
"""

from collections import Counter
from typing import Any, Final

import structlog

_TOLD: Final = 5
"""Kinds in one line, those that came most often."""
_KINDS_MAX: Final = 1_000
"""Until they are told; what comes beyond counts among the others."""
_log = structlog.get_logger()


class Refusals:
    """Since they were last told."""

    def __init__(self) -> None:
        self._kinds = Counter[tuple[str, str, str]]()
        self._others = 0

    def note(self, why: str, *, address: object, origin: str = "") -> None:
        """Args: why: what the client was told.  address: its host and port, if it has them.  origin: of its page."""
        host = str(address[0]) if isinstance(address, tuple) and address else ""
        kind = (why, origin, host)
        if kind in self._kinds or len(self._kinds) < _KINDS_MAX:
            self._kinds[kind] += 1
        else:
            self._others += 1

    def tell(self) -> None:
        """One line, if there is anything to tell."""
        if not self._kinds:
            return
        told = self._kinds.most_common(_TOLD)
        clients: list[dict[str, Any]] = [
            {"why": why, "address": host, "connections": count} | ({"origin": origin} if origin else {})
            for (why, origin, host), count in told
        ]
        _log.info("gateway.refused", connections=self._kinds.total() + self._others, clients=clients)
        self._kinds.clear()
        self._others = 0
