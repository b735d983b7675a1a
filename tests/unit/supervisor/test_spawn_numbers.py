"""How many sub-agents are at work is counted right, however their conversation ends."""

import anyio
import pytest

from tests.support.doubles import Gate, calls, reads, says, stops_at, use
from tests.support.engine import DEADLINE_S, KEY, running_engine
from tests.support.scrape import Numbers
from tests.support.subagents import asks, spawning, subagent
from torpor.operations.metrics import Metrics
from torpor.operations.metrics_ports import KnownTools
from torpor.operations.metrics_turns import TurnNumbers


async def at_work(metrics: Metrics) -> float | None:
    return Numbers((await metrics.page()).body.decode()).value("torpor_subagents_at_work")


@pytest.mark.parametrize("way", ["delete", "forget", "quarantine"])
async def test_none_is_at_work_for_a_conversation_that_is_gone(way: str) -> None:
    gate, metrics = Gate(), Metrics()
    deep = subagent("deep", calls(use("wait", "a")), tools=[reads("wait", stops_at(gate))])
    scout = subagent("scout", asks("deep"), tools=[spawning("deep")])
    async with running_engine(
        asks("scout"),
        says("never"),
        tools=[spawning("scout")],
        subagents={"scout": scout, "deep": deep},
        observer=TurnNumbers(metrics, tools=KnownTools()),
    ) as engine:
        await engine.send("look")
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
            assert await at_work(metrics) == 2
            match way:
                case "delete":
                    await engine.directory.delete(KEY, principal="ann")
                case "forget":
                    await engine.directory.forget(tenant=KEY.tenant, owner=KEY.owner, limit=9, principal="ann")
                case _:
                    await engine.supervisor.quarantine(KEY, reason="let me see")
        assert await at_work(metrics) == 0
