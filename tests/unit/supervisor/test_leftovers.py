"""Blobs that stayed are taken away once their storage answers again."""

import anyio

from torpor.errors import StoreUnavailable
from torpor.records.ids import ConversationKey
from torpor.supervisor.leftovers import Leftovers

ANN, BOB = (ConversationKey("t", owner, "") for owner in ("ann", "bob"))


async def test_what_stayed_is_tried_again_until_it_goes() -> None:
    tried: list[str] = []
    gone = {owner: anyio.Event() for owner in ("ann", "bob")}

    async def take_away(key: ConversationKey) -> None:
        tried.append(key.owner)
        if len(tried) < 3:
            raise StoreUnavailable("the bucket does not answer")
        gone[key.owner].set()

    leftovers = Leftovers(take_away, pause_s=0.001)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for key in (ANN, BOB, ANN):
                leftovers.add(key, tasks=tasks)
        assert all(event.is_set() for event in gone.values())
        assert len(tried) == 4
        async with anyio.create_task_group() as tasks:  # the group ends, so nothing runs behind the last one
            leftovers.add(BOB, tasks=tasks)
    assert len(tried) == 5
