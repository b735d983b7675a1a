"""What is switched to and fro costs a name with each turn, not the text of the preamble."""

from functools import partial
from pathlib import Path

import msgspec

from tests.integration.home.houses import Home, living, tool_names
from tests.support import rebuild
from tests.support.doubles import says
from torpor.operations.audit import verdict_on
from torpor.records.ids import ConversationKey
from torpor.store.blobs import LocalBlobs
from torpor.store.sqlite.auditing import open_to_audit

TURNS = 12
KEY = ConversationKey("default", "developer", "c1")


def flip(home: Home, *, is_on: bool) -> None:
    home.flags(tool__pay=is_on, skill__refunds=is_on)


async def test_a_flag_that_flaps_stores_no_preamble_with_each_turn(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.tools("pay")
    home.skill("refunds")
    flip(home, is_on=True)
    async with living(home, *(says(f"Answer {turn}.") for turn in range(TURNS))) as house:
        await house.ask("begin")
        for turn in range(1, TURNS):
            await house.after("flags.changed", partial(flip, home, is_on=turn % 2 == 0))
            await house.ask("go on")
            if turn == TURNS // 2:
                await house.client.hibernate(KEY.path)
        requests, bodies, records = house.model.requests, house.model.bodies, await house.records()
    assert ["pay" in tool_names(request) for request in requests] == [turn % 2 == 0 for turn in range(TURNS)]
    kinds = [record["kind"] for record in records]
    assert [kinds.count(kind) for kind in ("preamble_changed", "flags_pinned")] == [2, 2]
    assert [kinds.count(kind) for kind in ("preamble_returned", "flags_returned")] == [TURNS - 2, TURNS - 2]
    sizes = {kind: len(msgspec.json.encode(records[kinds.index(kind)])) for kind in kinds}
    assert sizes["preamble_returned"] + sizes["flags_returned"] < sizes["preamble_changed"] / 4

    assert [request.body for request in rebuild.rebuilt(records)] == bodies
    with open_to_audit(home.path / "data") as reader:
        verdict = await verdict_on(reader, KEY, blobs=LocalBlobs(home.path / "data" / "blobs", in_threads=False))
    assert (verdict.difference, verdict.requests) == ("", TURNS)
