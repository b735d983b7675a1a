"""How many sub-agents are at work, and how each of them ended, is counted right, however their conversation ends."""

import anyio
import pytest

from tests.support.doubles import Gate, calls, echo, reads, says, stops_at, use
from tests.support.engine import DEADLINE_S, KEY, running_engine
from tests.support.scrape import Numbers
from tests.support.subagents import asks, later_ids, spawning, subagent, until_ended
from torpor.operations.metrics import Metrics
from torpor.operations.metrics_ports import KnownTools
from torpor.operations.metrics_turns import TurnNumbers


async def at_work(metrics: Metrics) -> float | None:
    return Numbers((await metrics.page()).body.decode()).value("torpor_subagents_at_work")


async def ends(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return Numbers((await metrics.page()).body.decode()).by("torpor_subagents_finished_total", "subagent", "code")


def numbers_of(metrics: Metrics) -> TurnNumbers:
    tools = KnownTools()
    tools.add("scout")
    tools.add("deep")
    return TurnNumbers(metrics, tools=tools)


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
        observer=numbers_of(metrics),
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
        if way == "quarantine":
            assert await ends(metrics) == {("deep", "cancelled"): 1}
            await engine.supervisor.release(KEY)
            await until_ended(engine, 1)
    assert await ends(metrics) == {("deep", "cancelled"): 1, ("scout", "lost" if way == "quarantine" else "erased"): 1}


@pytest.mark.parametrize(("is_erased", "code"), [(False, "lost"), (True, "erased")])
async def test_all_that_ended_with_their_process_are_counted_by_the_next_one(is_erased: bool, code: str) -> None:
    gate, metrics = Gate(), Metrics()
    deep = subagent("deep", calls(use("wait", "a")), says("never"), tools=[reads("wait", stops_at(gate))])
    scout = subagent("scout", asks("deep"), tools=[spawning("deep")])
    scouts = {"scout": scout, "deep": deep}
    async with running_engine(asks("scout"), says("never"), tools=[spawning("scout")], subagents=scouts) as engine:
        await engine.send("look")
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        image = engine.store.image()
    async with running_engine(
        echo,
        tools=[spawning("scout")],
        subagents={"scout": subagent("scout", says("there"))},
        data=image,
        ids=later_ids(),
        observer=numbers_of(metrics),
    ) as successor:
        if is_erased:
            await successor.directory.delete(KEY, principal="ann")
        else:
            await successor.rested()
    found = await ends(metrics)
    assert found.pop(("scout", "answered"), 0) == (0 if is_erased else 1)
    assert found == {("deep", code): 1, ("scout", code): 1}
