"""Files on their way to whoever followed a link: how many at once, how long for each piece, and how they ended.

Above: the route of attachments, which knows what is asked for. Below: the outflow, one for each of them.
"""

import math
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from enum import StrEnum

import anyio

from torpor.attachment_errors import UnknownAttachment
from torpor.errors import StoreError
from torpor.gateway.metered import Metered
from torpor.gateway.options import GatewayOptions
from torpor.gateway.outflow import PIECE_BYTES, Left, Outflow
from torpor.records.ids import ConversationKey


class Damaged(Exception):
    """What is stored is not what was stored once."""


class NoPlace(Exception):
    """As many are under way as there may be."""


class Ending(StrEnum):
    """Of a download."""

    DONE = "done"
    LEFT = "left"
    """By the client, or the network."""
    STALLED = "stalled"
    """The client did not take the next piece in time; over TLS also, did not leave at the end."""
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    """The blob went away, or its storage does not answer."""
    STOPPED = "stopped"
    """The server is going away."""


class Downloads:
    """One for all connections of a server."""

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self._of_owners = Counter[tuple[str, str]]()
        self._scopes = set[anyio.CancelScope]()
        self._ends_at_s = math.inf
        self._ended = Counter[str]()
        self.refused = 0
        """For want of a place, since the start."""

    @property
    def under_way(self) -> int:
        return self._of_owners.total()

    @property
    def ended(self) -> Mapping[str, int]:
        """By how, in words of ``Ending``."""
        return dict(self._ended)

    @contextmanager
    def place(self, key: ConversationKey) -> Iterator[None]:
        """For one more of an owner. Raises: NoPlace."""
        owner, options = (key.tenant, key.owner), self._options
        if self.under_way >= options.downloads_max or self._of_owners[owner] >= options.downloads_per_owner_max:
            self.refused += 1
            raise NoPlace
        self._of_owners[owner] += 1
        try:
            yield
        finally:
            self._of_owners[owner] -= 1
            self._of_owners = +self._of_owners

    async def give(self, connection: Metered, head: bytes, body: AsyncGenerator[bytes]) -> None:
        """Answer with all of it, and end the connection; at once when something is wrong with either end."""
        outflow = Outflow(connection)
        ending = Ending.STOPPED
        with anyio.CancelScope(deadline=self._ends_at_s) as scope:
            self._scopes.add(scope)
            try:
                async with aclosing(body):
                    ending = await self._given(outflow, head, body)
            finally:
                self._scopes.discard(scope)
                await outflow.cut()
        self._ended[ending] += 1

    def unreadable(self) -> None:
        """One ended before it began."""
        self._ended[Ending.UNREADABLE] += 1

    def stop(self) -> None:
        """Those that are under way have as long to end as other connections."""
        self._ends_at_s = min(self._ends_at_s, anyio.current_time() + self._options.close_deadline_s)
        for scope in self._scopes:
            scope.deadline = self._ends_at_s

    async def _given(self, outflow: Outflow, head: bytes, body: AsyncGenerator[bytes]) -> Ending:
        stall_s = self._options.download_stall_s
        try:
            await outflow.send(head, stall_s=stall_s)
            async for data in body:
                for at in range(0, len(data), PIECE_BYTES):
                    await outflow.send(memoryview(data)[at : at + PIECE_BYTES], stall_s=stall_s)
            await outflow.end(stall_s=stall_s)
        except Left:
            return Ending.LEFT
        except TimeoutError:
            return Ending.STALLED
        except Damaged:
            return Ending.DAMAGED
        except (StoreError, UnknownAttachment):
            return Ending.UNREADABLE
        return Ending.DONE

    def __repr__(self) -> str:
        return f"<Downloads under_way={self.under_way}>"
