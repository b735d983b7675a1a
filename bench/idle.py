"""What conversations cost while nothing happens: ``python -m bench.idle [--json]``. Rows B1 to B5, T1 and the help.

How each is measured is told by the modules of ``bench.probes``.
"""

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from bench import command
from bench.measure import Figures, probe
from bench.probes import memory, start
from bench.report import Row

MODULE: Final = "bench.idle"
_PROBES: Final = {
    "live": memory.live,
    "live floor": memory.live_floor,
    "packed": memory.packed,
    "asleep": memory.asleep,
    "generations": memory.generations,
    "empty": memory.empty_actors,
    "empty floor": memory.empty_floor,
}
_KB: Final = 1024
_MB: Final = 1024 * 1024


_MEMORY_PROBES: Final = ("live floor", "live", "packed", "asleep", "generations")
_AT_ONCE: Final = 2
"""Memory is the same however busy the machine is; CPU is not, so those that measure it run alone."""


def rows() -> Iterator[Row]:
    """Measure everything, a process for each kind."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = dict(zip(_MEMORY_PROBES, pool.map(partial(probe, MODULE), _MEMORY_PROBES), strict=True))
    yield from _conversation_rows(found)
    yield from _process_rows(found["generations"], start.footprint())
    yield from _actor_rows(probe(MODULE, "empty"), probe(MODULE, "empty floor"))


def _conversation_rows(found: Mapping[str, Figures]) -> Iterator[Row]:
    yield Row(
        id="B1",
        what="memory of a conversation, live",
        unit="KB",
        floor=found["live floor"]["bytes"] / _KB,
        torpor=found["live"]["bytes"] / _KB,
        at_most=60,
    )
    packed = found["packed"]["bytes"] / _KB
    yield Row(id="B2", what="memory of a conversation, idle and packed", unit="KB", torpor=packed, at_most=30)
    asleep = found["asleep"]
    yield Row(id="B3", what="memory of a hibernated conversation", unit="B", torpor=asleep["bytes"], at_most=300)
    yield Row(id="B3", what="its tasks and files", unit="", torpor=asleep["left"], at_most=0)


def _process_rows(peaks: Figures, found: Figures) -> Iterator[Row]:
    yield Row(
        id="B4",
        what="RSS with 1,000 asleep, 1,000 new",
        unit="MB",
        torpor=peaks["second"] / _MB,
        base=peaks["first"] / _MB,
        base_name="1,000 alone",
        ratio_at_most=1.1,
    )
    bare_s = found["bare import s"]
    yield Row(id="B5", what="RSS of a server after start", unit="MB", torpor=found["server bytes"] / _MB, at_most=45)
    yield Row(id="B5", what="CPU to import the core", unit="s", floor=bare_s, torpor=found["import s"], at_most=0.4)
    yield Row(id="", what="CPU of torpor --help", unit="s", floor=bare_s, torpor=found["help s"], at_most=0.4)


def _actor_rows(empty: Figures, floor: Figures) -> Iterator[Row]:
    yield Row(
        id="T1",
        what="memory of an empty idle actor, of 10,000",
        unit="KB",
        floor=floor["bytes"] / _KB,
        torpor=empty["bytes"] / _KB,
        at_most=10,
    )
    yield Row(
        id="T1", what="CPU to spawn one", unit="us", floor=floor["spawn us"], torpor=empty["spawn us"], at_most=100
    )
    yield Row(id="T1", what="CPU of 10,000 that idle", unit="%", torpor=empty["idle percent"], at_most=0.1)


if __name__ == "__main__":
    sys.exit(command.run(MODULE, rows=rows, probes=_PROBES))
