"""Synchronous tools: real threads, held and released by events."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.tools import TurnThatEnds, a_context, a_registry, called
from torpor import NeverHappened, ToolContext, ToolRefused, tool
from torpor.records.terms import Outcome
from torpor.toolhost.contract import ToolResult
from torpor.toolhost.registry import ToolRegistry

NOTHING = msgspec.Raw(b"{}")


class Gate:
    """Holds tools in their threads until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()
        self.left = threading.Semaphore(0)

    def pass_through(self) -> None:
        self.entered.release()
        assert self.opened.wait(10)
        self.left.release()

    async def somebody_entered(self) -> None:
        assert await anyio.to_thread.run_sync(self.entered.acquire, True, 10)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


def held_by(gate: Gate, **options: Any) -> ToolRegistry:
    @tool
    def write() -> str:
        """Write."""
        gate.pass_through()
        return "written"

    @tool(effect="read", deadline_s=10)
    def read() -> str:
        """Read."""
        return "read"

    return a_registry(write, read, **options)


async def test_a_synchronous_tool_runs_in_another_thread() -> None:
    @tool(effect="read")
    def where() -> bool:
        """Tell."""
        return threading.current_thread() is threading.main_thread()

    assert (await called(where)).text == "false"


@pytest.mark.parametrize(
    ("error", "outcome", "text"),
    [
        (ValueError("no such day"), Outcome.FAILED, "tool 'fail' failed: ValueError: no such day"),
        (ToolRefused("not yours"), Outcome.DENIED, "not yours"),
        (SystemExit(2), Outcome.FAILED, "tool 'fail' failed: RuntimeError: ended by SystemExit: 2"),
        (StopIteration(), Outcome.FAILED, "tool 'fail' failed: RuntimeError: coroutine raised StopIteration"),
        (KeyboardInterrupt(), Outcome.FAILED, "tool 'fail' failed: RuntimeError: ended by KeyboardInterrupt: "),
    ],
)
async def test_what_a_thread_raises_becomes_a_result(error: BaseException, outcome: Outcome, text: str) -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise error

    result = await called(fail)
    assert (result.outcome, result.text) == (outcome, text)


async def test_the_loop_goes_on_while_a_thread_is_busy(gate: Gate) -> None:
    box = held_by(gate).toolbox()
    results: list[ToolResult] = []

    async def write() -> None:
        results.append(await box.call("write", NOTHING, a_context()))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await gate.somebody_entered()
            assert (await box.call("read", NOTHING, a_context())).text == "read"
            assert results == []
            gate.opened.set()
    assert results[0].text == "written"


async def test_a_write_past_its_deadline_is_given_up_and_goes_on_to_its_end(gate: Gate) -> None:
    box = held_by(gate, deadline_s=0.2).toolbox()
    with anyio.fail_after(10):
        result = await box.call("write", NOTHING, a_context())
        assert result.outcome is Outcome.UNKNOWN
        gate.opened.set()
        assert await anyio.to_thread.run_sync(gate.left.acquire, True, 10)


async def test_a_cancelled_caller_leaves_at_once(gate: Gate) -> None:
    box = held_by(gate).toolbox()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(box.call, "write", NOTHING, a_context())
            await gate.somebody_entered()
            tasks.cancel_scope.cancel()
    assert not gate.opened.is_set()


async def test_calls_given_up_keep_their_threads_so_that_threads_stay_bounded(gate: Gate) -> None:
    registry = held_by(gate, deadline_s=0.2, worker_threads=2)
    box = registry.toolbox()
    with anyio.fail_after(10):
        for _ in range(2):
            assert (await box.call("write", NOTHING, a_context())).outcome is Outcome.UNKNOWN
        third = await box.call("write", NOTHING, a_context())
        assert third.outcome is Outcome.NEVER_STARTED
        assert third.text == (
            "tool 'write' was not started: no thread became free within 0.2 s; nothing was done, call it again later"
        )
        assert repr(registry) == "<ToolRegistry tools=2 <Workers limit=2 busy=2> <Processes busy=0 idle=0>>"
        threads = registry.statistics().threads
        assert (threads.limit, threads.busy, threads.given_up, threads.waiting) == (2, 2, 2, 0)
        gate.opened.set()
        assert (await box.call("read", NOTHING, a_context())).text == "read"


async def test_one_tool_that_hangs_leaves_threads_to_the_others(gate: Gate) -> None:
    registry = held_by(gate, deadline_s=0.2, worker_threads=4, worker_threads_per_tool=2)
    box = registry.toolbox()
    with anyio.fail_after(10):
        outcomes = [(await box.call("write", NOTHING, a_context())).outcome for _ in range(3)]
        assert outcomes == [Outcome.UNKNOWN, Outcome.UNKNOWN, Outcome.NEVER_STARTED]
        assert (await box.call("read", NOTHING, a_context())).text == "read"


