"""A server that stops while something fails."""

from typing import Any

import anyio
import anyio.lowlevel

from tests.support.doubles import Gate, calls, use, writes
from tests.support.engine import DEADLINE_S, running_engine
from torpor.errors import StoreUnavailable, Unavailable
from torpor.toolhost.contract import ToolContext


async def test_a_store_that_fails_while_actors_are_cut_off_does_not_bring_down_the_supervisor() -> None:
    gate = Gate()

    async def stubborn(arguments: dict[str, Any], context: ToolContext) -> str:
        with anyio.CancelScope(shield=True):
            await gate.passed()
        return "late"

    async def open_late() -> None:
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        gate.opened.set()

    async with anyio.create_task_group() as tasks:
        async with running_engine(calls(use("pay", "a")), tools=[writes("pay", stubborn)]) as engine:
            await engine.send("one")
            await gate.reached.wait()
            engine.store.core.fail(StoreUnavailable("the disk is gone"))
            before = len(engine.store.appends)
            refused = engine.post("two")
            with anyio.fail_after(DEADLINE_S):
                while len(engine.store.appends) == before:
                    await anyio.lowlevel.checkpoint()
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(open_late)
        try:
            await refused.wait()
        except Unavailable:
            return
    raise AssertionError("a message that was never durable was accepted")
