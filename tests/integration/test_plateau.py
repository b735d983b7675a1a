"""Conversations opened one after another, which nobody puts to sleep: what a process holds stays the same."""

from pathlib import Path

import anyio
import msgspec
import pytest

from tests.support.census import Census, census, steady_growth
from tests.support.kill_run import make_home
from tests.support.obedient_model import ObedientModel
from tests.support.speaker import Speaker
from torpor.app import Wrapping, running
from torpor.client.torpor_client import TorporClient
from torpor.gateway.options import GatewayOptions
from torpor.records.frames import Cursor
from torpor.settings import read_settings
from torpor.store.options import StoreOptions
from torpor.supervisor.options import SupervisorOptions

LIVE_MAX = 64
LOOKS = 9
"""So many that nothing rises from each to the next by chance."""
WATCHED = 5
"""That somebody watches all the while."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The one backend with a server."""
    return "asyncio"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc here")
@pytest.mark.parametrize(
    ("conversations", "deadline_s"), [(360, 150.0), pytest.param(21_000, 3_000.0, marks=pytest.mark.soak)]
)
async def test_conversations_that_nobody_puts_to_sleep_leave_room_for_others(
    tmp_path: Path, conversations: int, deadline_s: float
) -> None:
    home = tmp_path / "home"
    make_home(home)
    settings = msgspec.structs.replace(
        read_settings(home, {}),
        store=StoreOptions(synchronous="normal"),
        gateway=GatewayOptions(frames_per_s=1e6, frames_burst=1_000_000, conversations_per_owner_max=1_000_000),
        supervisor=SupervisorOptions(live_max=LIVE_MAX, idle_timeout_s=3_600.0),
    )
    wrapping = Wrapping(model=lambda _: ObedientModel(home))

    async def open_many(client: TorporClient, numbers: range) -> Census:
        for number in numbers:
            speaker = Speaker(client, f"c{number}", home=home)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(speaker.heard.follow, Cursor(event=0))
                await speaker.answered(await speaker.say("look_up"))
                tasks.cancel_scope.cancel()
        return census()

    with anyio.fail_after(deadline_s):
        async with (
            running(settings, data=tmp_path / "data", host="127.0.0.1", port=0, wrapping=wrapping) as server,
            TorporClient(server.url, server.development_token) as client,
            anyio.create_task_group() as watching,
        ):
            watched = [Speaker(client, f"w{number}", home=home) for number in range(WATCHED)]
            for speaker in watched:
                watching.start_soon(speaker.heard.follow, Cursor(event=0))
                await speaker.answered(await speaker.say("look_up"))
            part = conversations // LOOKS
            looks = [await open_many(client, range(first, first + part)) for first in range(0, conversations, part)]

            now = server.supervisor.statistics()
            assert sum(now.live.values()) <= LIVE_MAX
            assert now.hibernations["lru"] >= conversations - LIVE_MAX
            assert (now.refused["live"], now.crashes) == (0, 0)
            for speaker in watched:  # they made room long ago, and are told all the same
                await speaker.answered(await speaker.say("look_up"))
            await open_many(client, range(LIVE_MAX))  # which go on where they were
            watching.cancel_scope.cancel()

    thirds = looks[LOOKS // 3 - 1 :: LOOKS // 3]
    assert steady_growth(thirds).get("rss_pages", 0) <= 0.05 * thirds[0].rss_pages
    grown = steady_growth(looks)
    grown.pop("rss_pages", None)
    assert grown.pop("entries", 0) < part // 2
    assert {what: more for what, more in grown.items() if more > part // 10 or "object" not in what} == {}
