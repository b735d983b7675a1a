"""Plays seeds: ``python -m tests.simulation.run --world a --seed 123`` prints the trace and what was broken.

With ``--count`` it plays that many from the seed on and prints what was broken, what was counted and how fast it was.
"""

import argparse
import time
from collections import Counter

from tests.simulation import deterministic
from tests.simulation.planted import PLANTED
from tests.simulation.simulate import simulate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run")
    parser.add_argument("--world", choices=("a", "b"), default="a")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--stride", type=int, default=1, help="from one seed to the next; 4 stays with sub-agents")
    parser.add_argument("--planted", choices=tuple(PLANTED), help="a bug to switch on")
    options = parser.parse_args()
    deterministic.check()
    planted = PLANTED.get(options.planted)
    if options.count == 1:
        outcome = simulate(options.world, options.seed, is_traced=True, planted=planted)
        print("\n".join(outcome.trace))
        for violation in outcome.violations:
            print(violation)
        raise SystemExit(1 if outcome.violations else 0)
    counts, broken, begun = Counter[str](), 0, time.perf_counter()
    for seed in range(options.seed, options.seed + options.count * options.stride, options.stride):
        outcome = simulate(options.world, seed, planted=planted)
        counts += outcome.counts
        if outcome.violations:
            broken += 1
            print(outcome.command)
            for violation in outcome.violations[:5]:
                print("   ", str(violation)[:1500])
    took_s = time.perf_counter() - begun
    for name, count in sorted(counts.items()):
        print(f"{count:8} {name}")
    print(f"{options.count} seeds, {broken} broken, {options.count / took_s:.1f} seeds per second")
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()
