"""Processes as the system has them: which are there, and when one has ended."""

import os
import select
from pathlib import Path

import anyio.to_thread

WORKER = b"torpor.toolhost.process_worker"


def workers_of(parent: int) -> list[int]:
    """Worker processes that ``parent`` started, those included that have ended and that nobody took note of."""
    there = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in there if _parent_of(pid) == parent and _is_worker(pid)]


async def ended(pid: int, *, within_s: float = 20.0) -> None:
    """Wait for the end of a process, whoever's child it is. Raises: TimeoutError: it goes on."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        readable = await anyio.to_thread.run_sync(lambda: select.select([descriptor], [], [], within_s)[0])
    finally:
        os.close(descriptor)
    if not readable:
        raise TimeoutError(f"process {pid} is still there after {within_s:g} s")


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_worker(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return not command or WORKER in command  # one that has ended has no command line any more