async def test_whoever_runs_the_server_is_told_which_tools_keep_the_threads(gate: Gate) -> None:
    box = held_by(gate, deadline_s=0.2, worker_threads=1).toolbox()
    with anyio.fail_after(10), capture_logs() as logs:
        for _ in range(2):
            await box.call("write", NOTHING, a_context())
    (told,) = (log for log in logs if log["event"] == "tool.no_place")
    assert (told["tool"], told["threads_taken"]) == ("write", {"write": 1})


async def test_places_of_calls_given_up_are_free_again_once_the_work_ends(gate: Gate) -> None:
    registry = held_by(gate, deadline_s=0.2, worker_threads=1)
    box = registry.toolbox()
    with anyio.fail_after(10):
        await box.call("write", NOTHING, a_context())
        gate.opened.set()
        assert (await box.call("read", NOTHING, a_context())).text == "read"
        threads = registry.statistics().threads
        assert (threads.busy, threads.given_up) == (0, 0)


async def test_a_call_that_waits_for_a_thread_begins_only_if_its_turn_still_goes_on(gate: Gate) -> None:
    registry = held_by(gate, worker_threads=1)
    box, onset, results = registry.toolbox(), TurnThatEnds(), list[ToolResult]()

    async def second() -> None:
        results.append(await box.call("write", NOTHING, a_context(onset=onset)))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: box.call("write", NOTHING, a_context(onset=onset)))
            await gate.somebody_entered()
            assert onset.asked == [], "there was a thread for it"
            tasks.start_soon(second)
            await onset.waits.wait()
            gate.opened.set()
        assert results == [ToolResult(outcome=Outcome.NEVER_STARTED, text="the turn ends, nothing was done")]
        assert onset.asked == ["wait", "begin"]
        assert not gate.entered.acquire(blocking=False)
        assert (await box.call("read", NOTHING, a_context())).text == "read", "its thread is free again"


async def test_one_thread_serves_calls_one_after_the_other() -> None:
    @tool(effect="read")
    def whose() -> str:
        """Tell."""
        return threading.current_thread().name

    registry = a_registry(whose)
    box = registry.toolbox()
    assert {(await box.call("whose", NOTHING, a_context())).text for _ in range(5)} == {"tool worker 1"}
    registry.close()


async def test_a_thread_reports_progress_in_order() -> None:
    @tool
    def work(context: ToolContext) -> str:
        """Work."""
        for step in range(3):
            context.report(f"step {step}")
        return "worked"

    heard: list[tuple[str, bool]] = []

    def hear(text: str) -> None:
        heard.append((text, threading.current_thread() is threading.main_thread()))

    await called(work, context=a_context(report=hear))
    assert heard == [("step 0", True), ("step 1", True), ("step 2", True)]


async def test_a_call_given_up_reports_no_more(gate: Gate) -> None:
    @tool(deadline_s=1.0)  # within which a thread begins, on a busy machine too
    def work(context: ToolContext) -> str:
        """Work."""
        context.report("begun")
        assert gate.opened.wait(10)
        context.report("too late")
        gate.left.release()
        return ""

    heard: list[str] = []
    with anyio.fail_after(10):
        await called(work, context=a_context(report=heard.append))
        gate.opened.set()
        assert await anyio.to_thread.run_sync(gate.left.acquire, True, 10)
    assert heard == ["begun"]


async def test_a_synchronous_probe_is_asked_in_a_thread() -> None:
    @tool
    def pay() -> str:
        """Pay."""
        return ""

    @pay.probe
    def paid() -> NeverHappened:
        assert threading.current_thread() is not threading.main_thread()
        return NeverHappened()

    result = await a_registry(pay).toolbox().probe("pay", NOTHING, a_context())
    assert result is not None
    assert result.outcome is Outcome.NEVER_STARTED


async def test_a_synchronous_tool_may_run_an_event_loop_of_its_own(anyio_backend_name: str) -> None:
    @tool(effect="read")
    def compute() -> int:
        """Compute."""

        async def answer() -> int:
            return 42

        return anyio.run(answer, backend=anyio_backend_name)

    assert (await called(compute)).text == "42"


HANGING = """
import sys, time
import anyio, msgspec
from tests.support.tools import called
from torpor import tool

@tool(deadline_s=0.05)
def hang() -> str:
    '''Hang.'''
    time.sleep(600)

print(anyio.run(called, hang, backend=sys.argv[1]).outcome)
"""


def test_a_thread_that_hangs_does_not_keep_the_process_from_leaving(anyio_backend_name: str) -> None:
    command = [sys.executable, "-c", HANGING, anyio_backend_name]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert ended.stdout.endswith("unknown\n")
