"""What a sub-agent left for a panel, read by the client that ships."""

import re
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.support.gateway_house import gateway_house
from tests.support.gateway_line import token_for
from torpor.client.failures import RequestRefused
from torpor.client.items import ProgressItem
from torpor.client.torpor_client import TorporClient
from torpor.records.ids import CallId, ConversationKey
from torpor.records.journal import SubagentFinished
from torpor.records.terms import Outcome

KEY = ConversationKey("default", "alice", "c1")
BUNDLE = "b" * 64


async def test_what_a_sub_agent_left_is_read_as_json_decodes() -> None:
    content = {"sources": [{"id": "e1"}]}
    ended = SubagentFinished(call_id=CallId("a"), name="scout", child="x", outcome=Outcome.SUCCEEDED, bundle=BUNDLE)
    async with gateway_house() as house:
        house.world.bundles[BUNDLE] = msgspec.json.encode(content)
        house.world.commit(KEY, ended)
        async with TorporClient(house.gateway.url, token_for("alice", clock=house.clock)) as client:
            assert await client.bundle("c1", BUNDLE) == content
            with pytest.raises(RequestRefused, match="no conversation 'c1'"):
                await client.bundle("c1", "c" * 64)


async def test_example_of_the_page_shows_what_a_sub_agent_does_and_what_it_left() -> None:
    page = (Path(__file__).parents[3] / "docs" / "client.md").read_text()
    (example,) = (text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def show_sub_agent" in text)
    said: list[Any] = []
    names: dict[str, Any] = {"print": said.append}
    exec(example, names)
    works = ProgressItem(
        conversation="c1", call_id=CallId("a"), name="scout", text="uses look", type="research.progress"
    )
    ended = SubagentFinished(
        call_id=CallId("a"), name="scout", child="x", outcome=Outcome.SUCCEEDED, bundle=BUNDLE, rounds=3
    )
    async with gateway_house() as house:
        house.world.bundles[BUNDLE] = b"{}"
        async with TorporClient(house.gateway.url, token_for("alice", clock=house.clock)) as client:
            await names["show_sub_agent"](client, works)
            async with client.watch("c1") as watch:
                await anext(watch)
                house.world.commit(KEY, ended)
                with anyio.fail_after(30):
                    await names["show_sub_agent"](client, await anext(watch))

    assert said == ["scout uses look", "scout answered after 3 model calls", {}]
