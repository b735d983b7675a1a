"""What surrounds a server breaks: its log, its clock, a child that outlives it, the row beside the one asked for."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import anyio
from click.testing import CliRunner

from tests.support.doubles import Gate, ManualClock, calls, stops_at, use, writes
from tests.support.engine import running_engine
from tests.support.sample_records import conversation, opening
from tests.support.writing import lease_of, put
from torpor.cli.init import command as init
from torpor.records.journal import ToolStarted, TurnFinished
from torpor.store.sqlite.engine import open_sqlite

_LOGGING = """
import sys
import structlog
from torpor.operations.logs import LogOptions, configure_logs
configure_logs(LogOptions(format="json"))
structlog.get_logger().warning("tool.failed", tool="look")
print("still here")
"""
_FORKING = """
import os, sys
from pathlib import Path
from torpor.store.sqlite.data_lock import DataLock
with DataLock(Path(sys.argv[1])):
    begun, begins = os.pipe()
    child = os.fork()
    if not child:
        os.write(begins, b".")
        os.close(1)
        sys.stdin.read()
        os._exit(0)
    os.read(begun, 1)
    print(child, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_log_on_a_full_disk_ends_nothing() -> None:
    with Path("/dev/full").open("w") as full:
        run = subprocess.run([sys.executable, "-c", _LOGGING], stderr=full, stdout=subprocess.PIPE, check=False)
    assert run.stdout == b"still here\n"


def test_a_child_that_a_tool_forked_does_not_keep_the_data_folder_locked(tmp_path: Path) -> None:
    server = [sys.executable, "-c", _FORKING, str(tmp_path)]
    with subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert process.wait() == -signal.SIGKILL
        try:
            anyio.run(_opened_and_closed, tmp_path)
        finally:
            os.kill(child, signal.SIGKILL)


async def _opened_and_closed(directory: Path) -> None:
    async with open_sqlite(directory):
        pass


async def test_a_row_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    good, bad = conversation(1), conversation(2)
    async with open_sqlite(tmp_path) as store:
        for key in (good, bad):
            await put(store, await lease_of(store, key), opening(), due_us=1)
    with sqlite3.connect(tmp_path / "torpor.db") as db:
        db.execute("UPDATE conversations SET owner = CAST(x'ff' AS TEXT) WHERE conversation = ?", (bad.conversation,))
    db.close()
    async with open_sqlite(tmp_path) as store:
        assert await store.due(now_us=1, limit=9) == (good,)
        rows = await store.list_conversations(tenant=None, owner=None, limit=9)
        assert [row.key for row in rows] == [good]


async def test_a_turn_that_was_cut_off_goes_on_though_the_clock_was_set_back() -> None:
    gate, later = Gate(), ManualClock()
    later.advance(86_400)
    tool = writes("pay", stops_at(gate))
    async with running_engine(calls(use("pay", "a")), tools=[tool], clock=later) as engine:
        heard = engine.watch()
        await engine.send("pay")
        await gate.reached.wait()
        await heard.until(ToolStarted)
        image = engine.store.image()
        gate.opened.set()
    async with running_engine(tools=[writes("pay")], data=image, clock=ManualClock()) as engine:
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == 1


def test_a_home_is_not_copied_into_itself(tmp_path: Path) -> None:
    runner = CliRunner()
    inside = Path(__file__).parents[2] / "tools" / "office"
    result = runner.invoke(init, [str(inside)])
    assert result.exit_code == 1
    assert "inside the home" in result.output
    assert not inside.exists()
