"""Requests for which there was no connection: nothing of them was sent, and the library would end all calls for one.

Above: ``sdk``. What fails later may have been heard, so nobody knows what came of it.
"""

from typing import Any, Final

import httpx2

from torpor.toolhost.mcp.faults import Statuses, why_not_connected

_UNAVAILABLE: Final = 503
"""Stands for the answer that there is none."""


class Caller(httpx2.AsyncClient):
    """Once its session is open, a request that cannot be sent is answered, as one that was refused."""

    def __init__(self, *, statuses: Statuses, **options: Any) -> None:
        super().__init__(**options)
        self._statuses = statuses

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Raises: httpx2.HTTPError."""
        try:
            return await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as exc:
            if not self._statuses.never_sent(request, why_not_connected(exc)):
                raise
            return httpx2.Response(_UNAVAILABLE, request=request)
