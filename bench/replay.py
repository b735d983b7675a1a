"""Public conversations said again to a real server: ``python -m bench.replay [--json]``.

Every user's turn of the data is sent by a real client; the assistant and its tools replay what was recorded; the server
sleeps, restarts and is killed in the middle. Without ``--quick`` the run is judged as the test of the same name judges
it, and what the judges find ends it with an error. The data is found by TORPOR_TEST_DATA.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path

import anyio

from tests.support.recordings import Recording, data_folder, healthcare_sessions, tau_bench_trajectories
from tests.support.replay_run import Figures, ReplayRun
from torpor.operations.logs import LogOptions, configure_logs


async def replayed(recordings: list[Recording], folder: Path, *, is_judged: bool) -> tuple[Figures, list[str]]:
    """What it took, and what is wrong with what is left."""
    run = ReplayRun(folder, recordings, is_logged=is_judged)
    figures = await run.play()
    return figures, run.faults() if is_judged else []


def table(figures: Figures) -> str:
    """For people."""
    lines = (
        ("conversations", f"{figures.conversations:,}"),
        ("turns", f"{figures.turns:,}"),
        ("model requests", f"{figures.requests:,}"),
        ("restarts, one of them a kill", f"{figures.restarts:,}"),
        ("text", f"{figures.text_bytes:,} bytes"),
        ("stored", f"{figures.stored_bytes:,} bytes, {figures.stored_bytes / figures.text_bytes:.2f} times the text"),
        ("CPU of turns", f"{figures.turn_cpu_s:.2f} s, {figures.turns / figures.turn_cpu_s:.0f} turns per second"),
        ("CPU of starts", f"{figures.start_cpu_s:.2f} s"),
    )
    return "\n".join(f"{name:<30}{value}" for name, value in lines)


def main(argv: list[str]) -> int:
    """The command; its exit status is 1 when the judges find something, 2 without data."""
    parser = argparse.ArgumentParser(prog="python -m bench.replay")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--quick", action="store_true", help="keep no requests and judge nothing: the engine's cost alone"
    )
    arguments = parser.parse_args(argv)
    if (data := data_folder()) is None:
        print("no public data here: set TORPOR_TEST_DATA to its folder", file=sys.stderr)
        return 2
    configure_logs(LogOptions(level="warning"))
    recordings = [*healthcare_sessions(data), *tau_bench_trajectories(data)]
    with tempfile.TemporaryDirectory(prefix="torpor-replay-") as folder:
        play = partial(replayed, recordings, Path(folder), is_judged=not arguments.quick)
        figures, faults = anyio.run(play)
    print(json.dumps(asdict(figures)) if arguments.json else table(figures))
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
