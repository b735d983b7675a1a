"""What the server of ``mcp_server.py`` did, as it wrote it down."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import anyio


class McpLedger:
    """Reads its file, which need not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        """Without the ids of the processes, in order."""
        return [line.partition(" ")[2] for line in self._whole()]

    def pids(self) -> set[int]:
        """Of all processes that ever wrote."""
        return {int(line.partition(" ")[0]) for line in self._whole()}

    def alive(self) -> set[int]:
        """Those of them that are there still, zombies not."""
        return set(filter(_is_alive, self.pids()))

    def signal(self, pid: int, kind: signal.Signals) -> None:
        """Send it to one of its own processes, if that is there still."""
        assert pid in self.pids()
        with suppress(ProcessLookupError):
            os.kill(pid, kind)

    async def until(self, line: str, *, count: int = 1) -> None:
        """Wait for a line; another process writes it, so nobody tells."""
        with anyio.fail_after(60):
            while self.lines().count(line) < count:  # noqa: ASYNC110 - a file is no event
                await anyio.sleep(0.02)

    async def until_nobody_is_alive(self) -> None:
        with anyio.fail_after(60):
            while self.alive():  # noqa: ASYNC110 - likewise
                await anyio.sleep(0.02)

    def _whole(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
