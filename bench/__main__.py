"""Every benchmark, one after the other: ``python -m bench``; the worst exit status is ours."""

import subprocess
import sys
from typing import Final

MODULES: Final = ("bench.turns", "bench.idle")

if __name__ == "__main__":
    statuses = []
    for module in MODULES:
        print(f"\n{module}", flush=True)
        statuses.append(subprocess.run([sys.executable, "-m", module, *sys.argv[1:]], check=False).returncode)
    sys.exit(max(statuses))
