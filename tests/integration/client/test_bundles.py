"""What a sub-agent left for a panel, read by the client that ships."""

import msgspec
import pytest

from tests.support.gateway_house import gateway_house
from tests.support.gateway_line import token_for
from torpor.client.failures import RequestRefused
from torpor.client.torpor_client import TorporClient
from torpor.records.ids import CallId, ConversationKey
from torpor.records.journal import Outcome, SubagentFinished

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
