"""What connections and frames cost: ``python -m bench.gateway [--json] [--quick]``. Rows W1 and W2.

The floor is a bare ``websockets`` echo server with the same settings. Each server, and the clients of each, are
processes of their own. How it is measured is told by ``bench.probes.gateway_runs``; the echo goes through session,
outbox and mailbox to an actor that answers at once, everything else through the whole engine.
"""

import sys
from collections.abc import Iterator
from typing import Final

from bench import command
from bench.measure import note
from bench.probes import gateway_runs as runs
from bench.report import Row

MODULE: Final = "bench.gateway"
_KB: Final = 1024
_GB: Final = 1024**3
_W1_BYTES: Final = 16 * _KB


def rows(sizes: runs.Sizes = runs.FULL) -> Iterator[Row]:
    """Measure everything, the floor and the engine one after the other."""
    yield from _idle_rows(sizes)
    yield from _frame_rows(sizes)
    yield from _latency_rows(sizes)
    yield from _storm_rows(sizes)


def _idle_rows(sizes: runs.Sizes) -> Iterator[Row]:
    bare, torpor = runs.idle("bare", sizes), runs.idle("torpor", sizes)
    watching = runs.idle("torpor", sizes, watch="own")
    floor = bare["bytes"] / _KB
    yield Row(
        id="W1",
        what="memory of an idle connection with its session",
        unit="KB",
        floor=floor,
        torpor=torpor["bytes"] / _KB,
        at_most=_W1_BYTES / _KB,
    )
    yield Row(id="", what="the same, watching", unit="KB", floor=floor, torpor=watching["bytes"] / _KB)
    yield Row(
        id="",
        what="idle connections in a GiB",
        unit="",
        floor=_GB / bare["bytes"],
        torpor=_GB / torpor["bytes"],
        at_least=_GB / _W1_BYTES,
    )
    yield Row(id="", what="CPU to open one", unit="us", floor=bare["open us"], torpor=torpor["open us"])


def _frame_rows(sizes: runs.Sizes) -> Iterator[Row]:
    bare, torpor = runs.echo("bare", sizes), runs.echo("mailbox", sizes)
    yield Row(
        id="W2",
        what="CPU of an echo through the mailbox",
        unit="us",
        floor=bare["us"],
        torpor=torpor["us"],
        ratio_at_most=2,
    )
    yield Row(id="", what="echoes in a second", unit="", floor=bare["per s"], torpor=torpor["per s"])
    bare, torpor = runs.fan("bare", sizes), runs.fan("torpor", sizes)
    what = f"CPU of an event to one of {sizes.watchers} watchers"
    yield Row(id="", what=what, unit="us", floor=bare["us"], torpor=torpor["us"])
    yield Row(id="", what="events fanned out in a second", unit="", floor=bare["per s"], torpor=torpor["per s"])


def _latency_rows(sizes: runs.Sizes) -> Iterator[Row]:
    bare, torpor = runs.talk("bare", sizes), runs.talk("torpor", sizes)
    for share in ("p50", "p99"):
        floor, found = bare[share] / 1000, torpor[share] / 1000
        what = f"an event with {sizes.talking} conversations streaming, {share}"
        yield Row(id="", what=what, unit="ms", floor=floor, torpor=found)
        yield Row(id="", what="added to it, its commit included", unit="ms", torpor=found - floor)
    note(f"streaming kept the bare server busy for {bare['busy']:.0%} of the time, and ours for {torpor['busy']:.0%}")


def _storm_rows(sizes: runs.Sizes) -> Iterator[Row]:
    bare, torpor = runs.storm("bare", sizes), runs.storm("torpor", sizes)
    what = f"{sizes.storm:,} clients back after a restart"
    yield Row(id="", what=what, unit="s", floor=bare["s"], torpor=torpor["s"])
    yield Row(
        id="",
        what="CPU to take one back",
        unit="us",
        floor=bare["cpu_s"] / sizes.storm * 1e6,
        torpor=torpor["cpu_s"] / sizes.storm * 1e6,
    )


if __name__ == "__main__":
    sys.exit(command.run(MODULE, rows=rows, probes={}, quick=lambda: rows(runs.QUICK)))
