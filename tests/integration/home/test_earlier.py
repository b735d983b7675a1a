"""What is folded away is read again and quoted, in a home as it is served, over a restart, and verified afterwards."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.home.houses import DEADLINE_S, Home, House, living, text_of, tool_names
from tests.support.doubles import calls, says, use
from torpor.operations.audit import verdict_on
from torpor.records.ids import ConversationKey, MessageId
from torpor.store.blobs import LocalBlobs
from torpor.store.sqlite.auditing import open_to_audit

READ = "read_earlier"
LONG = "x" * 1_100
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FACT = f"The dose is 5 mg\r\nfor {FAMILY} Zo\u00eb & <Ada>"
TURNS = 10


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.profile("small", budget_tokens=6_000, headroom_tokens=500)
    home.agent(profile="small")
    with (home.path / "config/agents/clerk.toml").open("a") as file:
        file.write('\n[summary.model]\nkind = "none"\n')
    home.tools("look", effect="read")
    return home


async def fill(house: House, *, fact_at: int = 1) -> None:
    """Talk until the first turns are folded, the one with the fact among them."""
    for number in range(1, TURNS + 1):
        await house.ask(FACT if number == fact_at else f"{number} {LONG}")


async def look_back(house: House, exchanges: int) -> None:
    with anyio.fail_after(DEADLINE_S):
        await house.client.send("c1", "and before that?", message_id=MessageId("back"), lookback=exchanges)
    await house.ended(MessageId("back"))


def quotations(request: dict[str, Any]) -> list[str]:
    blocks = (block for message in request["messages"] for block in message["content"])
    return [block["text"] for block in blocks if block.get("text", "").startswith("<lookback")]


async def test_a_folded_fact_is_found_and_read_before_and_after_a_restart(home: Home) -> None:
    async with living(home) as house:
        await fill(house)
        assert READ not in tool_names(house.model.requests[0])
        house.model.then(calls(use(READ, "a", query="dose zo\u00eb")), says("I see."))
        await house.ask("which dose was it?")
        (found,) = await house.results()
        last = max(record.get("event", 0) for record in await house.records())
    assert f"\n{FACT}" in found
    reads = calls(use(READ, "b", first_turn=1), use(READ, "c", query="nowhere"))
    async with living(home, reads, says("5 mg.")) as house:
        house.resume("c1", after=last)
        await house.ask("and for whom?")
        read, nothing = await house.results()
        changed = [record["seq"] for record in await house.records("preamble_changed")]
        folded = await house.records("context_replaced")
    assert f"=== user developer\n{FACT}\n=== assistant\nyou said: {FACT}" in read
    assert nothing.startswith("[Nothing found in turns 1 to ")
    assert changed[1:] == [folded[0]["seq"] + 1]


async def test_exchanges_are_quoted_escaped_and_for_one_turn(home: Home) -> None:
    async with living(home) as house:
        await fill(house, fact_at=6)
        await look_back(house, 50)
        await house.ask("thanks")
        quoting, after = house.model.requests[-2:]
        prepared = await house.records("turn_prepared")
        records = await house.records("model_requested")
    (text,) = quotations(quoting)
    assert quotations(after) == []
    assert text_of(quoting) == text_of(after)
    assert 6 in prepared[-2]["lookback"]
    assert f"<user>The dose is 5 mg\r\nfor {FAMILY} Zo\u00eb &amp; &lt;Ada&gt;</user>" in text
    assert {sum(record["sections"].values()) for record in records} == {6_000}
    assert records[-2]["sections"]["lookback"] == -(-len(text.encode()) // 4)


async def test_every_request_can_be_rebuilt_from_the_store_alone(home: Home) -> None:
    async with living(home) as house:
        await fill(house)
        house.model.then(calls(use(READ, "a", first_turn=1)), says("I see."))
        await house.ask("which dose was it?")
        await look_back(house, 3)
        asked = len(house.model.bodies)
    with open_to_audit(home.path / "data") as reader:
        verdict = await verdict_on(
            reader, ConversationKey("default", "developer", "c1"), blobs=LocalBlobs(home.path / "data" / "blobs")
        )
    assert (verdict.difference, verdict.requests) == ("", asked)


async def test_more_exchanges_than_there_may_be_are_refused(home: Home) -> None:
    async with living(home) as house:
        with anyio.fail_after(DEADLINE_S), pytest.raises(Exception, match="lookback"):
            await house.client.send("c1", "hello", lookback=51)
