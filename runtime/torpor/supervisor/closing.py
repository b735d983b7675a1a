"""Which conversations are out of service, or soon will be: what their commands are told, and who has one to themselves.

Above: the registry. Marks are made at once, so that no command which comes later overtakes them; the time alone is
waited for, until nobody else has the conversation aside and nobody holds it.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio

from torpor.errors import ClientError
from torpor.records.ids import ConversationKey


class Closing:
    """Made for one registry."""

    def __init__(self) -> None:
        self._verdicts: dict[ConversationKey, list[ClientError]] = {}
        self._alone: set[ConversationKey] = set()
        self._held = Counter[ConversationKey]()
        self._changed = anyio.Event()

    def verdict(self, key: ConversationKey) -> ClientError | None:
        """What a command for it is told; None while it is in service. Of several that take it out, the first tells."""
        verdicts = self._verdicts.get(key)
        return verdicts[0] if verdicts else None

    def mark(self, key: ConversationKey, verdict: ClientError) -> Callable[[], None]:
        """From now on its commands are told ``verdict``. Returns: what takes this back; for one call."""
        self._verdicts.setdefault(key, []).append(verdict)

        def undo() -> None:
            verdicts = self._verdicts[key]
            verdicts.remove(verdict)
            if not verdicts:
                del self._verdicts[key]

        return undo

    @contextmanager
    def holding(self, key: ConversationKey) -> Iterator[None]:
        """In the block nobody has it alone. Raises: ClientError: the verdict of who is about to."""
        if (verdict := self.verdict(key)) is not None:
            raise verdict
        self._held[key] += 1
        try:
            yield
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
                self._tell()

    @asynccontextmanager
    async def alone(self, key: ConversationKey, *, deadline_s: float) -> AsyncIterator[None]:
        """In the block nobody else has it so, and nobody holds it. Raises: TimeoutError: somebody did all the while."""
        with anyio.fail_after(deadline_s):
            while key in self._alone or key in self._held:
                await self._changed.wait()
        self._alone.add(key)
        try:
            yield
        finally:
            self._alone.discard(key)
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def __repr__(self) -> str:
        return f"<Closing verdicts={len(self._verdicts)} alone={len(self._alone)} held={len(self._held)}>"
