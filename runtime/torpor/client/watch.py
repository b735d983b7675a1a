"""A watch as its user sees it: an asynchronous iterator over a bounded queue."""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import anyio

from torpor.client.items import AnyItem, DeltaItem, ProgressItem

_EPHEMERAL: Final = (DeltaItem, ProgressItem)


class Watch:
    """Yields the items of one conversation until it is closed; see ``client.items``.

    A user who takes items slowly loses deltas first; events wait with the server and are never lost. No scope is open
    while an item is out, so the loop may be left at any point; ``aclose`` or leaving the block ends the watch.

    Raises, from the iteration: RequestRefused: the server ended it. Otherwise what ended the client.
    """

    def __init__(self, *, on_drained: Callable[[], None], on_close: Callable[[], None], items_max: int) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[AnyItem](items_max)
        self._items_max = items_max
        self._on_drained = on_drained
        self._on_close = on_close
        self._error: Exception | None = None
        self._is_closed = False

    def offer(self, item: AnyItem) -> bool:
        """Queue an item; False without room. Half of the room is kept for what must not be dropped."""
        if isinstance(item, _EPHEMERAL) and 2 * self._send.statistics().current_buffer_used >= self._items_max:
            return False
        try:
            self._send.send_nowait(item)
        except anyio.WouldBlock:
            return False
        return True

    def fail(self, error: Exception) -> None:
        """Nothing more comes: the iteration ends with ``error`` behind what is queued."""
        self._error = error
        self._send.close()

    async def aclose(self) -> None:
        """End the watch; closing twice is once. Does not wait."""
        if not self._is_closed:
            self._is_closed = True
            self._send.close()
            self._receive.close()
            self._on_close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyItem:
        if self._is_closed:
            raise StopAsyncIteration
        if self._receive.statistics().current_buffer_used == 0:
            self._on_drained()
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            if self._error is not None:
                raise self._error from None
        except anyio.ClosedResourceError:
            pass
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
