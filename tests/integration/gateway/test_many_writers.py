"""Several people and tabs in one conversation of a whole server: one order, the same for all, and nothing lost."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import connect

from tests.support.gateway_house import Caller
from tests.support.models import Speaking
from torpor.app import Running, Wrapping, running
from torpor.gateway.auth import mint
from torpor.local_files import read_secret
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.blocks import text_block
from torpor.records.context import SelectedRecord, WorkingContext
from torpor.records.events import (
    AnyEvent,
    MessageReceivedEvent,
    TurnCancelledEvent,
    TurnFinishedEvent,
    TurnStartedEvent,
)
from torpor.records.frames import (
    Accepted,
    Cursor,
    DeltaFrame,
    ErrorFrame,
    EventFrame,
    Hello,
    Reload,
    Rename,
    Resumed,
    Send,
    Subscribe,
    Subscription,
    UpdateContext,
    Welcome,
)
from torpor.records.ids import MessageId
from torpor.records.terms import WhenBusy
from torpor.settings import read_settings

ROUNDS = 100
AGENT = 'name = "tests"\ndefault = true\nsystem = "Speak."\n[model]\nkind = "scripted"\nrehearsal = "any"\n'
REHEARSAL = '[[rule]]\n[[rule.step]]\nsay = "I see."\n'
NO_LIMITS = {"TORPOR__GATEWAY__FRAMES_PER_S": "100000", "TORPOR__GATEWAY__FRAMES_BURST": "100000"}


WATCHED = Subscription(conversation="c1")
ENDS = (TurnFinishedEvent, TurnCancelledEvent)


class Held(Speaking):
    """Begins to speak and goes on when it is let."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.go_on = anyio.Event()

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        if self.go_on.is_set():
            return await super().reply(request, sink)
        sink.text("I am thinking ")
        self.begun.set()
        await self.go_on.wait()
        sink.text("of it.")
        block = text_block("I am thinking of it.")
        sink.block(block)
        return ModelReply(blocks=(block,), stop_reason="end_turn")


class Office:
    """A server, and people who share what is in it."""

    def __init__(self, server: Running, secret: bytes) -> None:
        self._server = server
        self._secret = secret

    def token(self, person: str) -> str:
        return mint(self._secret, subject=person, owner="family", now_us=time.time_ns() // 1000, lifetime_s=600)

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Caller]:
        """A connection on which nothing was said."""
        async with connect(self._server.url, proxy=None, compression=None, max_size=None) as connection:
            yield Caller(connection)

    @asynccontextmanager
    async def tab(self, person: str, *watched: Subscription) -> AsyncIterator[Caller]:
        async with self.line() as caller:
            await caller.say(Hello(token=self.token(person), subscriptions=watched))
            await caller.hear_a(Welcome)
            for _ in watched:
                answer = await caller.hear()
                assert isinstance(answer, Reload | Resumed), answer
            yield caller


@asynccontextmanager
async def office(folder: Path, model: Speaking | None = None) -> AsyncIterator[Office]:
    for name, text in (("agents/tests.toml", AGENT), ("rehearsals/any.toml", REHEARSAL)):
        path = folder / "home" / "config" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    settings = read_settings(folder / "home", {**NO_LIMITS, "TORPOR__GATEWAY__PORT": "0"})
    spoken = model or Speaking()
    async with running(settings, data=folder / "data", wrapping=Wrapping(model=lambda _: spoken)) as server:
        yield Office(server, read_secret(folder / "data") or b"")


async def insist(caller: Caller, send: Send, heard: list[AnyEvent]) -> Accepted:
    """Send until it is accepted, keeping the events that come in between."""
    while True:
        await caller.say(send)
        while True:
            frame: Any = await caller.hear()
            if isinstance(frame, EventFrame):
                heard.append(frame.event)
            elif isinstance(frame, Accepted):
                assert frame.message_id == send.message_id
                return frame
            elif isinstance(frame, ErrorFrame):
                assert frame.code == "busy", frame
                break


async def heard_until_turns(caller: Caller, heard: list[AnyEvent], *, count: int) -> None:
    """Until so many turns have ended, counted with what was heard before."""
    while sum(isinstance(event, ENDS) for event in heard) < count:
        frame: Any = await caller.hear()
        if isinstance(frame, EventFrame):
            heard.append(frame.event)


async def rename_and_tell(caller: Caller) -> None:
    """Rename the conversation and select records, again and again."""
    for number in range(ROUNDS):
        record = SelectedRecord(type="invoice", id=str(number), text="an invoice")
        await caller.say(Rename(ref=f"r{number}", conversation="c1", title=f"title {number}"))
        await caller.say(UpdateContext(ref=f"u{number}", conversation="c1", context=WorkingContext(record=record)))
        await caller.hear()
        await caller.hear()


