"""The Python client goes on when its token has ended, as long as somebody gives it a newer one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import anyio
import pytest

from tests.support.gateway_house import House, gateway_house
from tests.support.gateway_line import token_for
from torpor.client.failures import NoToken, OtherPerson
from torpor.client.items import EventItem
from torpor.client.options import ClientOptions
from torpor.client.torpor_client import TorporClient
from torpor.client.watch import Watch
from torpor.errors import TokenExpired, Unauthenticated
from torpor.records.ids import ConversationKey

KEY = ConversationKey("default", "alice", "c1")
QUICK = ClientOptions(backoff_s=0.01, backoff_max_s=0.05, close_deadline_s=0.5, token_deadline_s=0.5)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with gateway_house(sweep_s=0.01) as opened:
        yield opened


def client_of(house: House, token: str | Callable[[], Awaitable[str]], **more: Any) -> TorporClient:
    return TorporClient(house.gateway.url, token, options=QUICK, jitter=Random(0).random, **more)


class Giver:
    """Gives a token for a minute whenever it is asked."""

    def __init__(self, house: House, *, subject: str = "alice") -> None:
        self.house = house
        self.subject = subject
        self.given = 0
        self.fault: Exception | None = None

    async def __call__(self) -> str:
        await anyio.lowlevel.checkpoint()
        if self.fault is not None:
            raise self.fault
        self.given += 1
        return token_for(self.subject, clock=self.house.clock, lifetime_s=60)


async def numbers(watch: Watch, *, up_to: int) -> list[int]:
    found: list[int] = []
    with anyio.fail_after(20):
        while not found or found[-1] < up_to:
            item = await anext(watch)
            if isinstance(item, EventItem):
                found.append(item.event.event)
    return found


async def insisting(client: TorporClient) -> None:
    """Send until that fails."""
    while True:
        await client.send("c1", "hello")


async def test_an_expired_token_is_replaced_and_the_watch_goes_on_without_a_gap(house: House) -> None:
    giver = Giver(house)
    async with client_of(house, giver) as client, client.watch("c1") as watch:
        await anext(watch)
        assert giver.given == 1
        for turn in range(3):
            house.world.converse(KEY, turns=1)
            house.clock.advance(66)
            await house.empty()
            with anyio.fail_after(20):
                await client.connected()
            assert giver.given == turn + 2
        house.world.converse(KEY, turns=1)

        assert await numbers(watch, up_to=house.world.head(KEY)) == list(range(1, house.world.head(KEY) + 1))


async def test_a_request_under_way_when_the_token_ends_is_answered_after_it(house: House) -> None:
    giver = Giver(house)
    async with client_of(house, giver) as client:
        await client.connected()
        house.clock.advance(66)
        with anyio.fail_after(20):
            receipt = await client.send("c1", "hello", message_id="m1")

    assert receipt.message_id == "m1"
    assert len(house.world.posted) == 1


async def test_a_renewed_token_interrupts_nothing(house: House) -> None:
    async with client_of(house, token_for("alice", clock=house.clock, lifetime_s=60)) as client:
        async with client.watch("c1") as watch:
            await anext(watch)
            await client.send("c1", "hello")
            for _ in range(3):
                client.renew(token_for("alice", clock=house.clock, lifetime_s=120))
                await client.send("c1", "again")
                house.clock.advance(100)
            assert await numbers(watch, up_to=4) == [1, 2, 3, 4]

        assert client.statistics().connections == 1


async def test_without_anybody_to_ask_it_gives_up_and_says_that_the_token_has_expired(house: House) -> None:
    async with client_of(house, token_for("alice", clock=house.clock, lifetime_s=60)) as client:
        await client.connected()
        house.clock.advance(66)
        with anyio.fail_after(20), pytest.raises(TokenExpired):
            await insisting(client)


async def test_a_token_that_had_ended_before_is_replaced_as_well(house: House) -> None:
    giver = Giver(house)
    stale = token_for("alice", clock=house.clock, lifetime_s=-60)
    tokens = [stale]

    async def give() -> str:
        return tokens.pop() if tokens else await giver()

    async with client_of(house, give) as client:
        with anyio.fail_after(20):
            assert (await client.connected()).principal == "alice"
    assert giver.given == 1


@pytest.mark.parametrize("is_first", [True, False])
async def test_whoever_gives_no_token_ends_the_client_with_the_reason(is_first: bool, house: House) -> None:
    giver = Giver(house)
    if is_first:
        giver.fault = OSError("the login is down")
    async with client_of(house, giver) as client:
        if not is_first:
            await client.connected()
            giver.fault = OSError("the login is down")
            house.clock.advance(66)
        with anyio.fail_after(20), pytest.raises(NoToken, match="the login is down") as failure:
            await insisting(client)
    assert failure.value.__cause__ is giver.fault


async def test_whoever_takes_too_long_gives_none(house: House) -> None:
    async with client_of(house, anyio.sleep_forever) as client:  # type: ignore[arg-type]  # it never returns
        with anyio.fail_after(20), pytest.raises(NoToken):
            await client.connected()


async def test_a_token_that_was_never_good_is_not_asked_for_again(house: House) -> None:
    asked = 0

    async def give() -> str:
        nonlocal asked
        asked += 1
        await anyio.lowlevel.checkpoint()
        return "nonsense"

    async with client_of(house, give) as client:
        with anyio.fail_after(20), pytest.raises(Unauthenticated) as refusal:
            await client.connected()
    assert refusal.value.code == "unauthenticated"
    assert asked == 1


async def test_a_token_of_somebody_else_is_refused_and_the_client_stays_who_it_was(house: House) -> None:
    async with client_of(house, token_for("alice", clock=house.clock, lifetime_s=60)) as client:
        await client.connected()
        with pytest.raises(OtherPerson):
            client.renew(token_for("bob", clock=house.clock))
        client.renew(token_for("alice", clock=house.clock, lifetime_s=120))
        await client.list()  # answered behind the renewal
        house.clock.advance(100)
        with anyio.fail_after(20):
            await client.send("c1", "hello")

        assert [key.owner for key, _ in house.world.posted] == ["alice"]


async def test_whoever_gives_a_token_of_somebody_else_ends_the_client(house: House) -> None:
    giver = Giver(house)
    async with client_of(house, giver) as client:
        await client.connected()
        giver.subject = "bob"
        house.clock.advance(66)
        with anyio.fail_after(20), pytest.raises(OtherPerson):
            await insisting(client)

    assert {key.owner for key, _ in house.world.posted} <= {"alice"}
