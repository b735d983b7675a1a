"""A benchmark as a command: ``--json`` for programs, ``--probe`` for the processes it starts to measure alone.

Some have ``--quick``, which shows that everything runs; its figures mean nothing, so they fail nothing.
"""

import argparse
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

import anyio

from bench import measure
from bench.report import Row, as_json, exit_status, table

Probe = Callable[[], Awaitable[measure.Figures]]
Rows = Callable[[], Iterable[Row]]


def run(module: str, *, rows: Rows, probes: Mapping[str, Probe], quick: Rows | None = None) -> int:
    """Measure and print; 1 when a row is missed by more than 2x."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    parser.add_argument("--probe", choices=sorted(probes), help="one measurement only, in this process")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help="a little of everything, whose figures mean nothing")
    options = parser.parse_args()
    if options.probe:
        print(json.dumps(anyio.run(probes[options.probe])))
        return 0
    started_s = time.monotonic()
    chosen = quick if quick is not None and options.quick else rows
    found = list(chosen())
    if options.json:
        print(as_json(found))
    else:
        print(table(found))
        print(f"{module}: {time.monotonic() - started_s:.0f} s", file=sys.stderr)
    return 0 if chosen is quick else exit_status(found)
