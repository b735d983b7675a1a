"""A loop that is really held up, by tools that do what they should not, and a process that is really stopped."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from tests.support.log_lines import LogLines, log_lines
from tests.support.tools import DictBlobs, a_context
from torpor import tool
from torpor.clock import SystemClock
from torpor.toolhost.calls import Calls
from torpor.toolhost.declare import Tool
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.registry import ToolRegistry
from torpor.toolhost.toolbox import LocalToolbox
from torpor.watchdog.options import WatchdogOptions
from torpor.watchdog.watchdog import Watchdog

NOTHING = msgspec.Raw(b"{}")
OPTIONS = WatchdogOptions(lag_warn_s=0.5, beat_s=0.05)


def compute() -> None:
    """Hold the interpreter for a few seconds."""
    re.match("(a+)+$", "a" * 25 + "b")


@tool(effect="read")
async def naps() -> str:
    """Block the loop, as no async function may."""
    time.sleep(1)  # noqa: ASYNC251  # the very mistake
    return "slept"


@tool(effect="read")
async def naps_in_a_task() -> str:
    """Block the loop from a task of its own."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(nap)
    return "slept"


async def nap() -> None:
    time.sleep(1)  # noqa: ASYNC251  # the very mistake


@tool(effect="read")
def grinds() -> str:
    """Hold the interpreter in a thread."""
    compute()
    return "computed"


@tool(effect="read")
def waits() -> str:
    """Wait in a thread, as one may."""
    time.sleep(1.2)
    return "waited"


class House:
    def __init__(self, toolbox: LocalToolbox, watchdog: Watchdog, logs: LogLines) -> None:
        self.toolbox = toolbox
        self.watchdog = watchdog
        self.logs = logs


@asynccontextmanager
async def watched(*tools: Tool[..., Any]) -> AsyncIterator[House]:
    clock = SystemClock()
    calls = Calls(clock.monotonic_s, thread_cpu_s=time.thread_time)
    registry = ToolRegistry(tools, blobs=DictBlobs(), options=ToolOptions(), calls=calls)
    watchdog = Watchdog(OPTIONS, clock=clock, process_cpu_s=time.process_time, suspects=calls)
    with log_lines() as logs, anyio.fail_after(60):
        async with watchdog.running(), registry.running():
            yield House(registry.toolbox(), watchdog, logs)


async def test_async_tool_that_sleeps_is_named_with_the_line_that_does() -> None:
    async with watched(naps, waits) as house, anyio.create_task_group() as tasks:
        tasks.start_soon(house.toolbox.call, "waits", NOTHING, a_context())
        await house.toolbox.call("naps", NOTHING, a_context())
        told = await house.logs.first("loop.blocked", where=lambda line: line["tools"] == ("naps",))
        assert told["cause"] == "busy"
        assert told["frames"][0].startswith("watchdog/test_watchdog.py:")
        assert told["frames"][0].endswith(" naps")
        await house.logs.first("loop.resumed")
        assert house.watchdog.statistics().stalls >= 1


async def test_task_of_an_async_tool_is_named_as_the_tool() -> None:
    async with watched(naps_in_a_task) as house:
        await house.toolbox.call("naps_in_a_task", NOTHING, a_context())
        told = await house.logs.first("loop.blocked", where=lambda line: line["tools"] == ("naps_in_a_task",))
        assert told["frames"][0].endswith(" nap")


async def test_tool_that_holds_the_interpreter_in_a_thread_is_named_and_one_that_waits_is_not() -> None:
    async with watched(grinds, waits) as house, anyio.create_task_group() as tasks:
        tasks.start_soon(house.toolbox.call, "waits", NOTHING, a_context())
        await house.toolbox.call("grinds", NOTHING, a_context())
        told = await house.logs.first("loop.blocked", where=lambda line: bool(line["tools"]))
        assert told["tools"] == ("grinds",)
        assert told["cause"] == "interpreter_held"


async def test_code_that_is_no_tool_is_told_by_its_lines() -> None:
    async with watched(waits) as house:
        await nap()
        told = await house.logs.first("loop.blocked")
        assert told["tools"] == ()
        assert told["frames"][0].endswith(" nap")


async def test_tool_that_waits_in_a_thread_is_blamed_for_nothing() -> None:
    async with watched(waits) as house:
        await house.toolbox.call("waits", NOTHING, a_context())
        assert not [line for line in house.logs.of("loop.blocked") if line["tools"]]


WATCHED = """
import json, sys, time
import anyio, structlog
from torpor.clock import SystemClock
from torpor.watchdog.contract import NoSuspects
from torpor.watchdog.options import WatchdogOptions
from torpor.watchdog.watchdog import Watchdog

def told(_, __, line):
    print(json.dumps(line), flush=True)
    raise structlog.DropEvent

async def main():
    options = WatchdogOptions(lag_warn_s=0.5, beat_s=0.05)
    watchdog = Watchdog(options, clock=SystemClock(), process_cpu_s=time.process_time, suspects=NoSuspects())
    async with watchdog.running():
        print(json.dumps({"event": "ready"}), flush=True)
        await anyio.sleep(600)

structlog.configure(processors=[told])
anyio.run(main, backend=sys.argv[1])
"""


def test_process_that_was_stopped_says_so_and_blames_nobody(anyio_backend_name: str) -> None:
    command = [sys.executable, "-c", WATCHED, anyio_backend_name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["event"] == "ready"
            process.send_signal(signal.SIGSTOP)
            time.sleep(2)  # what is told is the time that passes
            process.send_signal(signal.SIGCONT)
            told = json.loads(process.stdout.readline())
        finally:
            process.kill()
    assert told["event"] == "process.suspended"
    assert told["running"] == []
