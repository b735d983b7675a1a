"""A tool on the event loop ends when it is told to, or is left behind; and nothing that it leaves ends others."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.doubles import Gate
from tests.support.tools import a_context, a_registry
from torpor import tool
from torpor.records.terms import Effect, Outcome
from torpor.toolhost import own_tasks
from torpor.toolhost.declare import Tool

NOTHING = msgspec.Raw(b"{}")
DEADLINE_S = 10.0


@pytest.fixture(autouse=True)
def lets_go_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_tasks, "_LETS_GO_S", 0.05)


def deaf(gate: Gate, *, effect: Effect) -> Tool[[], Coroutine[Any, Any, str]]:
    """Heeds no cancellation until the gate is open."""

    @tool(effect=effect.value, deadline_s=0.05)
    async def linger() -> str:
        """Linger."""
        with anyio.CancelScope(shield=True):
            await gate.passed()
        return "late"

    return linger


@pytest.mark.parametrize(("effect", "outcome"), [(Effect.READ, Outcome.FAILED), (Effect.WRITE, Outcome.UNKNOWN)])
async def test_a_tool_that_does_not_end_at_its_deadline_is_left_behind(effect: Effect, outcome: Outcome) -> None:
    gate = Gate()
    registry = a_registry(deaf(gate, effect=effect))
    with capture_logs() as logs, anyio.fail_after(DEADLINE_S):
        async with registry.running():
            result = await registry.toolbox().call("linger", NOTHING, a_context())
            assert result.outcome is outcome
            gate.opened.set()
            while not any(entry["event"] == "tool.ended_late" for entry in logs):
                await anyio.lowlevel.checkpoint()
    told = [(entry["event"], entry["tool"]) for entry in logs]
    assert told == [("tool.left_behind", "linger"), ("tool.timed_out", "linger"), ("tool.ended_late", "linger")]


async def test_a_call_that_is_cancelled_does_not_wait_for_a_tool_that_goes_on() -> None:
    gate = Gate()
    registry = a_registry(deaf(gate, effect=Effect.WRITE))
    with capture_logs() as logs, anyio.fail_after(DEADLINE_S):
        async with registry.running():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(registry.toolbox().call, "linger", NOTHING, a_context())
                await gate.reached.wait()
                tasks.cancel_scope.cancel()
            gate.opened.set()
    assert "tool.left_behind" in [entry["event"] for entry in logs]


async def test_what_a_cancelled_tool_cleans_up_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_tasks, "_LETS_GO_S", DEADLINE_S)
    gate, cleaned = Gate(), list[str]()

    @tool
    async def tidy() -> str:
        """Tidy."""
        try:
            await gate.passed()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                cleaned.append("up")
        return ""

    registry = a_registry(tidy)
    with capture_logs() as logs, anyio.fail_after(DEADLINE_S):
        async with registry.running(), anyio.create_task_group() as tasks:
            tasks.start_soon(registry.toolbox().call, "tidy", NOTHING, a_context())
            await gate.reached.wait()
            tasks.cancel_scope.cancel()
    assert cleaned == ["up"]
    assert logs == []


class TestTasksLeftBehind:
    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"  # on trio nobody can begin a task without waiting for it

    @pytest.mark.parametrize(
        "begin", [asyncio.create_task, asyncio.ensure_future], ids=["create_task", "ensure_future"]
    )
    @pytest.mark.parametrize("error", [SystemExit(9), KeyboardInterrupt("x")], ids=repr)
    async def test_one_that_asks_for_an_exit_fails_and_ends_nothing_else(
        self, begin: Callable[..., asyncio.Future[None]], error: BaseException
    ) -> None:
        left: list[asyncio.Future[None]] = []

        async def leave() -> None:
            await asyncio.sleep(0)
            raise error

        @tool(effect="read")
        async def begins() -> str:
            """Begin."""
            left.append(begin(leave()))
            return "begun"

        registry = a_registry(begins)
        with capture_logs() as logs, anyio.fail_after(DEADLINE_S):
            async with registry.running():
                result = await registry.toolbox().call("begins", NOTHING, a_context())
                assert result.text == "begun"
                with pytest.raises(RuntimeError, match=type(error).__name__):
                    await left[0]
        (entry,) = logs
        assert (entry["event"], entry["tool"], entry["error"]) == (
            "tool.exit_contained",
            "begins",
            type(error).__name__,
        )

    async def test_one_that_is_cancelled_or_returns_is_as_ever(self) -> None:
        @tool(effect="read")
        async def begins() -> str:
            """Begin."""
            forever = asyncio.create_task(asyncio.sleep(1_000))
            unbegun = asyncio.create_task(asyncio.sleep(1_000))
            unbegun.cancel()
            await asyncio.sleep(0)
            forever.cancel()
            ended = await asyncio.gather(forever, unbegun, return_exceptions=True)
            value = await asyncio.create_task(asyncio.sleep(0, "a value"))
            return f"{value} {[type(each).__name__ for each in ended]}"

        registry = a_registry(begins)
        async with registry.running():
            result = await registry.toolbox().call("begins", NOTHING, a_context())
        assert result.text == "a value ['CancelledError', 'CancelledError']"
        assert asyncio.get_running_loop().get_task_factory() is None

    async def test_one_that_swallows_every_cancellation_is_left_behind(self) -> None:
        opened = asyncio.Event()

        @tool(effect="read", deadline_s=0.05)
        async def never() -> str:
            """Never end."""
            while not opened.is_set():
                with suppress(BaseException):
                    await opened.wait()
            return ""

        registry = a_registry(never)
        with anyio.fail_after(DEADLINE_S):
            async with registry.running():
                result = await registry.toolbox().call("never", NOTHING, a_context())
                assert result.outcome is Outcome.FAILED
                opened.set()
