"""What tools in processes of their own leave behind: children, threads and words, none of which reach another call."""

import errno
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.process_tools import call, house
from tests.support.processes import ended
from tests.support.tools import a_context
from torpor.records.terms import Outcome

TOOLS = '''
import os, sys, threading, time

from torpor import ToolContext, tool

calls = 0


@tool(effect="read", runs="process")
def whoami() -> list[int]:
    """Tell the process, and how many calls it has had."""
    global calls
    calls += 1
    return [os.getpid(), calls]


@tool(effect="read", runs="process")
def steps(context: ToolContext) -> str:
    """Report."""
    context.report("a step")
    return "stepped"


@tool(effect="read", runs="process")
def twice(context: ToolContext) -> str:
    """Come back in two processes."""
    child = os.fork()
    if child == 0:
        context.report("from the child")
        return "the child's answer"
    os.waitpid(child, 0)
    return "the answer"


@tool(effect="read", runs="process")
def lingering() -> str:
    """Crash, with a child that holds whatever it was given."""
    if os.fork() == 0:
        time.sleep(600)
    os._exit(3)


@tool(effect="read", runs="process")
def away(context: ToolContext) -> str:
    """Wait for ever, with a process that left the session and whose parent has ended."""
    told, tells = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(tells, str(os.getpid()).encode())
            time.sleep(600)
        os._exit(0)
    context.report(os.read(told, 20).decode())
    time.sleep(600)
    return ""


@tool(effect="read", runs="process")
def chatters(context: ToolContext) -> str:
    """Leave threads behind that go on reporting."""
    def go() -> None:
        while True:
            context.report("of another call")
    for _ in range(3):
        threading.Thread(target=go, daemon=True).start()
    return "chattered"


@tool(effect="read", runs="process")
def forges() -> str:
    """Say something in the name of another call."""
    import gc
    from torpor.toolhost.process_frames import Returned
    from torpor.toolhost.process_worker import Worker
    worker = next(found for found in gc.get_objects() if isinstance(found, Worker))
    worker._answer(Returned(call=1_000_000, text="forged", replaced=0))
    return "true"


@tool(effect="read", runs="process")
def prints() -> str:
    """Print what a terminal obeys, and what is no text."""
    print("said " + chr(27) + "[31mred" + chr(0))
    sys.stdout.buffer.write(bytes([255, 10]))
    sys.stdout.flush()
    return "printed"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "leaving.py").write_text(TOOLS)
    return tools


async def test_a_tool_that_forks_is_answered_for_once_and_its_process_is_used_again(folder: Path) -> None:
    heard: list[str] = []
    async with house(folder, worker_processes=1) as registry:
        for _ in range(3):
            result = await call(registry, "twice", context=a_context(report=heard.append))
            assert (result.outcome, result.text) == (Outcome.SUCCEEDED, "the answer")
        first = msgspec.json.decode((await call(registry, "whoami")).text)
        assert first[1] == 1
        assert registry.statistics().processes.started == 1
    assert heard == []


async def test_nothing_that_an_earlier_call_left_behind_is_heard_in_a_later_one(folder: Path) -> None:
    heard: list[str] = []
    async with house(folder, worker_processes=1) as registry:
        for _ in range(5):
            assert (await call(registry, "chatters")).text == "chattered"
            assert (await call(registry, "steps", context=a_context(report=heard.append))).outcome is (
                Outcome.SUCCEEDED
            )
    assert "of another call" not in heard


async def test_a_process_that_speaks_of_another_call_is_not_believed_and_not_used_again(folder: Path) -> None:
    with capture_logs() as logs:
        async with house(folder, worker_processes=1) as registry:
            result = await call(registry, "forges")
            assert (result.outcome, "forged" in result.text) == (Outcome.FAILED, False)
            assert (await call(registry, "steps")).text == "stepped"
            assert registry.statistics().processes.started == 2
    assert "tool.stray_frame" in [line["event"] for line in logs]


async def test_what_a_tool_prints_is_told_to_the_log_without_what_a_terminal_obeys(folder: Path) -> None:
    with capture_logs() as logs:
        async with house(folder) as registry:
            assert (await call(registry, "prints")).text == "printed"
            while told(logs).count("?") < 3:  # noqa: ASYNC110  the log tells nobody
                await anyio.sleep(0.01)
    assert told(logs) == "said ?[31mred??"
    assert {line["tool"] for line in logs if line["event"] == "tool.printed"} == {"prints"}


def told(logs: list[MutableMapping[str, Any]]) -> str:
    """What was printed, however it was cut."""
    pieces = (line["printed"] for line in logs if line["event"] == "tool.printed")
    return "".join(pieces).replace("\n", "").replace("\N{REPLACEMENT CHARACTER}", "?")


async def test_a_crash_is_noticed_though_a_child_lives(folder: Path) -> None:
    async with house(folder) as registry:
        with anyio.fail_after(20):
            result = await call(registry, "lingering")
    assert (result.outcome, "exit status 3" in result.text) == (Outcome.FAILED, True)


async def test_what_left_the_session_ends_with_its_call_as_well(folder: Path) -> None:
    heard: list[str] = []
    async with house(folder) as registry:
        async with anyio.create_task_group() as tasks:

            def begun(text: str) -> None:
                heard.append(text)
                tasks.cancel_scope.cancel()

            tasks.start_soon(lambda: call(registry, "away", context=a_context(report=begun)))
        await ended(int(heard[0]))


async def test_without_room_for_a_pipe_nothing_was_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    async with house(folder) as registry:
        monkeypatch.setattr("torpor.toolhost.process.os.pipe", none_left)
        result = await call(registry, "steps")
        monkeypatch.undo()
    assert (result.outcome, "Too many open files" in result.text) == (Outcome.NEVER_STARTED, True)
