"""What is left of programs when the process that started them is killed."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

RAW = Path(__file__).parents[2] / "support" / "mcp_raw_server.py"
STUBBORN = f"trap '' TERM HUP INT; {sys.executable} {RAW} --stubborn; sleep 600"
STARTER = """
import sys, anyio
from torpor.toolhost.mcp.program import program_streams

async def main():
    command, options = ["sh", "-c", sys.argv[2]], {"env": {}, "cwd": ".", "line_bytes_max": 65_536, "died": print}
    async with program_streams(command, shows_errors=True, secrets=(), **options):
        print("started", flush=True)
        await anyio.sleep_forever()

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system ends programs of a process that was killed")
@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=pytest.mark.soak)])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_mcp_02_a_stubborn_program_ends_with_a_process_that_is_killed(backend: str) -> None:
    """And so does what it started: all of them hold the pipe of standard error, whose end is the end of the last."""
    command = [sys.executable, "-c", STARTER, backend, STUBBORN]
    with anyio.fail_after(60):
        async with await anyio.open_process(command, stdin=subprocess.DEVNULL) as starter:
            assert starter.stdout is not None
            assert starter.stderr is not None
            assert (await starter.stdout.receive()).startswith(b"started")
            starter.kill()
            assert [piece async for piece in starter.stderr] == []
