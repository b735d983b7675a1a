"""The benchmark of the gateway runs from end to end; what it measures in a hurry means nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
def test_every_row_is_measured_against_the_bare_server() -> None:
    command = [sys.executable, "-m", "bench.gateway", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr

    rows = json.loads(done.stdout)
    assert {row["id"] for row in rows} == {"W1", "W2", ""}
    assert [row["what"] for row in rows if row["floor"] is None] == ["added to it, its commit included"] * 2
    assert all(row["floor"] > 0 and row["torpor"] > 0 for row in rows if row["floor"] is not None)
