"""A process that has seen many conversations holds no more than one that has seen a few."""

from pathlib import Path

import anyio
import msgspec
import pytest

from tests.support.census import Census, census, steady_growth
from tests.support.kill_run import make_home
from tests.support.obedient_model import ObedientModel
from tests.support.speaker import Speaker, path_of
from torpor.app import Wrapping, running
from torpor.client.torpor_client import TorporClient
from torpor.gateway.options import GatewayOptions
from torpor.records.frames import Cursor
from torpor.settings import read_settings
from torpor.store.options import StoreOptions

CONVERSATIONS = 40
"""Between two looks."""
LOOKS = 6
"""So many that nothing rises from each to the next by chance."""
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The one backend with a server."""
    return "asyncio"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc here")
async def test_conversations_that_sleep_leave_nothing_behind(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make_home(home)
    settings = msgspec.structs.replace(
        read_settings(home, {}),
        store=StoreOptions(synchronous="normal"),
        gateway=GatewayOptions(frames_per_s=1e6, frames_burst=1_000_000),
    )
    wrapping = Wrapping(model=lambda _: ObedientModel(home))

    async def open_many(client: TorporClient, *, first: int) -> Census:
        for number in range(first, first + CONVERSATIONS):
            speaker = Speaker(client, f"c{number}", home=home)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(speaker.heard.follow, Cursor(event=0))
                await speaker.answered(await speaker.say("look_up"))
                tasks.cancel_scope.cancel()
            await client.hibernate(path_of(f"c{number}"), deadline_s=5.0)
        return census()

    with anyio.fail_after(DEADLINE_S):
        async with (
            running(settings, data=tmp_path / "data", host="127.0.0.1", port=0, wrapping=wrapping) as server,
            TorporClient(server.url, server.development_token) as client,
        ):
            looks = [await open_many(client, first=look * CONVERSATIONS) for look in range(LOOKS)]

    thirds = looks[LOOKS // 3 - 1 :: LOOKS // 3]
    assert steady_growth(thirds).get("rss_pages", 0) <= 0.05 * thirds[0].rss_pages
    grown = steady_growth(looks)
    grown.pop("rss_pages", None)
    assert grown.pop("entries", 0) < CONVERSATIONS // 2
    assert {what: more for what, more in grown.items() if more > CONVERSATIONS // 10 or "object" not in what} == {}
