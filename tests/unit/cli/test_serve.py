"""How a server ends that somebody ends from within."""

import asyncio
import sys

import anyio
import pytest
from structlog.testing import capture_logs

from torpor.cli import serve


def test_an_exit_in_a_callback_of_the_loop_is_told_and_has_a_code_of_its_own() -> None:
    async def serves() -> None:
        asyncio.get_running_loop().call_soon(sys.exit, 0)
        await anyio.sleep_forever()

    with capture_logs() as logs, pytest.raises(SystemExit) as raised:
        serve._run(serves)
    assert raised.value.code == 70
    assert [(entry["event"], entry["code"]) for entry in logs] == [("server.ended_from_within", "0")]
