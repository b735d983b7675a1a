"""Servers that play what a test laid out, behind the port of connections; no SDK, no process."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio

from torpor.toolhost.mcp.results import Answer
from torpor.toolhost.mcp.session import ConnectionLost, Opening, Session

Call = Callable[["Life", str, Mapping[str, Any]], Awaitable[Answer]]


def said(text: str, *, is_error: bool = False) -> Answer:
    return Answer(content=({"type": "text", "text": text},), is_error=is_error)


def listed(*names: str) -> list[object]:
    return [{"name": name, "inputSchema": {"type": "object"}} for name in names]


async def echo(life: "Life", tool: str, arguments: Mapping[str, Any]) -> Answer:
    return said(f"{tool} of life {life.number}")


class Life:
    """One connection; implements ``session.Session``."""

    def __init__(self, house: "PlayedServer", opening: Opening, number: int) -> None:
        self.house = house
        self.opening = opening
        self.number = number
        self._scopes: list[anyio.CancelScope] = []
        self.breaks = anyio.Event()
        """Has the transport fail, as HTTP does."""
        self.is_closed = False

    async def tools(self) -> tuple[object, ...]:
        self.house.listings += 1
        await self.house.at_list(self)
        return tuple(self.house.tools)

    async def call(self, tool: str, arguments: Mapping[str, Any], *, report: Callable[[str], None]) -> Answer:
        self.house.calls.append((self.number, tool))
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            return await self.house.at_call(self, tool, arguments)
        raise ConnectionLost("the connection to its server ended")

    async def heed_changes(self) -> None:
        await anyio.sleep_forever()

    def die(self) -> None:
        """As a process does."""
        for scope in self._scopes:
            scope.cancel()
        self.opening.ended("it died")


class Hanging:
    """A call that says when it has begun, and never ends by itself."""

    def __init__(self) -> None:
        self.begun = anyio.Event()

    async def __call__(self, life: Life, tool: str, arguments: Mapping[str, Any]) -> Answer:
        self.begun.set()
        await anyio.sleep_forever()
        raise AssertionError


class PlayedServer:
    """What it does can be changed between its lives, and within them."""

    def __init__(self, *tools: str) -> None:
        self.tools = listed(*tools)
        self.lives: list[Life] = []
        self.listings = 0
        self.calls: list[tuple[int, str]] = []
        self.at_call: Call = echo
        self.at_open: Callable[[Life], Awaitable[None]] = _nothing
        self.at_list: Callable[[Life], Awaitable[None]] = _nothing
        self.at_close: Callable[[Life], Awaitable[None]] = _nothing

    @property
    def life(self) -> Life:
        return self.lives[-1]

    @asynccontextmanager
    async def open(self, opening: Opening) -> AsyncIterator[Session]:
        """Implements ``session.Open``."""
        life = Life(self, opening, len(self.lives) + 1)
        self.lives.append(life)
        await self.at_open(life)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_break, life)
                yield life
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.at_close(life)
            life.is_closed = True


async def _break(life: Life) -> None:
    await life.breaks.wait()
    raise OSError("the transport failed")


async def hangs(life: Life) -> None:
    """What a server does that gets no further."""
    await anyio.sleep_forever()


async def _nothing(life: Life) -> None:
    """What is not told is not done."""
