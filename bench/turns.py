"""What a turn costs: ``python -m bench.turns [--json]``. Rows A1 to A6, C1, D1 and D2, the floor in the same run.

How each is measured is told by the modules of ``bench.probes``.
"""

import sys
from collections.abc import Iterator
from typing import Final

from bench import command
from bench.measure import Figures, probe
from bench.probes import cpu, disk, waiting
from bench.report import Row

MODULE: Final = "bench.turns"
_PROBES: Final = {
    "cpu": cpu.of_a_turn,
    "throughput": cpu.together_per_second,
    "thaws": cpu.of_thaws,
    "growth": disk.growth,
    "written": disk.written,
    "flushing": disk.flushing,
    "waits": waiting.flushes_waited_for,
    "overhead": waiting.overhead,
}
_THAW_TARGETS_MS: Final = {20: 1.0, 200: 2.0, 1000: 4.0}


def rows() -> Iterator[Row]:
    """Measure everything, a process for each kind."""
    yield from _cpu_rows(probe(MODULE, "cpu"))
    yield from _disk_rows(probe(MODULE, "growth"), probe(MODULE, "written"), disk.flushes(MODULE))
    yield from _waiting_rows(probe(MODULE, "waits"))
    yield from _thaw_rows(probe(MODULE, "thaws"))
    yield from _crowd_rows(probe(MODULE, "throughput"), probe(MODULE, "overhead"))


def _cpu_rows(found: Figures) -> Iterator[Row]:
    yield Row(
        id="A1",
        what="CPU of a turn after 1",
        unit="us",
        floor=found["floor second"],
        torpor=found["torpor second"],
        at_most=1200,
        ratio_at_most=4,
    )
    yield Row(
        id="A2",
        what="CPU of a turn after 400 to 600",
        unit="us",
        floor=found["floor long"],
        torpor=found["torpor long"],
        base=found["torpor young"],
        base_name="young ones",
        ratio_at_most=1.2,
    )


def _disk_rows(growth: Figures, written: Figures, flushes: Figures) -> Iterator[Row]:
    yield Row(
        id="A3", what="file growth per turn", unit="B", floor=growth["floor"], torpor=growth["torpor"], at_most=4096
    )
    yield Row(
        id="A3",
        what="the same, turns 167 to 500",
        unit="B",
        floor=growth["floor long"],
        torpor=growth["torpor long"],
        base=growth["torpor short"],
        base_name="turns 50 to 150",
        ratio_at_most=1.1,
    )
    for company, kilobytes in ("alone", 50), ("together", 15):
        yield Row(
            id="A4",
            what=f"bytes written per turn, {_COMPANY[company]}",
            unit="B",
            floor=written[f"floor {company}"],
            torpor=written[f"torpor {company}"],
            at_most=kilobytes * 1024,
        )
    for company, limit in ("alone", 4.0), ("together", 0.2):
        if flushes:
            yield Row(
                id="A5",
                what=f"flushes per turn, {_COMPANY[company]}",
                unit="",
                floor=flushes[f"floor {company}"],
                torpor=flushes[f"torpor {company}"],
                at_most=limit,
            )


_COMPANY: Final = {"alone": "alone", "together": "100 at once"}


def _waiting_rows(found: Figures) -> Iterator[Row]:
    yield Row(id="A6", what="flushes from message to receipt", unit="", torpor=found["to receipt"], at_most=1)
    yield Row(id="A6", what="flushes from last byte to last event", unit="", torpor=found["to last event"], at_most=1)


def _thaw_rows(found: Figures) -> Iterator[Row]:
    for turns, target_ms in _THAW_TARGETS_MS.items():
        yield Row(
            id="C1",
            what=f"CPU of a thaw after {turns:,} turns",
            unit="ms",
            floor=found[f"floor {turns}"],
            torpor=found[f"torpor {turns}"],
            at_most=target_ms,
        )


def _crowd_rows(throughput: Figures, overhead: Figures) -> Iterator[Row]:
    yield Row(
        id="D1",
        what="turns per CPU second, 100 at once",
        unit="",
        floor=throughput["floor"],
        torpor=throughput["torpor"],
        at_least=800,
    )
    yield Row(
        id="D2",
        what="p99 beyond a 50 ms model, 100 at once",
        unit="ms",
        floor=overhead["floor"],
        torpor=overhead["torpor"],
        ratio_at_most=2,
    )


if __name__ == "__main__":
    sys.exit(command.run(MODULE, rows=rows, probes=_PROBES))
