"""Web pages knock, and so do programs."""

from typing import Any

import pytest
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus

from tests.support.gateway_house import gateway_house
from tests.support.gateway_line import token_for
from torpor.records.frames import Hello, Welcome


@pytest.mark.parametrize(
    "origin", ["https://app.example.org", "http://localhost:{port}", "http://127.0.0.1:{port}", None]
)
async def test_a_page_that_is_listed_or_our_own_and_a_program_get_in(origin: str | None) -> None:
    async with gateway_house(origins=("https://app.example.org",)) as house:
        told = None if origin is None else origin.format(port=house.gateway.port)
        async with house.call(None, origin=told) as caller:
            await caller.say(Hello(token=token_for("alice", clock=house.clock)))

            await caller.hear_a(Welcome)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://evil.example:{port}"])
@pytest.mark.parametrize("with_token", [True, False])
async def test_any_other_page_is_refused_before_its_token_is_looked_at(origin: str, with_token: bool) -> None:
    async with gateway_house() as house:
        port = house.gateway.port
        # A page whose own name was made to lead here sends that name as the host as well.
        headers: dict[str, Any] = {"Authorization": "Bearer nonsense"} if with_token else {}
        with pytest.raises(InvalidStatus) as refusal:
            async with house.call(None, origin=origin.format(port=port), additional_headers=headers):
                pass

        assert refusal.value.response.status_code == 403
        assert house.gateway.statistics().refused == 1
        assert house.gateway.statistics().opened == 0


async def test_the_log_tells_who_was_turned_away_and_why() -> None:
    with capture_logs() as logs:
        async with gateway_house() as house:
            for _ in range(2):
                with pytest.raises(InvalidStatus):
                    async with house.call(None, origin="https://evil.example"):
                        pass
            with pytest.raises(InvalidStatus):
                async with house.call(None, additional_headers={"Authorization": "Basic YTpi"}):
                    pass
            async with house.call(None) as caller:
                await caller.say(Hello(token="nonsense"))
                await caller.closed()
            async with house.call():
                pass

    (told,) = [line for line in logs if line["event"] == "gateway.refused"]
    here = {"address": "127.0.0.1", "connections": 1}
    assert told["connections"] == 4
    assert told["clients"] == [
        here
        | {"why": "this page may not connect, see gateway.origins", "connections": 2, "origin": "https://evil.example"},
        here | {"why": "expected one Authorization header with a Bearer token"},
        here | {"why": "token is not a valid token, expected a JSON Web Token with a signature"},
    ]
