"""A crowd that reads at once leaves the event loop time for others."""

from typing import Any

import anyio

from tests.support.gateway_world import World
from torpor.gateway.pacing import PacedJournals
from torpor.records.ids import ConversationKey

KEY = ConversationKey("default", "alice", "c1")


async def test_a_crowd_is_read_for_in_parts_and_others_run_in_between() -> None:
    world = World()
    world.converse(KEY, turns=1)
    order: list[str] = []

    class AtOnce(World):
        """Reads without waiting, as a store does near the head."""

        async def events_after(self, key: ConversationKey, **asked: Any) -> Any:
            order.append("read")
            return ()

    paced = PacedJournals(AtOnce(), reads_max=4)

    async def read() -> None:
        await paced.events_after(KEY, event=0, limit=9)

    async def other() -> None:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
            order.append("other")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(40):
                tasks.start_soon(read)
            tasks.start_soon(other)

    assert order.count("read") == 40
    assert order.index("other") <= 8, "many were read for before anybody else had a turn"


async def test_what_is_read_is_what_the_journal_holds() -> None:
    world = World()
    world.converse(KEY, turns=2)
    paced = PacedJournals(world, reads_max=1)

    assert await paced.events_after(KEY, event=3, limit=2) == await world.events_after(KEY, event=3, limit=2)
    assert await paced.records_after(KEY, seq=1, limit=3) == await world.records_after(KEY, seq=1, limit=3)
    assert await paced.describe(KEY) == await world.describe(KEY)
    assert await paced.epoch() == await world.epoch()
