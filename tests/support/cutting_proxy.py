"""A TCP proxy that treats connections badly: cuts them at a random byte, or stops passing anything on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import anyio
from anyio.abc import SocketStream, TaskGroup


class CuttingProxy:
    """Passes bytes between its clients and ``target``, for a while."""

    def __init__(self, target: int, *, random: Random, bytes_max: int | None) -> None:
        self._target = target
        self._random = random
        self._bytes_max = bytes_max
        self.port = 0
        self.cuts = 0
        self._open: set[anyio.CancelScope] = set()
        self.passes = anyio.Event()
        """While set, bytes are passed on."""
        self.passes.set()

    def hang(self) -> None:
        """Pass nothing on any more, and cut nothing."""
        self.passes = anyio.Event()

    def recover(self) -> None:
        """Pass on what hung, and what comes."""
        self.passes.set()

    def cut(self) -> None:
        """Cut every connection now."""
        for scope in tuple(self._open):
            self.cuts += 1
            scope.cancel()

    async def serve(self, client: SocketStream) -> None:
        try:
            async with client, await anyio.connect_tcp("127.0.0.1", self._target) as server:
                await self._between(client, server)
        except (OSError, anyio.BrokenResourceError):
            return

    async def _between(self, client: SocketStream, server: SocketStream) -> None:
        left = self._random.randrange(1, self._bytes_max) if self._bytes_max else None

        async def pass_on(source: SocketStream, sink: SocketStream, tasks: TaskGroup) -> None:
            nonlocal left
            try:
                async for data in source:
                    await self.passes.wait()
                    if left is None:
                        await sink.send(data)
                        continue
                    await sink.send(data[:left])
                    left -= min(left, len(data))
                    if left == 0:
                        self.cuts += 1
                        break
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            self._open.add(tasks.cancel_scope)
            tasks.start_soon(pass_on, client, server, tasks)
            tasks.start_soon(pass_on, server, client, tasks)
        self._open.discard(tasks.cancel_scope)


@asynccontextmanager
async def cutting_proxy(
    target: int, *, random: Random | None = None, bytes_max: int | None = None
) -> AsyncIterator[CuttingProxy]:
    """A proxy for the length of a block; each of its connections passes less than ``bytes_max`` bytes."""
    proxy = CuttingProxy(target, random=random or Random(0), bytes_max=bytes_max)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        proxy.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.start_soon(listener.serve, proxy.serve)
        yield proxy
        tasks.cancel_scope.cancel()
