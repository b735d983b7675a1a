"""What a delta costs on its way from the model to the client: ``python -m bench.streaming [--json]``. Row S1.

How it is measured is told by ``bench.probes.streaming``.
"""

import sys
from collections.abc import Iterator
from typing import Final

from bench import command
from bench.measure import note, probe
from bench.probes import streaming
from bench.report import Row

MODULE: Final = "bench.streaming"
_PROBES: Final = {
    "torpor": streaming.torpor,
    "bare": streaming.bare,
    "raw": streaming.raw,
    "helped": streaming.helped,
}
_PACES: Final = {"at once": "as fast as it comes", "paced": "each delta a read"}
_RAW_SHARE: Final = 80 / 55
"""Of the target, to what the SDK's raw stream cost when it was set."""


def rows() -> Iterator[Row]:
    """Measure everything, a process for each reader; the floor is a bare one, which has no client to tell."""
    found = {name: probe(MODULE, name) for name in _PROBES}
    torpor = found["torpor"]
    for pace, what in _PACES.items():
        yield Row(
            id="S1",
            what=f"CPU of a delta, {what}",
            unit="us",
            floor=found["bare"][pace],
            torpor=torpor[pace],
            base=found["raw"][pace],
            base_name="the SDK's raw stream",
            at_most=80 if pace == "at once" else None,
            ratio_at_most=_RAW_SHARE,
        )
        yield Row(
            id="S1",
            what=f"the same, {what}",
            unit="us",
            floor=found["bare"][pace],
            torpor=torpor[pace],
            base=found["helped"][pace],
            base_name="the SDK's helper",
            ratio_at_most=1,
        )
    for pace, what in _PACES.items():
        cost = (f"{name} {found[probe_][pace]:.0f} us" for probe_, name in _ALONE.items())
        frames = torpor[f"deltas per frame {pace}"]
        note(f"{what}: {', '.join(cost)} alone; the server puts {frames:.1f} deltas in a frame")


_ALONE: Final = {"bare": "a bare reader", "raw": "the SDK's raw stream", "helped": "the SDK's helper"}


if __name__ == "__main__":
    sys.exit(command.run(MODULE, rows=rows, probes=_PROBES))
