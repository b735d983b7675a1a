"""How long a verb waits for a server, on the clock of the test."""

import anyio
import pytest
import trio.testing

from torpor.cli.patience import Patience
from torpor.records.frames import Welcome

WELCOME = Welcome(principal="ada", tenant="default", owner="ada", scopes=("chat",))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """On a clock that jumps to the next deadline whenever everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


class Said:
    """A patience and what it says."""

    def __init__(self, *, deadline_s: float = 600, outage_s: float = 60) -> None:
        self.lines: list[str] = []
        self.patience = Patience(deadline_s=deadline_s, outage_s=outage_s, url="ws://here", say=self.lines.append)


async def test_a_server_that_answers_in_time_is_not_spoken_of() -> None:
    said = Said()
    with said.patience as patience:
        patience.on_connection(WELCOME)
        await anyio.sleep(599)
    patience.on_connection(None)

    assert (said.lines, patience.ran_out) == ([], "")


async def test_a_reply_that_does_not_come_is_waited_for_until_the_deadline() -> None:
    began_s = anyio.current_time()
    with Said().patience as patience:
        patience.on_connection(WELCOME)
        await anyio.sleep_forever()

    assert patience.ran_out == "within 600 s"
    assert anyio.current_time() - began_s == pytest.approx(600)


async def test_each_outage_and_each_return_is_said_once() -> None:
    said = Said()
    with said.patience as patience:
        for _ in range(2):
            patience.on_connection(WELCOME)
            await anyio.sleep(100)
            patience.on_connection(None)
            await anyio.sleep(59)
        patience.on_connection(WELCOME)
        await anyio.sleep(200)

    lost = "connection to ws://here lost, trying again for 60 s"
    assert said.lines == [lost, "connected again", lost, "connected again"]
    assert patience.ran_out == ""


@pytest.mark.parametrize("connects", [True, False])
async def test_a_server_that_stays_away_ends_the_wait(connects: bool) -> None:
    began_s = anyio.current_time()
    with Said().patience as patience:
        if connects:
            patience.on_connection(WELCOME)
            patience.on_connection(None)
        await anyio.sleep_forever()

    assert patience.ran_out == "and no connection to ws://here for 60 s"
    assert anyio.current_time() - began_s == pytest.approx(60)


async def test_an_outage_does_not_lengthen_the_deadline() -> None:
    began_s = anyio.current_time()
    with Said(deadline_s=10).patience as patience:
        patience.on_connection(WELCOME)
        await anyio.sleep(5)
        patience.on_connection(None)
        await anyio.sleep_forever()

    assert patience.ran_out == "within 10 s"
    assert anyio.current_time() - began_s == pytest.approx(10)


async def test_a_cancel_from_outside_is_no_matter_of_patience() -> None:
    said = Said()
    with anyio.move_on_after(1) as outside, said.patience:
        await anyio.sleep_forever()

    assert outside.cancelled_caught
    assert said.patience.ran_out == ""


async def test_each_reason_for_which_the_server_puts_off_what_it_was_asked_is_said_once() -> None:
    said = Said()
    with said.patience as patience:
        for why in (
            "the server is stopping, retry in 1 s",
            "mailbox is full, retry in 0.5 s",
            "mailbox is full, retry in 2 s",
        ):
            patience.on_put_off(why)
    patience.on_put_off("too late")

    assert said.lines == [
        f"not accepted yet: {why}; it is sent again, as one message, until a server takes it"
        for why in ("the server is stopping, retry in 1 s", "mailbox is full, retry in 0.5 s")
    ]