async def test_two_people_who_send_at_the_same_moment_see_one_order_without_loss(tmp_path: Path) -> None:
    seen: dict[str, list[AnyEvent]] = {"ada": [], "ben": []}
    async with (
        office(tmp_path) as server,
        server.tab("ada", WATCHED) as ada,
        server.tab("ben", WATCHED) as ben,
        server.tab("carl") as carl,
    ):
        people = {"ada": ada, "ben": ben}
        await insist(ada, message("first"), seen["ada"])
        async with anyio.create_task_group() as beside:
            beside.start_soon(rename_and_tell, carl)
            for number in range(ROUNDS):
                async with anyio.create_task_group() as both:
                    for person, caller in people.items():
                        both.start_soon(insist, caller, message(f"{person}_{number}"), seen[person])
        for person, caller in people.items():
            await heard_until_turns(caller, seen[person], count=2 * ROUNDS + 1)
        async with server.tab("ada", Subscription(conversation="c1", cursor=Cursor(event=0))) as later:
            replayed: list[AnyEvent] = []
            await heard_until_turns(later, replayed, count=2 * ROUNDS + 1)

    assert seen["ada"] == seen["ben"] == replayed
    assert [event.event for event in replayed] == list(range(1, len(replayed) + 1))
    sent = {f"{person}_{number}" for person in seen for number in range(ROUNDS)} | {"first"}
    assert sorted(received(replayed)) == sorted(sent)
    assert taken(replayed) == received(replayed), "messages get their turns in the order in which they came"


async def test_two_conversations_on_one_socket_keep_their_events_apart(tmp_path: Path) -> None:
    both = (Subscription(conversation="c1"), Subscription(conversation="c2"))
    frames: list[EventFrame] = []
    async with office(tmp_path) as server, server.tab("ada", *both) as tab:
        for number in range(20):
            for name in ("c1", "c2"):
                await tab.say(message(f"{name}_{number}", conversation=name))
        while sum(isinstance(frame.event, TurnFinishedEvent) for frame in frames) < 40:
            frame: Any = await tab.hear()
            if isinstance(frame, EventFrame):
                frames.append(frame)

    for name in ("c1", "c2"):
        own = [frame.event for frame in frames if frame.conversation == name]
        assert [event.event for event in own] == list(range(1, len(own) + 1))
        assert received(own) == taken(own) == [f"{name}_{number}" for number in range(20)]


@pytest.mark.parametrize("policy", list(WhenBusy))
@pytest.mark.parametrize("tabs", [("one", "two"), ("two", "one")])
async def test_a_message_that_meets_a_running_turn_is_treated_alike_in_every_tab(
    policy: WhenBusy, tabs: tuple[str, str], tmp_path: Path
) -> None:
    model, events = Held(), {"one": list[AnyEvent](), "two": list[AnyEvent]()}
    turns = 1 if policy is WhenBusy.REJECT else 2
    async with office(tmp_path, model) as server, server.tab("ada", WATCHED) as one, server.tab("ada", WATCHED) as two:
        first, second = ({"one": one, "two": two}[tab] for tab in tabs)
        await insist(first, message("a"), events[tabs[0]])
        with anyio.fail_after(10):
            await model.begun.wait()
        await second.say(message("b", when_busy=policy))
        answer = await second.hear_until(lambda frame: isinstance(frame, Accepted | ErrorFrame))
        events[tabs[1]] += [frame.event for frame in answer if isinstance(frame, EventFrame)]
        model.go_on.set()
        for tab, caller in (("one", one), ("two", two)):
            await heard_until_turns(caller, events[tab], count=turns)

    assert events["one"] == events["two"]
    if policy is WhenBusy.REJECT:
        assert isinstance(answer[-1], ErrorFrame)
        assert answer[-1].code == "rejected"
        assert received(events["one"]) == ["a"]
    else:
        assert received(events["one"]) == taken(events["one"]) == ["a", "b"]
    assert sum(isinstance(event, TurnCancelledEvent) for event in events["one"]) == (policy is WhenBusy.INTERRUPT)


async def test_a_resume_may_be_the_first_frame_of_all_and_says_what_is_running(tmp_path: Path) -> None:
    model = Held()
    watch = Subscribe(subscription=Subscription(conversation="c1", cursor=Cursor(event=0)))
    async with office(tmp_path, model) as server:
        async with server.tab("ada", WATCHED) as tab:
            await insist(tab, message("a"), [])
            with anyio.fail_after(10):
                await model.begun.wait()
        async with server.line() as early:
            await early.say(watch)
            await early.say(watch)
            await early.say(message("b"))
            await early.say(Hello(token=server.token("ada")))
            frames = await early.hear_until(lambda frame: isinstance(frame, DeltaFrame))
            model.go_on.set()
            events = [frame.event for frame in frames if isinstance(frame, EventFrame)]
            await heard_until_turns(early, events, count=2)

    (resumed,) = [frame for frame in frames if isinstance(frame, Resumed)]
    assert (resumed.status.state, resumed.status.turn) == ("running", 1)
    (shown,) = [frame for frame in frames if isinstance(frame, DeltaFrame)]
    assert (shown.offset, shown.text) == (0, "I am thinking")
    assert [event.event for event in events] == list(range(1, len(events) + 1))
    assert received(events) == taken(events) == ["a", "b"]


def message(name: str, *, conversation: str = "c1", when_busy: WhenBusy = WhenBusy.QUEUE) -> Send:
    return Send(conversation=conversation, message_id=MessageId(name), text=f"I am {name}", when_busy=when_busy)


def received(events: Sequence[AnyEvent]) -> list[str]:
    return [event.message_id for event in events if isinstance(event, MessageReceivedEvent)]


def taken(events: Sequence[AnyEvent]) -> list[str]:
    """Messages in the order in which turns took them."""
    return [name for event in events if isinstance(event, TurnStartedEvent) for name in event.messages]
