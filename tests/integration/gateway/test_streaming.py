"""Watching over sockets: reconnects in the middle of a reply, two tabs, two conversations on one socket."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from tests.support.gateway_house import Caller, House, gateway_house
from tests.support.gateway_line import token_for
from tests.support.gateway_world import World, replied
from torpor.records.blocks import text_block
from torpor.records.events import MessageReceivedEvent
from torpor.records.frames import Accepted, DeltaFrame, EventFrame, Hello, Reload, Resumed, Send
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import MessageReceived, TurnFinished, TurnPrepared
from torpor.supervisor.contract import LiveStatus

KEY = ConversationKey("default", "alice", "c1")
OTHER = ConversationKey("default", "alice", "c2")
WORDS = [f"word{number} " for number in range(200)]


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with gateway_house() as opened:
        yield opened


class Speaker:
    """Streams a reply of 200 pieces, as far as it is told to."""

    def __init__(self, world: World, key: ConversationKey = KEY, *, call: str = "call-live") -> None:
        self._world = world
        self._key = key
        self._call = call
        self._said = ""

    def speak(self, *, up_to: int, start: int = 0) -> None:
        for word in WORDS[start:up_to]:
            self._world.say(self._key, self._call, offset=len(self._said), text=word)
            self._said += word

    def finish(self, turn: int) -> None:
        self._world.commit(self._key, replied(self._call, self._said, turn=turn), TurnFinished(turn=turn))
        self._world.live[self._key] = LiveStatus(state="idle")


def begin_turn(world: World, *, key: ConversationKey = KEY, turns_before: int) -> int:
    """Turns in the journal and one more that is running."""
    world.converse(key, turns=turns_before)
    turn = turns_before + 1
    message_id = MessageId("question")
    world.commit(
        key,
        MessageReceived(message_id=message_id, principal="alice", blocks=(text_block("what are the causes?"),)),
        TurnPrepared(messages=(message_id,), turn=turn),
    )
    world.live[key] = LiveStatus(state="running", turn=turn)
    return turn


def shown(frames: list[Any]) -> str:
    """The reply as a client shows it by the rules of the protocol."""
    call, text = "", ""
    for frame in frames:
        if isinstance(frame, DeltaFrame):
            if frame.call != call or frame.offset == 0:
                call, text = frame.call, ""
            assert frame.offset == len(text), "a delta left a hole or was repeated"
            text += frame.text
    return text


def numbers(frames: list[Any]) -> list[int]:
    return [frame.event.event for frame in frames if isinstance(frame, EventFrame)]


def ends_at(event: int) -> Any:
    return lambda frame: isinstance(frame, EventFrame) and frame.event.event == event


async def hear_words(caller: Caller, count: int, *, before: list[Any] | None = None) -> list[Any]:
    """Frames until that many words of the reply are shown."""
    frames = list(before or ())
    while len(shown(frames).split()) < count:
        frames.append(await caller.hear())
    return frames


@pytest.mark.parametrize("cursor", [62, 60, 0])
async def test_a_reconnect_with_a_cursor_gets_the_events_after_it_then_the_reply_so_far_then_live(
    cursor: int, house: House
) -> None:
    turn = begin_turn(house.world, turns_before=15)
    speaker = Speaker(house.world)
    async with house.call() as first:
        await first.watch(cursor=62)
        await first.hear_a(Resumed)
        speaker.speak(up_to=80)
        await hear_words(first, 80)
        first.socket.transport.abort()
    speaker.speak(start=80, up_to=120)

    async with house.call() as second:
        await second.watch(cursor=cursor)
        resumed = await second.hear_a(Resumed)
        frames = await hear_words(second, 120)
        speaker.speak(start=120, up_to=200)
        speaker.finish(turn)
        frames += await second.hear_until(ends_at(64))

    assert (resumed.head, resumed.status.state, resumed.status.turn) == (62, "running", turn)
    assert numbers(frames) == list(range(cursor + 1, 65))
    deltas = [frame for frame in frames if isinstance(frame, DeltaFrame)]
    assert (deltas[0].offset, deltas[0].text) == (0, "".join(WORDS[:120])), "the reply so far is one delta"
    assert shown(frames) == "".join(WORDS)


async def test_a_reconnect_without_a_cursor_gets_a_reload_with_the_reply_so_far_and_then_live(house: House) -> None:
    turn = begin_turn(house.world, turns_before=15)
    speaker = Speaker(house.world)
    speaker.speak(up_to=80)

    async with house.call() as caller:
        await caller.watch()
        reload = await caller.hear_a(Reload)
        frames = await hear_words(caller, 80)
        speaker.speak(start=80, up_to=200)
        speaker.finish(turn)
        frames += await caller.hear_until(ends_at(64))

    assert (reload.head, reload.status.state) == (62, "running")
    assert [event.event for event in reload.events] == list(range(1, 63))
    assert numbers(frames) == [63, 64]
    assert isinstance(frames[0], DeltaFrame)
    assert shown(frames) == "".join(WORDS)


async def test_an_event_is_the_same_live_replayed_reloaded_and_after_a_restart(house: House) -> None:
    async with house.call() as live:
        await live.watch()
        await live.hear_a(Reload)
        await live.say(Send(conversation="c1", message_id=MessageId("m1"), text="hello"))
        heard = await live.hear_until(lambda frame: isinstance(frame, EventFrame))
    async with house.call() as replayed:
        await replayed.watch(cursor=0)
        await replayed.hear_a(Resumed)
        replay = await replayed.hear_a(EventFrame)
    async with gateway_house() as restarted:
        restarted.world.journals[KEY] = house.world.journals[KEY]
        async with restarted.call() as reloaded:
            await reloaded.watch()
            reload = await reloaded.hear_a(Reload)

    assert heard[-1] == replay
    assert reload.events == (replay.event,)
    assert isinstance(replay.event, MessageReceivedEvent)
    assert replay.event.message_id == "m1"


async def test_a_resend_after_a_reconnect_shows_one_message(house: House) -> None:
    send = Send(conversation="c1", message_id=MessageId("m1"), text="hello")
    async with house.call() as first:
        await first.say(send)
        receipt = await first.hear_a(Accepted)
    async with house.call() as second:
        await second.say(send)
        again = await second.hear_a(Accepted)
        await second.watch(cursor=0)
        await second.hear_a(Resumed)
        await second.hear_a(EventFrame)

    assert again == receipt
    assert house.world.head(KEY) == 1


async def test_frames_before_the_answer_to_hello_are_served(house: House) -> None:
    """The first frame of all is the wish to resume, and it comes twice."""
    house.world.converse(KEY, turns=1)
    async with house.call(None) as caller:
        await caller.watch(cursor=2)
        await caller.watch(cursor=2)
        await caller.say(Send(conversation="c1", message_id=MessageId("m1"), text="hello"))
        await caller.say(Hello(token=token_for("alice", clock=house.clock)))
        frames = await caller.hear_until(ends_at(5))

    assert numbers(frames) == [3, 4, 5]
    assert len([frame for frame in frames if isinstance(frame, Resumed)]) == 1


async def test_two_conversations_on_one_socket_keep_apart(house: House) -> None:
    speakers = [Speaker(house.world), Speaker(house.world, OTHER)]
    for key in (KEY, OTHER):
        begin_turn(house.world, key=key, turns_before=0)
    async with house.call() as caller:
        for name in ("c1", "c2"):
            await caller.watch(name)
            await caller.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        for start in range(0, 200, 20):
            for speaker in speakers:
                speaker.speak(start=start, up_to=start + 20)
        for speaker in speakers:
            speaker.finish(1)
        left = {("c1", 4), ("c2", 4)}
        frames: list[Any] = []
        while left:
            frames.append(await caller.hear())
            if isinstance(frames[-1], EventFrame):
                left.discard((frames[-1].conversation, frames[-1].event.event))

    for name in ("c1", "c2"):
        own = [frame for frame in frames if frame.conversation == name]
        assert numbers(own) == [3, 4]
        assert shown(own) == "".join(WORDS)


async def test_two_tabs_of_one_conversation_see_the_same_with_the_message_that_caused_it(house: House) -> None:
    async with house.call() as one, house.call() as two:
        for tab in (one, two):
            await tab.watch()
            await tab.hear_a(Reload)
        await one.say(Send(ref="a", conversation="c1", message_id=MessageId("mA"), text="from one"))
        await two.say(Send(ref="b", conversation="c1", message_id=MessageId("mB"), text="from two"))
        seen = [await tab.hear_until(ends_at(2)) for tab in (one, two)]
        accepted = []
        for frames, tab in zip(seen, (one, two), strict=True):
            if not any(isinstance(frame, Accepted) for frame in frames):
                frames.append(await tab.hear_a(Accepted))
            accepted += [frame for frame in frames if isinstance(frame, Accepted)]

    events = [[frame.event for frame in frames if isinstance(frame, EventFrame)] for frames in seen]
    assert events[0] == events[1]
    assert {getattr(event, "message_id", None) for event in events[0]} == {"mA", "mB"}
    assert [(frame.ref, frame.message_id) for frame in accepted] == [("a", "mA"), ("b", "mB")]
