"""What is too long for the server is refused by the client, and the connection lives on."""

from random import Random
from typing import Any

import anyio
import pytest

from tests.support.gateway_house import gateway_house
from tests.support.gateway_line import token_for
from torpor.client.failures import RequestRefused
from torpor.client.torpor_client import TorporClient


@pytest.mark.parametrize("frame_bytes_max", [None, 2000])
async def test_a_message_that_is_too_long_for_a_frame_costs_that_message_alone(frame_bytes_max: int | None) -> None:
    options: dict[str, Any] = {} if frame_bytes_max is None else {"frame_bytes_max": frame_bytes_max}
    async with gateway_house(**options) as house:
        token = token_for("alice", clock=house.clock)
        async with TorporClient(house.gateway.url, token, jitter=Random(0).random) as client:
            with anyio.fail_after(10):
                await client.connected()
                with pytest.raises(RequestRefused, match="expected at most") as refusal:
                    await client.send("c1", "x" * (frame_bytes_max or 1_048_576))
                await client.send("c1", "hello")

            assert client.statistics().connections == 1
        assert refusal.value.code == "too_long"
        assert len(house.world.posted) == 1
