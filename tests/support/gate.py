"""A door between clients and a server that comes and goes: one address for the clients, whoever stands behind it.

Shut, it turns every connection away and ends those it has, so that a server can be started while no client reaches it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc


class Gate:
    """Made by ``open_gate``; shut at first."""

    def __init__(self, port: int) -> None:
        self.url = f"ws://127.0.0.1:{port}"
        self._server_port: int | None = None
        self._passing = set[anyio.CancelScope]()

    def open(self, server_port: int) -> None:
        """Let connections through to ``server_port``."""
        self._server_port = server_port

    def shut(self) -> None:
        """Turn away whoever comes and cut off whoever is there."""
        self._server_port = None
        for scope in self._passing:
            scope.cancel()

    async def pass_through(self, client: anyio.abc.SocketStream) -> None:
        """Carry bytes both ways until one side ends or the gate is shut."""
        async with client:
            if self._server_port is None:
                return
            try:
                server = await anyio.connect_tcp("127.0.0.1", self._server_port)
            except OSError:
                return
            async with server, anyio.create_task_group() as tasks:
                self._passing.add(tasks.cancel_scope)
                try:
                    tasks.start_soon(_carry, client, server, tasks.cancel_scope)
                    await _carry(server, client, tasks.cancel_scope)
                finally:
                    self._passing.discard(tasks.cancel_scope)


async def _carry(source: anyio.abc.SocketStream, target: anyio.abc.SocketStream, both: anyio.CancelScope) -> None:
    try:
        async for data in source:
            await target.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    both.cancel()


@asynccontextmanager
async def open_gate() -> AsyncIterator[Gate]:
    """A gate on a port of its own for as long as the block lasts."""
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener,
        anyio.create_task_group() as tasks,
    ):
        gate = Gate(listener.extra(anyio.abc.SocketAttribute.local_port))
        tasks.start_soon(listener.serve, gate.pass_through)
        yield gate
        gate.shut()
        tasks.cancel_scope.cancel()
