"""What operators may ask of the server as a whole, frame by frame."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.support.doubles import Gate, says, waits
from tests.support.engine import KEY, running_engine
from tests.support.gateway_line import Line, ManualClock, ports_of, principal
from tests.support.gateway_world import World
from torpor.gateway.options import GatewayOptions
from torpor.gateway.subscription import Ports
from torpor.records.frames import DrainServer, ErrorFrame, ListMcp, ListTurns, ReadNumbers, Result
from torpor.records.ids import ConversationKey

OPERATOR = principal("ops", scopes=("operator",))


@asynccontextmanager
async def line_to(world: World | Ports, **options: Any) -> AsyncIterator[Line]:
    async with anyio.create_task_group() as tasks:
        line = Line(world, tasks, clock=ManualClock(), options=GatewayOptions(**options), principal=OPERATOR)
        yield line
        line.session.end()
        tasks.cancel_scope.cancel()


async def test_numbers_come_a_row_for_each_part_by_its_name() -> None:
    async with line_to(World()) as line:
        line.say(ReadNumbers(ref="r1"))
        told = await line.hear_a(Result)
    assert told.rows == (
        {"room": "jobs", "running": 0, "by_name": {"a": 1}, "by_two": {"host open": 1}},
        {"room": "parts", "running": 3, "by_name": {"a": 1}, "by_two": {"host open": 1}},
    )


async def test_turns_come_with_their_step_and_no_word_of_what_was_said() -> None:
    gate = Gate()
    other = ConversationKey("acme", "bob", "c_2")
    async with running_engine(waits(gate, says("hidden")), waits(gate, says("hidden"))) as engine:
        await engine.send("a secret")
        await gate.reached.wait()
        await engine.send("a secret", key=other)
        await anyio.wait_all_tasks_blocked()
        async with line_to(ports_of(engine)) as line:
            line.say(ListTurns(ref="r1"))
            told = await line.hear_a(Result)
            line.say(ListTurns(ref="r2", limit=1))
            first = await line.hear_a(Result)
        gate.opened.set()
    assert [row["path"] for row in told.rows] == [KEY.path, other.path]
    assert not told.more
    assert set(told.rows[0]) == {"path", "agent", "turn", "began_us", "step", "of", "step_began_us", "waiting"}
    assert "secret" not in repr(told.rows)
    assert first.rows == told.rows[:1]
    assert first.more


async def test_connections_to_mcp_servers_come_as_they_stand() -> None:
    async with line_to(World()) as line:
        line.say(ListMcp(ref="r1"))
        told = await line.hear_a(Result)
    assert told.rows == ({"running": 1, "by_name": {"lib": 1}, "by_two": {}},)
    assert not told.more


@pytest.mark.parametrize(("said_s", "given_s"), [(-1.0, None), (0.0, 0.0), (5.0, 5.0), (1e9, 60.0)])
async def test_a_drain_begins_with_the_deadline_that_was_said_within_bounds(
    said_s: float, given_s: float | None
) -> None:
    world = World()
    async with line_to(world, drain_deadline_max_s=60.0) as line:
        line.say(DrainServer(ref="r1", deadline_s=said_s))
        told = await line.hear_a(Result)
    assert world.server.drained == [given_s]
    assert told.rows == ({"draining": True, "turns": 2, "jobs": 1, "ends_us": 5_000},)


@pytest.mark.parametrize("frame", [DrainServer(), ListMcp(), ListTurns(), ReadNumbers()])
async def test_people_may_do_none_of_it(frame: Any) -> None:
    world = World()
    async with anyio.create_task_group() as tasks:
        line = Line(world, tasks, principal=principal("ann"))
        line.say(frame)
        assert (await line.hear_a(ErrorFrame)).code == "not_permitted"
        line.session.end()
        tasks.cancel_scope.cancel()
    assert world.server.drained == []
