"""A server of the kill test as a process of its own, and what it says of itself."""

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.support.forked import ROOT
from tests.support.forked_process import open_fork

_LINE_BYTES_MAX = 65_536
# structlog imports rich where it is installed, which is half of what a start costs.
_START = "import sys; sys.modules['rich'] = None; from tests.support.{module} import main; main(sys.argv[1:])"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The point to be killed at, and at which passage."""

    point: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.point}#{self.nth}"

    @classmethod
    def named(cls, name: str) -> "Fault":
        """From its text."""
        point, _, nth = name.partition("#")
        return cls(point=point, nth=int(nth or 1))


class ServerEnded(Exception):
    """The process ended by itself; its text is the end of what it logged."""


class ServerProcess:
    """Made by ``server_process``; its facts come in order."""

    def __init__(self, process: anyio.abc.Process, *, log: Path) -> None:
        assert process.stdout is not None
        self._process = process
        self._lines = BufferedByteReceiveStream(process.stdout)
        self._log = log
        self.url = ""
        self.token = ""
        self.start_cpu_s = 0.0
        """What it took until it was idle for the first time."""
        self.passed: dict[str, int] = {}
        """Points, and how often each was passed; known once it has ended in peace."""

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    async def fact(self) -> dict[str, Any]:
        """The next thing it says. Raises: ServerEnded: it has ended."""
        try:
            line = await self._lines.receive_until(b"\n", _LINE_BYTES_MAX)
        except (anyio.EndOfStream, anyio.IncompleteRead):
            raise ServerEnded(self._log.read_text()[-4000:]) from None
        fact: dict[str, Any] = json.loads(line)
        if "ready" in fact:
            self.url, self.token = fact["ready"], fact["token"]
        self.start_cpu_s = fact.get("cpu_s", self.start_cpu_s)
        self.passed = fact.get("passed", self.passed)
        return fact

    async def until(self, what: str) -> bool:
        """Whether it says ``what``; False when it is held at its fault first."""
        while not (fact := await self.fact()).keys() & {what, "held"}:
            pass
        return what in fact

    def ask_for_census(self) -> None:
        """What it holds is the next fact; only of a server that knows SIGUSR1."""
        self._process.send_signal(signal.SIGUSR1)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        await self._process.wait()

    def signal_stop(self) -> None:
        """SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    async def exit_code(self) -> int:
        """Once it has ended."""
        return await self._process.wait()

    async def stop(self) -> bool:
        """SIGTERM; whether it ended in peace. False when it is held at its fault on the way.

        Raises: ServerEnded: it ended with an error.
        """
        self._process.send_signal(signal.SIGTERM)
        if not await self.until("ended"):
            return False
        if (code := await self.exit_code()) != 0:
            raise ServerEnded(f"exit code {code}")
        return True


@asynccontextmanager
async def server_process(
    folder: Path, *, fault: Fault | None = None, model: str = "obedient", is_fork: bool = True
) -> AsyncIterator[ServerProcess]:
    """Serve ``folder/home`` with ``folder/data``; killed when the block ends, if it lives then.

    Args: is_fork: as of ``process_of``.
    """
    options = ["--model", model]
    if fault is not None:
        options += ["--fault", fault.point, "--nth", str(fault.nth)]
    async with process_of("kill_server", *options, folder=folder, is_fork=is_fork) as server:
        yield server


@asynccontextmanager
async def process_of(module: str, *options: str, folder: Path, is_fork: bool = True) -> AsyncIterator[ServerProcess]:
    """``tests.support.<module>`` as a server of the same folders. Args: is_fork: it need not start from nothing."""
    log = folder / "server.log"
    arguments = [*options, "--home", str(folder / "home"), "--data", str(folder / "data")]
    with log.open("ab") as stderr:
        if is_fork:
            process = await open_fork(f"tests.support.{module}", arguments, stderr=stderr.fileno())
        else:
            command = [sys.executable, "-c", _START.format(module=module), *arguments]
            process = await anyio.open_process(command, stderr=stderr, cwd=ROOT)
    async with process:
        try:
            yield ServerProcess(process, log=log)
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                    await process.wait()
