"""Tools in processes of their own: real ones, which compute, hang, crash and are killed."""

import os
import signal
import sys
from pathlib import Path

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.process_tools import call, house
from tests.support.processes import ended, workers_of
from tests.support.tools import DictBlobs, TurnThatEnds, a_context
from torpor import tool
from torpor.errors import ConfigError
from torpor.records.terms import Outcome
from torpor.toolhost.contract import ToolResult
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.registry import ToolRegistry

TOOLS = '''
import ctypes, os, signal, subprocess, sys, threading, time
from pathlib import Path

from torpor import NeverHappened, ToolContext, ToolFailed, ToolRefused, tool

calls = 0


@tool(effect="read", runs="process")
def add(first: int, second: int = 2) -> dict[str, int]:
    """Add."""
    print("what a tool prints is no answer")
    return {"sum": first + second}


@tool(effect="read", runs="process")
def whoami() -> list[int]:
    """Tell the process, and how many calls it has had."""
    global calls
    calls += 1
    return [os.getpid(), calls, len(sys.stdin.read())]


@tool(runs="process")
def describe(context: ToolContext) -> dict[str, str]:
    """Tell who is asking."""
    for step in range(3):
        context.report(f"step {step}")
    return {
        "key": "/".join((context.tenant, context.owner, context.conversation)),
        "principal": context.principal,
        "idempotency_key": context.idempotency_key,
        "call": context.call_id,
    }


@tool(runs="process")
def raises(how: str) -> object:
    """Fail."""
    if how == "denied":
        raise ToolRefused("not yours")
    if how == "failed":
        raise ToolFailed("the ledger is closed")
    if how == "exit":
        sys.exit(3)
    if how == "unwritable":
        return object()
    raise ValueError(how)


@tool(runs="process")
def pay(how: str) -> str:
    """Pay, and crash."""
    if how == "exit":
        os._exit(7)
    if how == "memory":
        return "x" * (2**34)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(60)
    return ""


@pay.probe
def paid() -> NeverHappened:
    return NeverHappened()


@tool(effect="read", runs="process")
def look(how: str) -> str:
    """Look, and crash."""
    return pay.function(how)


@tool(effect="read", runs="process")
def stuck(context: ToolContext) -> str:
    """Hold the interpreter for ever."""
    context.report(str(os.getpid()))
    ctypes.PyDLL(None).sleep(600)  # with the lock in its hands, and at no cost to the processor
    return ""


@tool(effect="read", runs="process")
def family(context: ToolContext) -> str:
    """Wait for a process of its own for ever."""
    with subprocess.Popen(["sleep", "600"]) as child:
        context.report(str(child.pid))
    return ""


@tool(effect="read", runs="process")
def orphans(context: ToolContext) -> str:
    """Start a process and crash."""
    child = subprocess.Popen(["sleep", "600"])
    context.report(str(child.pid))
    os.kill(os.getpid(), signal.SIGSEGV)
    return ""


@tool(effect="read", runs="process")
def long(size: int) -> str:
    """Write a lot."""
    return "0123456789" * (size // 10)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "computing.py").write_text(TOOLS)
    return tools


def limit(folder: Path, name: str, *, deadline_s: float) -> None:
    """Give one of the tools a deadline of its own."""
    file = folder / "computing.py"
    source = file.read_text()
    limited = source.replace(f'runs="process")\ndef {name}(', f'runs="process", deadline_s={deadline_s})\ndef {name}(')
    assert limited != source
    file.write_text(limited)


async def test_result_crosses_as_json_and_what_is_printed_does_not(folder: Path) -> None:
    async with house(folder) as registry:
        result = await call(registry, "add", {"first": 40})
    assert result == ToolResult(outcome=Outcome.SUCCEEDED, text='{"sum":42}')


async def test_no_process_is_started_before_a_tool_needs_one(folder: Path) -> None:
    async with house(folder) as registry:
        assert registry.statistics().processes.started == 0
        await call(registry, "add", {"first": "many"})
        assert registry.statistics().processes.started == 0
        await call(registry, "add", {"first": 1})
        assert registry.statistics().processes.started == 1


async def test_process_is_used_again_and_is_not_the_servers(folder: Path) -> None:
    async with house(folder) as registry:
        first = msgspec.json.decode((await call(registry, "whoami")).text)
        second = msgspec.json.decode((await call(registry, "whoami")).text)
    assert first[0] == second[0] != os.getpid()
    assert (first[1:], second[1:]) == ([1, 0], [2, 0])


async def test_tool_knows_its_caller_and_reports_progress(folder: Path) -> None:
    heard: list[str] = []
    async with house(folder) as registry:
        result = await call(registry, "describe", context=a_context(report=heard.append))
    assert msgspec.json.decode(result.text) == {
        "key": "clinic/ada/c1",
        "principal": "ada",
        "idempotency_key": "key-1",
        "call": "toolu_1",
    }
    assert (heard[0], heard[-1]) == ("step 0", "step 2")


RAISED = {
    "denied": (Outcome.DENIED, "not yours"),
    "failed": (Outcome.FAILED, "the ledger is closed"),
    "exit": (Outcome.FAILED, "tool 'raises' failed: SystemExit: 3"),
    "no such day": (Outcome.FAILED, "tool 'raises' failed: ValueError: no such day"),
    "unwritable": (Outcome.FAILED, "it ran to its end, but its result of type object cannot be written as JSON"),
}


async def test_what_a_process_raises_becomes_a_result_and_it_goes_on(folder: Path) -> None:
    async with house(folder) as registry:
        for how, (outcome, text) in RAISED.items():
            result = await call(registry, "raises", {"how": how})
            assert (how, result.outcome, result.text[: len(text)]) == (how, outcome, text)
            assert registry.statistics().processes.idle == 1
        assert registry.statistics().processes.started == 1


async def test_place_of_an_error_is_logged_and_nothing_of_its_words(folder: Path) -> None:
    async with house(folder) as registry:
        with capture_logs() as logs:
            await call(registry, "raises", {"how": "private"})
    (told,) = (log for log in logs if log["event"] == "tool.failed")
    assert told["error"] == "ValueError"
    assert told["where"].startswith("computing.py:")
    assert "private" not in str(told)


CRASHED = {
    "SIGSEGV": "killed by SIGSEGV",
    "SIGKILL": "killed by SIGKILL, perhaps since memory ran out",
    "exit": "exit status 7",
}


async def test_crash_of_a_write_has_an_unknown_outcome_and_that_of_a_read_has_failed(folder: Path) -> None:
    async with house(folder) as registry:
        for number, (how, told) in enumerate(CRASHED.items(), start=1):
            write = await call(registry, "pay", {"how": how})
            read = await call(registry, "look", {"how": how})
            assert registry.statistics().processes.crashed == 2 * number
            assert write.outcome is Outcome.UNKNOWN
            ended_so = f"tool 'pay' ended with its process, {told}"
            assert write.text == f"{ended_so}; it may or may not have taken effect, check before repeating it"
            assert read.outcome is Outcome.FAILED
            assert read.text == f"tool 'look' ended with its process, {told}; it only reads, so nothing was changed"
        assert (await call(registry, "add", {"first": 1})).outcome is Outcome.SUCCEEDED


async def test_memory_beyond_the_limit_fails_the_tool_and_not_the_process(folder: Path) -> None:
    async with house(folder, process_memory_bytes=2**32) as registry:
        result = await call(registry, "pay", {"how": "memory"})
        assert registry.statistics().processes.idle == 1
    assert (result.outcome, result.text) == (Outcome.FAILED, "tool 'pay' failed: MemoryError")


async def test_runaway_is_killed_at_its_deadline_while_others_go_on(folder: Path) -> None:
    heard: list[str] = []
    results: list[ToolResult] = []
    began = anyio.Event()

    def begun(text: str) -> None:
        heard.append(text)
        began.set()

    async def run_away(registry: ToolRegistry) -> None:
        results.append(await call(registry, "stuck", context=a_context(report=begun)))

    limit(folder, "stuck", deadline_s=3)
    async with house(folder) as registry:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_away, registry)
            await began.wait()
            for _ in range(20):
                assert (await call(registry, "add", {"first": 1})).outcome is Outcome.SUCCEEDED
        assert results[0].text == "tool 'stuck' did not finish within 3 s; it only reads, so nothing was changed"
        await ended(int(heard[0]))
        assert registry.statistics().processes.killed == 1


async def test_cancelled_call_takes_its_process_along(folder: Path) -> None:
    pids: list[int] = []
    async with house(folder, worker_processes=1) as registry:
        async with anyio.create_task_group() as tasks:

            def begun(text: str) -> None:
                pids.append(int(text))
                tasks.cancel_scope.cancel()

            tasks.start_soon(lambda: call(registry, "stuck", context=a_context(report=begun)))
        await ended(pids[0])
        assert (await call(registry, "add", {"first": 1})).outcome is Outcome.SUCCEEDED


async def test_what_a_tool_started_ends_with_its_call(folder: Path) -> None:
    heard: list[str] = []
    async with house(folder) as registry:
        async with anyio.create_task_group() as tasks:

            def begun(text: str) -> None:
                heard.append(text)
                tasks.cancel_scope.cancel()

            tasks.start_soon(lambda: call(registry, "family", context=a_context(report=begun)))
        await ended(int(heard[0]))


async def test_what_a_tool_started_ends_with_a_crash_too(folder: Path) -> None:
    heard: list[str] = []
    async with house(folder) as registry:
        await call(registry, "orphans", context=a_context(report=heard.append))
        await ended(int(heard[0]))


async def test_call_beyond_the_limit_waits_for_the_end_of_another(folder: Path) -> None:
    results: list[ToolResult] = []
    async with house(folder, worker_processes=1) as registry, anyio.create_task_group() as tasks:

        async def second() -> None:
            results.append(await call(registry, "add", {"first": 1}))

        def begun(_: str) -> None:
            tasks.start_soon(second)

        async with anyio.create_task_group() as first:
            first.start_soon(lambda: call(registry, "stuck", context=a_context(report=begun)))
            while not registry.statistics().processes.waiting:  # noqa: ASYNC110  a number tells nobody
                await anyio.sleep(0.01)
            assert results == []
            first.cancel_scope.cancel()
    assert results[0].outcome is Outcome.SUCCEEDED


async def test_call_that_found_no_process_is_told_that_nothing_was_done(folder: Path) -> None:
    limit(folder, "add", deadline_s=0.2)
    results: list[ToolResult] = []
    async with house(folder, worker_processes=1) as registry, anyio.create_task_group() as tasks:

        async def second() -> None:
            results.append(await call(registry, "add", {"first": 1}))
            tasks.cancel_scope.cancel()

        def begun(_: str) -> None:
            tasks.start_soon(second)

        await call(registry, "stuck", context=a_context(report=begun))
    assert results[0] == ToolResult(
        outcome=Outcome.NEVER_STARTED,
        text="tool 'add' was not started: no process became free within 0.2 s; nothing was done, call it again later",
    )


async def test_a_call_begins_in_a_process_only_if_its_turn_still_goes_on(folder: Path) -> None:
    onset = TurnThatEnds()
    async with house(folder) as registry:
        result = await call(registry, "add", {"first": 1}, context=a_context(onset=onset))
        assert result == ToolResult(outcome=Outcome.NEVER_STARTED, text="the turn ends, nothing was done")
        assert onset.asked == ["wait", "begin"]
        assert (await call(registry, "add", {"first": 1})).outcome is Outcome.SUCCEEDED
        assert registry.statistics().processes.started == 1, "the process is used all the same"


async def test_idle_process_is_stopped(folder: Path) -> None:
    async with house(folder, process_idle_s=0.0) as registry:
        pid = msgspec.json.decode((await call(registry, "whoami")).text)[0]
        await ended(pid)
        assert (await call(registry, "add", {"first": 1})).outcome is Outcome.SUCCEEDED


async def test_idle_process_that_somebody_else_ended_is_replaced_unnoticed(folder: Path) -> None:
    async with house(folder) as registry:
        pid = msgspec.json.decode((await call(registry, "whoami")).text)[0]
        os.kill(pid, signal.SIGKILL)
        await ended(pid)
        assert (await call(registry, "add", {"first": 1})).outcome is Outcome.SUCCEEDED


async def test_edited_file_counts_from_the_next_start(folder: Path) -> None:
    async with house(folder) as registry:
        (folder / "computing.py").write_text("raise RuntimeError('half an edit')")
        assert (await call(registry, "add", {"first": 1})).outcome is Outcome.SUCCEEDED


async def test_module_that_does_not_load_in_a_process_is_told(folder: Path) -> None:
    (folder / "computing.py").write_text(f"{TOOLS}\nif os.getpid() != {os.getpid()}: raise RuntimeError('elsewhere')\n")
    async with house(folder) as registry:
        result = await call(registry, "add", {"first": 1})
    assert result.outcome is Outcome.NEVER_STARTED
    assert result.text == (
        "tool 'add' was not started: computing.py does not load in a process of its own: RuntimeError: elsewhere"
    )


async def test_module_that_crashes_its_process_is_told(folder: Path) -> None:
    (folder / "computing.py").write_text(f"{TOOLS}\nif os.getpid() != {os.getpid()}: os._exit(9)\n")
    async with house(folder) as registry:
        result = await call(registry, "add", {"first": 1})
    assert result.outcome is Outcome.NEVER_STARTED
    assert result.text == "tool 'add' was not started: its process ended first, exit status 9"


async def test_long_result_is_shortened_like_any_other(folder: Path) -> None:
    async with house(folder) as registry:
        result = await call(registry, "long", {"size": 3_000_000})
    assert result.outcome is Outcome.SUCCEEDED
    assert result.handle
    assert len(result.text.encode()) <= ToolOptions().result_cap_bytes


async def test_result_too_long_to_be_handed_over_is_an_error(folder: Path) -> None:
    async with house(folder) as registry:
        result = await call(registry, "long", {"size": 80_000_000})
        assert registry.statistics().processes.idle == 1
    assert result.outcome is Outcome.FAILED
    assert "cannot be handed over" in result.text


async def test_probe_is_asked_in_the_server(folder: Path) -> None:
    async with house(folder) as registry:
        result = await registry.toolbox().probe("pay", msgspec.Raw(b'{"how":"exit"}'), a_context())
        assert registry.statistics().processes.started == 0
    assert result is not None
    assert result.outcome is Outcome.NEVER_STARTED


def test_tool_without_a_file_is_refused() -> None:
    @tool(runs="process")
    def compute() -> str:
        """Compute."""
        return ""

    with pytest.raises(ConfigError, match="tool 'compute': runs is 'process', expected a tool that was loaded"):
        ToolRegistry([compute], blobs=DictBlobs(), options=ToolOptions())


SERVER = """
import sys
from pathlib import Path
import anyio, msgspec
from tests.support.tools import DictBlobs, a_context
from torpor.toolhost.load import load_tools
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.registry import ToolRegistry

async def main():
    tools = load_tools(Path(sys.argv[2])).tools
    registry = ToolRegistry(tools, blobs=DictBlobs(), options=ToolOptions(deadline_s=600))
    async with registry.running():
        context = a_context(report=lambda text: print(text, flush=True))
        await registry.toolbox().call(sys.argv[3], msgspec.Raw(b"{}"), context)

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize("name", ["stuck", "family"])
async def test_nothing_outlives_a_server_that_is_killed(folder: Path, anyio_backend_name: str, name: str) -> None:
    command = [sys.executable, "-c", SERVER, anyio_backend_name, str(folder), name]
    async with await anyio.open_process(command, stderr=None) as server:
        assert server.stdout is not None
        reported = int(await server.stdout.receive())
        (worker,) = workers_of(server.pid)
        server.kill()
        await ended(worker)
        await ended(reported)
