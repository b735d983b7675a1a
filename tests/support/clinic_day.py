"""A day of one conversation in a home like the clinic's, with a real server and the real adapter, asking a fake API.

Everything that a request may hold is in it: thinking, parallel calls, a context, a skill, policies, a result too long
for its record, a message that steers, a reply that was cut, one that was refused. The fake API keeps what it received.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from torpor.app import running
from torpor.client.items import DeltaItem, EventItem
from torpor.client.torpor_client import TorporClient
from torpor.client.watch import Watch
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext
from torpor.records.events import AnyEvent, TurnCancelledEvent, TurnFinishedEvent, TurnRefusedEvent, TurnStartedEvent
from torpor.records.ids import MessageId
from torpor.records.terms import WhenBusy
from torpor.settings import read_settings
from torpor_fake_api.scripting.catalogue import misbehave
from torpor_fake_api.scripting.faults import Stall
from torpor_fake_api.scripting.replies import Reply, Text, Thinking, ToolUse, says
from torpor_fake_api.server import FakeApi, serving

ROOT: Final = Path(__file__).parents[2]
PARTS: Final = ("config", "skills", "tools")
CONVERSATION: Final = "day"
PATH: Final = f"default/developer/{CONVERSATION}"
DEADLINE_S: Final = 60.0
_SETTINGS: Final = """
[store]
synchronous = "normal"

[tools]
result_cap_bytes = 1024

[supervisor]
stop_deadline_s = 5.0
"""
_ARCHIVE: Final = '''
"""Visits of the past."""

from torpor import tool


@tool(effect="read")
def old_visits() -> str:
    """List them all."""
    return "\\n".join(f"{year}: one visit \\N{BOOKS}" for year in range(1900, 2000))
'''
_ENDS: Final = (TurnFinishedEvent, TurnCancelledEvent, TurnRefusedEvent)
CONTEXT: Final = WorkingContext(
    record=SelectedRecord(type="patient", id="4711", text="Ada Lovelace, 36"), screen=ContextPart(text="the calendar")
)


class Day:
    """One client of one conversation, and what it says."""

    def __init__(self, client: TorporClient, watch: Watch, *, api: FakeApi) -> None:
        self.client = client
        self._watch = watch
        self.api = api
        self._turn_of: dict[MessageId, int] = {}
        self.sent = 0
        """Messages so far, of which each has a number."""

    async def say(self, text: str, *, when_busy: WhenBusy = WhenBusy.QUEUE) -> MessageId:
        self.sent += 1
        message = MessageId(f"m{self.sent}")
        await self.client.send(CONVERSATION, text, message_id=message, when_busy=when_busy)
        return message

    async def over(self, message: MessageId) -> None:
        """Wait for the end of the turn that takes it."""
        async for item in self._watch:
            if not isinstance(item, EventItem):
                continue
            self._note(item.event)
            if isinstance(item.event, _ENDS) and item.event.turn == self._turn_of.get(message):
                return

    async def heard(self, text: str) -> None:
        """Wait until a reply that is being written begins like this."""
        async for item in self._watch:
            if isinstance(item, EventItem):
                self._note(item.event)
            if isinstance(item, DeltaItem) and item.text.startswith(text):
                return

    def _note(self, event: AnyEvent) -> None:
        if isinstance(event, TurnStartedEvent):
            self._turn_of.update(dict.fromkeys(event.messages, event.turn))

    async def ask(self, text: str, *replies: Reply) -> None:
        """Say something that is answered by these."""
        self.api.say(*replies)
        await self.over(await self.say(text))

    async def tell(self, context: WorkingContext) -> None:
        await self.client.update_context(CONVERSATION, context)


async def live(day: Day) -> None:
    """The whole day."""
    with anyio.fail_after(DEADLINE_S):
        await _morning(day)
        await _afternoon(day)


async def _morning(day: Day) -> None:
    hours = [ToolUse("opening_hours", {"day": name}) for name in ("monday", "friday")]
    await day.ask(
        "Are you open on Monday \N{WAVING HAND SIGN}, and on Friday?",
        says(Thinking("Two days."), Text("Let me look."), *hours),
        says(Thinking("Told."), "On both, until 18:00 and until 16:00."),
    )
    await day.tell(CONTEXT)
    await day.ask(
        "What does it cost to cancel a visit?",
        says(ToolUse("load_skill", {"name": "moving-or-cancelling-visits"})),
        says("Nothing, until 24 hours before."),
    )
    await day.ask("Who came in the past?", says(ToolUse("old_visits", {})), says("Quite a few."))


async def _afternoon(day: Day) -> None:
    held = says("One moment.", ToolUse("find_appointments", {"patient": "Ada"}))
    day.api.say(msgspec.structs.replace(held, fault=Stall(at="after_deltas:1", name="steered")), says("Both are told."))
    asked = await day.say("When does Ada come?")
    await day.api.reached("steered")
    await day.say("And tell me of Bob, too.", when_busy=WhenBusy.STEER)
    day.api.release("steered")
    await day.over(asked)

    cut = says(Text("It is a long story.", pieces=("It is ", "a long ", "story.")))
    day.api.say(msgspec.structs.replace(cut, fault=Stall(at="after_deltas:2", name="cut")))
    asked = await day.say("Tell me a story")
    await day.api.reached("cut")
    await day.heard("It is")
    await day.client.cancel(CONVERSATION)
    await day.over(asked)

    await day.tell(WorkingContext())
    await day.ask("Now something that is refused", misbehave("refusal"))
    await day.ask("A payment of 45.50 by Ada, please", *_payment())
    await day.ask("Thanks", says("You are welcome."))


def _payment() -> tuple[Reply, ...]:
    return (
        says(ToolUse("record_payment", {"patient": "Ada Lovelace", "amount": 45.5})),
        says("It is recorded."),
    )


def make_home(home: Path, *, url: str, agent_fields: str = "") -> None:
    """The clinic's own and a tool that says a lot, asking ``url``. What was there before is gone, but for the data.

    Args: agent_fields: further tables of the agent's file.
    """
    empty_home(home)
    leftovers = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    for part in PARTS:
        shutil.copytree(ROOT / part, home / part, ignore=leftovers)
    (home / "config" / "torpor.toml").write_text(_SETTINGS)
    (home / "key").write_text("sk-nobodys")
    (home / "tools" / "archive.py").write_text(_ARCHIVE)
    agent = home / "config" / "agents" / "clinic.toml"
    text = agent.read_text().replace("tools = [", 'tools = ["old_visits", ')
    agent.write_text(f'{text}\nbase_url = "{url}"\nkey_file = "{home / "key"}"\n{agent_fields}')


def empty_home(home: Path) -> None:
    """Nothing of what its author wrote is left."""
    for part in PARTS:
        shutil.rmtree(home / part, ignore_errors=True)


@asynccontextmanager
async def opened(home: Path, *replies: Reply, agent_fields: str = "") -> AsyncIterator[Day]:
    """A server in ``home``, which is made anew but for its data, and somebody who talks to it."""
    async with serving(*replies, profile="strict", seed="day") as api:
        make_home(home, url=api.url, agent_fields=agent_fields)
        async with (
            running(read_settings(home, {}), data=home / ".torpor", host="127.0.0.1", port=0) as server,
            TorporClient(server.url, server.development_token) as client,
            client.watch(CONVERSATION) as watch,
        ):
            yield Day(client, watch, api=api)


def refused(api: FakeApi) -> list[Any]:
    """What of the requests broke a rule."""
    return [violation for request in api.requests for violation in request.violations]
