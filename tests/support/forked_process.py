"""A process of ``tests.support.forked`` as one of anyio: its streams and its end are waited for by the event loop."""

import os
import signal
from collections.abc import Sequence

import anyio
import anyio.abc
import anyio.to_thread

from tests.support.forked import ROOT, Fork


class _Said(anyio.abc.ByteReceiveStream):
    """What comes out of a pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        await anyio.wait_readable(self._pipe)
        if piece := os.read(self._pipe, max_bytes):
            return piece
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        os.close(self._pipe)


class ForkedProcess(anyio.abc.Process):
    """Made by ``open_fork``."""

    def __init__(self, fork: Fork, *, out: int, given: int) -> None:
        self._fork = fork
        self._out = _Said(out)
        self._given = given

    async def aclose(self) -> None:
        """Close what leads to it and from it, which ends it, and wait."""
        with anyio.CancelScope(shield=True):
            os.close(self._given)
            await self._out.aclose()
            self.kill()
            await self.wait()

    async def wait(self) -> int:
        while self._fork.poll() is None:
            await anyio.wait_readable(self._fork.told)
        return self._fork.wait()

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, signal: signal.Signals) -> None:
        self._fork.send_signal(signal)

    @property
    def pid(self) -> int:
        return self._fork.pid

    @property
    def returncode(self) -> int | None:
        return self._fork.poll()

    @property
    def stdin(self) -> None:
        """Nothing can be said to it."""

    @property
    def stdout(self) -> anyio.abc.ByteReceiveStream:
        return self._out

    @property
    def stderr(self) -> None:
        """That is a file."""


async def open_fork(module: str, arguments: Sequence[str], *, stderr: int) -> anyio.abc.Process:
    """Start ``main`` of a module, which hears the end of its input when it is closed."""
    out, its_out = os.pipe()
    its_in, given = os.pipe()

    def forked() -> Fork:
        return Fork(module, arguments, cwd=ROOT, env=os.environ, streams=(its_in, its_out, stderr))

    try:
        fork = await anyio.to_thread.run_sync(forked)  # the first one waits for the engine to be imported
    finally:
        os.close(its_in)
        os.close(its_out)
    return ForkedProcess(fork, out=out, given=given)
