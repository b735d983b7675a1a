"""Ways of measuring: CPU of all threads, resident memory, bytes written, and processes that measure alone."""

import gc
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

_MEMORY_DISK: Final = Path("/dev/shm")
_DISK: Final = Path("/var/tmp")
_PROBE_S: Final = 60.0
Figures = dict[str, float]
"""What a probe found, by name."""


class Cpu:
    """CPU seconds, user and system, of all threads of this process."""

    def __init__(self) -> None:
        self._start = time.process_time()

    @property
    def seconds(self) -> float:
        return time.process_time() - self._start


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A data folder whose disk costs no CPU; an ordinary one where there is no such place."""
    place = _MEMORY_DISK if os.access(_MEMORY_DISK, os.W_OK) else None
    if place is None:
        note(f"{_MEMORY_DISK} cannot be written, so the CPU figures hold the work of a disk driver")
    with TemporaryDirectory(prefix="torpor-bench-", dir=place) as name:
        yield Path(name)


@contextmanager
def folder_on_disk() -> Iterator[Path]:
    """A data folder where a flush is a flush; ``/tmp`` may lie in memory."""
    with TemporaryDirectory(prefix="torpor-bench-", dir=_DISK) as name:
        yield Path(name)


def resident_bytes(pid: int | None = None) -> int:
    """Memory of a process, by default this one after a collection, that lies in RAM."""
    if pid is None:
        gc.collect()
    path = Path(f"/proc/{pid or 'self'}/smaps_rollup")
    found = re.search(r"^Rss:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    assert found is not None, f"{path} has no line Rss"
    return int(found[1]) * 1024


def written_bytes() -> int:
    """Bytes that this process handed to ``write`` and its like since it began."""
    found = re.search(r"^wchar: (\d+)", Path("/proc/self/io").read_text(), re.MULTILINE)
    assert found is not None, "/proc/self/io has no line wchar"
    return int(found[1])


def stored_bytes(folder: Path) -> int:
    """Size of all files in and below ``folder``."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def quantile(values: list[float], share: float) -> float:
    """The smallest value that ``share`` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def probe(module: str, name: str, *, tracer: tuple[str, ...] = ()) -> Figures:
    """Run one probe of a benchmark in a process of its own, so that no measurement disturbs another.

    Raises: RuntimeError: it failed; its output tells why.
    """
    command = (*tracer, sys.executable, "-m", module, "--probe", name)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PROBE_S, env=environment())
    if done.returncode:
        raise RuntimeError(f"probe {name!r} of {module} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    sys.stderr.write(done.stderr)
    figures: Figures = json.loads(done.stdout)
    return figures


def environment() -> dict[str, str]:
    """Like ours, but byte code is kept, as it is where the engine is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def note(text: str) -> None:
    """Something that the reader of the figures must know."""
    print(f"note: {text}", file=sys.stderr)
