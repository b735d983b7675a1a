"""What a program hears of the client that it did not ask for."""

import logging

import anyio
import pytest

from torpor.client.options import ClientOptions
from torpor.client.torpor_client import TorporClient

QUICK = ClientOptions(backoff_s=0.01, backoff_max_s=0.05)


async def test_a_program_that_says_nothing_of_logs_sees_none(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="torpor.client"):
        async with TorporClient("ws://127.0.0.1:1", "token", options=QUICK):
            with anyio.fail_after(30):
                while "client.connection_failed" not in caplog.text:  # noqa: ASYNC110 - a log has no event
                    await anyio.sleep(0.005)

    assert capsys.readouterr() == ("", "")
