"""Every benchmark, one after the other: ``python -m bench [--json]``; the worst exit status is ours."""

import json
import subprocess
import sys
from typing import Final

MODULES: Final = (
    "bench.turns",
    "bench.idle",
    "bench.streaming",
    "bench.gateway",
    "bench.context",
    "bench.compaction",
    "bench.subagents",
    "bench.mcp",
    "bench.attachments",
)


def main() -> int:
    """Run them as a person would; with ``--json``, the rows of all as one array."""
    statuses, rows = [], []
    for module in MODULES:
        command = [sys.executable, "-m", module, *sys.argv[1:]]
        if "--json" not in sys.argv:
            print(f"\n{module}", flush=True)
            statuses.append(subprocess.run(command, check=False).returncode)
            continue
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE)
        statuses.append(done.returncode)
        rows += json.loads(done.stdout)
    if rows:
        print(json.dumps(rows, indent=2))
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
