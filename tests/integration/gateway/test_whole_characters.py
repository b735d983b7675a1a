"""From the model's socket to the client's, whatever the model cuts arrives in whole characters."""

from pathlib import Path

import anyio
import pytest
import regex

from tests.integration.model.real_host import MODEL
from torpor.app import running
from torpor.client.items import DeltaItem, EventItem
from torpor.client.torpor_client import TorporClient
from torpor.records.events import ReplyFinishedEvent, TurnCancelledEvent, TurnFinishedEvent
from torpor.records.frames import Cursor
from torpor.settings import read_settings
from torpor_fake_api.scripting.catalogue import misbehave
from torpor_fake_api.scripting.replies import Reply, Text, says
from torpor_fake_api.server import FakeApi, serving

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
SAID = (
    f"Cafe\u0301 {FAMILY}\U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7\r\n"
    "\u1112\u1161\u11ab\u1100\u1173\u11af \u0915\u094d\u0937\u093f 1\ufe0f\u20e3 plain"
)
AGENT = """
name = "tests"
default = true
system = "Speak."
[model]
kind = "anthropic"
model = "{model}"
base_url = "{url}"
key_file = "{key}"
"""


def home_asking(api: FakeApi, folder: Path) -> Path:
    agents, key = folder / "home" / "config" / "agents", folder / "key"
    agents.mkdir(parents=True)
    key.write_text("sk-test")
    (agents / "tests.toml").write_text(AGENT.format(model=MODEL, url=api.url, key=key))
    return folder / "home"


async def heard(reply: Reply, folder: Path, *, until: type[object], cancel_at: int = 0) -> list[DeltaItem | EventItem]:
    """Deltas and events of a turn, with no pause between deltas; cancelled once that much of it was shown."""
    items: list[DeltaItem | EventItem] = []
    async with serving(reply, profile="strict") as api:
        settings = read_settings(home_asking(api, folder), {"TORPOR__GATEWAY__DELTA_INTERVAL_S": "0"})
        async with (
            running(settings, data=folder / "data", host="127.0.0.1", port=0) as server,
            TorporClient(server.url, server.development_token) as client,
            client.watch("c1", Cursor(event=0)) as watch,
        ):
            await client.send("c1", "speak")
            with anyio.fail_after(60):
                async for item in watch:
                    if isinstance(item, DeltaItem):
                        items.append(item)
                        if cancel_at and item.offset + len(item.text) == cancel_at:
                            await client.cancel("c1")
                    elif isinstance(item, EventItem):
                        items.append(item)
                        if isinstance(item.event, until):
                            break
    return items


def shown(items: list[DeltaItem | EventItem]) -> list[str]:
    return [item.text for item in items if isinstance(item, DeltaItem)]


async def test_a_client_never_sees_half_a_character_of_a_reply_that_is_cut_everywhere(tmp_path: Path) -> None:
    reply = says(Text(SAID, chunks=1), delta_interval_s=0.002)
    items = await heard(reply, tmp_path, until=TurnFinishedEvent)
    deltas = shown(items)
    assert "".join(deltas) == SAID
    assert len(deltas) > 5, "the deltas were joined on their way, which proves nothing"
    ends = {found.end() for found in regex.finditer(r"\X", SAID)}
    assert {item.offset + len(item.text) for item in items if isinstance(item, DeltaItem)} <= ends
    events = [item.event for item in items if isinstance(item, EventItem)]
    assert [event.text for event in events if isinstance(event, ReplyFinishedEvent)] == [SAID]


@pytest.mark.parametrize("tail", ["e", "\U0001f469\u200d"])
async def test_a_character_that_was_kept_back_is_part_of_what_a_cancel_leaves(tail: str, tmp_path: Path) -> None:
    over = says(Text(f"So{tail}never", pieces=("So", tail, "never")))
    items = await heard(
        misbehave("stall", at="after_deltas:2", over=over), tmp_path, until=TurnCancelledEvent, cancel_at=2
    )
    assert "".join(shown(items)) == "So"
    (last,) = [item.event for item in items[-1:] if isinstance(item, EventItem)]
    assert isinstance(last, TurnCancelledEvent)
    assert last.text == f"So{tail}"
