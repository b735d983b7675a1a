"""What it costs to be there: a server that has just started, and processes that only import or print help."""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.measure import Figures, environment, resident_bytes

_SAMPLES: Final = 5
_START_S: Final = 20.0
_CORE: Final = "import torpor.app"


def footprint() -> Figures:
    """Resident bytes of a server that is ready; CPU seconds of importing the core and of ``torpor --help``."""
    return {
        "server bytes": _server_bytes(),
        "bare import s": _cpu_s([sys.executable, "-c", "pass"]),
        "import s": _cpu_s([sys.executable, "-c", _CORE]),
        "help s": _cpu_s([str(_torpor()), "--help"]),
    }


def _torpor() -> Path:
    return Path(sys.executable).with_name("torpor")


def _server_bytes() -> int:
    with TemporaryDirectory(prefix="torpor-bench-") as data:
        command = [str(_torpor()), "serve", "--json", "--port", "0", "--data", data]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            assert server.stdout is not None
            try:
                json.loads(server.stdout.readline())
                return resident_bytes(server.pid)
            finally:
                server.terminate()
                server.wait(_START_S)


def _cpu_s(command: Sequence[str]) -> float:
    """The best of several runs after one that writes byte code."""
    samples = []
    for _ in range(_SAMPLES + 1):
        before = _children_s()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment(), timeout=_START_S)
        samples.append(_children_s() - before)
    return min(samples[1:])


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
