"""What the log shows, and what it never does."""

import json
import subprocess
import sys

import pytest

LOGGING = """
import structlog
from torpor.operations.logs import LogOptions, configure_logs
configure_logs(LogOptions(level="info", format={format!r}))
log = structlog.get_logger()
log.debug("step.taken")
log.info("actor.thawed", seq=3)
def fail():
    said = "my number is 4711"
    raise ValueError("broken")
try:
    fail()
except ValueError:
    log.exception("turn.crashed")
print("facts")
"""

REPEATED = """
import logging
from torpor.operations.logs import LogOptions, configure_logs
configure_logs(LogOptions(format="json"))
library = logging.getLogger("asyncio")
for number in range(300):
    record = library.makeRecord("asyncio", logging.ERROR, "", 0, "no more files", (), None)
    record.created = 1_000.0 + number / 25
    library.handle(record)
library.error("something else")
"""


def logged(format_: str) -> tuple[str, str]:
    """Standard output and error of a process of its own: its log is set up once."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOGGING.format(format=format_)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


def test_machines_get_one_object_a_line() -> None:
    _, log = logged("json")

    thawed, crashed = map(json.loads, log.splitlines())
    assert {**thawed, "timestamp": ""} == {"event": "actor.thawed", "seq": 3, "level": "info", "timestamp": ""}
    assert thawed["timestamp"].endswith("Z")
    assert "ValueError: broken" in crashed["exception"]


@pytest.mark.parametrize("format_", ["console", "json"])
def test_log_keeps_off_standard_output_and_below_its_level(format_: str) -> None:
    facts, log = logged(format_)

    assert facts == "facts\n"
    assert "actor.thawed" in log
    assert "ValueError: broken" in log
    assert "step.taken" not in log


@pytest.mark.parametrize("format_", ["console", "json"])
def test_crash_shows_no_local_variables(format_: str) -> None:
    _, log = logged(format_)

    assert "4711" not in log


def test_a_library_that_says_the_same_over_and_over_is_written_now_and_then() -> None:
    done = subprocess.run([sys.executable, "-c", REPEATED], capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in done.stderr.splitlines()]

    assert [(line["why"], line.get("left_out")) for line in told] == [
        ("no more files", None),
        ("no more files", 249),
        ("something else", None),
    ]
