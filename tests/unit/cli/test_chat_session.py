"""Lines, items and Ctrl-C in a chat, with a client that does what the test says."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from torpor.cli.chat_session import ChatSession
from torpor.cli.lines import lines_of
from torpor.cli.screen import Screen
from torpor.client.items import AnyItem, DeltaItem, EventItem, ProgressItem, ReloadItem, ResumedItem, StatusItem
from torpor.errors import ClientError, EmptyMessage, NothingToCancel
from torpor.records.attachments import Attachment
from torpor.records.commands import Receipt
from torpor.records.events import (
    AnyEvent,
    MessageReceivedEvent,
    ReplyFinishedEvent,
    TurnCancelledEvent,
    TurnFailedEvent,
    TurnFinishedEvent,
    TurnStartedEvent,
)
from torpor.records.frames import RunStatus
from torpor.records.ids import CallId, MessageId
from torpor.records.terms import Offer

CONVERSATION = "c"


class World:
    """A client, its watch, the lines and the screen of one chat."""

    def __init__(self) -> None:
        self.shown = ""
        self.sent: list[tuple[str, str]] = []
        self.refusal: ClientError | None = None
        self.resumed: list[Offer | None] = []
        self.attached: list[tuple[str, ...]] = []
        self.let_upload = anyio.Event()
        self.cancels = 0
        self.something_happened = anyio.Event()
        self.items, self._watch = anyio.create_memory_object_stream[AnyItem](100)
        self.reading, self.writing = os.pipe()

    async def send(
        self,
        conversation: str,
        text: str,
        *,
        message_id: str,
        agent: str,
        resume: Offer | None,
        attachments: Sequence[str] | None,
    ) -> Receipt:
        self.sent.append((message_id, text))
        self.attached.append(tuple(attachments or ()))
        self.resumed.append(resume)
        self._tell()
        if self.refusal is not None:
            raise self.refusal
        return Receipt(message_id=MessageId(message_id), event=1, at_us=0)

    async def upload(self, data: bytes, *, name: str) -> dict[str, Any]:
        await self.let_upload.wait()
        row = {"attachment": f"ticket of {name}", "name": name, "media_type": "text/plain", "tokens": len(data)}
        return {**row, "note": "read as Latin-1"}

    async def cancel(self, conversation: str) -> None:
        self.cancels += 1
        self._tell()
        if self.refusal is not None:
            raise self.refusal

    def session(
        self, *, echoes: bool = True, prompt: str = "", why_not: Callable[[int], str] = lambda _: ""
    ) -> ChatSession:
        def write(text: str) -> None:
            self.shown += text
            self._tell()

        screen = Screen(write, prompt=prompt)
        return ChatSession(self, CONVERSATION, agent="", screen=screen, echoes=echoes, why_not=why_not)

    async def run(self, session: ChatSession) -> None:
        with anyio.fail_after(5):
            await session.run(aiter(self._watch), lines=lines_of(self.reading))

    async def until(self, text: str) -> None:
        """Return when ``text`` stands on the screen."""
        with anyio.fail_after(5):
            while text not in self.shown:
                await self.something_happened.wait()

    async def until_sent(self, count: int) -> None:
        with anyio.fail_after(5):
            while len(self.sent) < count:
                await self.something_happened.wait()

    def type(self, text: str) -> None:
        os.write(self.writing, text.encode())

    def end_input(self) -> None:
        os.close(self.writing)
        self.writing = -1

    def begin(self, *events: AnyEvent, state: str = "new") -> None:
        status = RunStatus(state=state)
        self.put(ReloadItem(conversation=CONVERSATION, epoch=1, head=len(events), status=status, events=events))

    def happen(self, *events: AnyEvent) -> None:
        for event in events:
            self.put(EventItem(conversation=CONVERSATION, epoch=1, event=event))

    def put(self, item: AnyItem) -> None:
        self.items.send_nowait(item)

    def close(self) -> None:
        self.items.close()
        self._watch.close()
        os.close(self.reading)
        if self.writing >= 0:
            os.close(self.writing)

    def _tell(self) -> None:
        self.something_happened.set()
        self.something_happened = anyio.Event()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    world.close()


def answered(message: str, *, turn: int = 1, text: str = "Hello") -> Sequence[AnyEvent]:
    id_ = MessageId(message)
    return (
        MessageReceivedEvent(event=1, at_us=0, message_id=id_, principal="ada", text="hi"),
        TurnStartedEvent(event=2, at_us=0, turn=turn, messages=(id_,)),
        ReplyFinishedEvent(event=3, at_us=0, turn=turn, call=f"{turn}-1-1", text=text),
        TurnFinishedEvent(event=4, at_us=0, turn=turn),
    )


async def test_chat_ends_when_the_input_has_and_every_line_is_answered(world: World) -> None:
    world.begin()
    world.type("hi\n\n  \nagain")
    world.end_input()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run, world.session())
        await world.until_sent(2)
        world.happen(*answered(world.sent[0][0]), *answered(world.sent[1][0], turn=2, text="Again"))

    assert [text for _, text in world.sent] == ["hi", "again"]
    assert world.shown == "you> hi\nHello\nyou> hi\nAgain\n"


async def test_prompt_comes_back_after_the_turn(world: World) -> None:
    world.begin()
    session = world.session(echoes=False, prompt="> ")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run, session)
        await world.until("> ")
        world.type("hi\n")
        await world.until_sent(1)
        world.put(ProgressItem(conversation=CONVERSATION, call_id=CallId("k"), name="pay", text="half"))
        world.put(DeltaItem(conversation=CONVERSATION, call="1-1-1", offset=0, text="He"))
        world.put(ResumedItem(conversation=CONVERSATION, epoch=1, head=1, status=RunStatus(state="running")))
        world.happen(*answered(world.sent[0][0]))
        await world.until("Hello\n> ")
        session.interrupt(tasks)

    assert world.cancels == 0


async def test_a_quarantine_and_a_release_are_told(world: World) -> None:
    world.begin()

    async with anyio.create_task_group() as tasks:
        session = world.session(echoes=False, prompt="> ")
        tasks.start_soon(world.run, session)
        await world.until("> ")
        world.put(StatusItem(conversation=CONVERSATION, status=RunStatus(state="quarantined")))
        await world.until("this conversation was quarantined; nothing can be sent until an operator releases it")
        world.put(StatusItem(conversation=CONVERSATION, status=RunStatus(state="rest")))
        await world.until("this conversation was released")
        session.interrupt(tasks)


async def test_what_somebody_else_says_is_shown_with_a_name(world: World) -> None:
    world.begin()

    async with anyio.create_task_group() as tasks:
        session = world.session(echoes=False, prompt="> ")
        tasks.start_soon(world.run, session)
        world.happen(*answered("theirs"))
        await world.until("ada> hi\nHello\n> ")
        session.interrupt(tasks)


async def test_ctrl_c_cancels_and_a_second_one_leaves(world: World) -> None:
    world.begin()
    world.type("hi\n")
    session = world.session()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run, session)
        await world.until_sent(1)
        session.interrupt(tasks)
        await world.until("(cancelling)")
        session.interrupt(tasks)

    assert world.cancels == 1


async def test_after_a_cancelled_turn_ctrl_c_leaves_at_once(world: World) -> None:
    world.begin(state="running")
    session = world.session()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run, session)
        await anyio.wait_all_tasks_blocked()
        session.interrupt(tasks)
        world.happen(TurnCancelledEvent(event=5, at_us=0, turn=1, reason="client"))
        await world.until("(cancelled)")
        session.interrupt(tasks)

    assert world.cancels == 1


@pytest.mark.parametrize(
    ("refusal", "note"), [(NothingToCancel(), ""), (ClientError("it may have happened"), "not cancelled, it may have")]
)
async def test_cancel_that_fails_may_be_asked_for_again(world: World, refusal: ClientError, note: str) -> None:
    world.begin(state="running")
    world.refusal = refusal
    session = world.session()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run, session)
        await anyio.wait_all_tasks_blocked()
        session.interrupt(tasks)
        await anyio.wait_all_tasks_blocked()
        session.interrupt(tasks)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert world.cancels == 2
    assert note in world.shown


async def test_message_that_is_refused_is_told_and_the_chat_goes_on(world: World) -> None:
    world.begin()
    world.refusal = EmptyMessage()
    world.type("\u200b\n")
    world.end_input()

    await world.run(world.session())

    assert world.shown.startswith("(not sent, message has no visible text")


async def test_lost_and_found_connection_is_told_once_each(world: World) -> None:
    world.begin()
    session = world.session()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run, session)
        await anyio.wait_all_tasks_blocked()
        for is_there in (True, False, False, True, True):
            session.on_connection(is_there=is_there)
        session.interrupt(tasks)
    session.on_connection(is_there=False)

    assert world.shown == "(connection lost, trying again)\n(connected again)\n"


async def test_person_is_shown_the_last_turns_of_an_older_conversation_and_a_pipe_is_not(world: World) -> None:
    older = [event for turn in (1, 2, 3) for event in answered(f"m{turn}", turn=turn, text=f"reply {turn}")]
    world.begin(*older, state="rest")

    async with anyio.create_task_group() as tasks:
        session = world.session(echoes=False)
        tasks.start_soon(world.run, session)
        await world.until("reply 3\n")
        session.interrupt(tasks)
    assert world.shown == "ada> hi\nreply 2\nada> hi\nreply 3\n"

    world.shown = ""
    world.begin(*older, state="rest")
    world.end_input()
    await world.run(world.session(echoes=True))
    assert world.shown == ""


async def test_reload_in_the_middle_is_told_and_forgets_what_is_over(world: World) -> None:
    world.begin()
    world.type("hi\n")
    world.end_input()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run, world.session())
        await world.until_sent(1)
        world.begin(state="rest")

    assert world.shown == "(the conversation was loaded anew, some of it may be missing here)\n"


async def test_what_a_failed_turn_offers_is_taken_up_by_a_word(world: World) -> None:
    offers = (Offer.CONTINUE, Offer.RETRY)
    failed = TurnFailedEvent(event=9, at_us=0, turn=3, code="model_stream_lost", detail="cut", offers=offers)
    world.begin()

    async with anyio.create_task_group() as tasks:
        session = world.session()
        tasks.start_soon(world.run, session)
        world.happen(failed)
        await world.until("type /continue or /retry to go on from here")
        world.type("/continue\n")
        await world.until_sent(1)
        tasks.cancel_scope.cancel()

    assert [text for _, text in world.sent] == [""]
    assert world.resumed == [Offer.CONTINUE]


async def test_what_an_older_conversation_still_offers_can_be_taken_up(world: World) -> None:
    failed = TurnFailedEvent(event=9, at_us=0, turn=3, code="model_stream_lost", detail="cut", offers=(Offer.RETRY,))
    world.begin(*answered("m"), failed, state="rest")
    world.type("/retry\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run, world.session())
        await world.until_sent(1)
        tasks.cancel_scope.cancel()

    assert world.resumed == [Offer.RETRY]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("/retry", "(nothing to retry, since the last turn did not offer it)"),
        ("/continue ", "(nothing to continue, since the last turn did not offer it)"),
        (
            "/help",
            "(/attach FILE sends a file with the next message; Ctrl-C cancels the running turn, Ctrl-D leaves; "
            "every other line is a message to the agent, //help and the like with one slash)",
        ),
        ("/attach", "(/attach takes the name of a file: /attach FILE)"),
        (
            "/frob",
            "(there is no /frob, only /attach FILE, /continue, /retry and /help; as a message to the agent: //frob)",
        ),
        (
            "/atach notes.txt",
            "(there is no /atach, only /attach FILE, /continue, /retry and /help; as a message to the agent: //atach)",
        ),
        ("/retry please", "(nothing to retry, since the last turn did not offer it)"),
    ],
)
async def test_a_slash_and_a_word_never_reach_the_model(world: World, line: str, answer: str) -> None:
    world.begin(*answered("m"), state="rest")
    world.type(f"{line}\n")
    world.end_input()

    await world.run(world.session())

    assert world.sent == []
    assert world.shown.splitlines() == [answer]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("/etc/hosts, what is in it?", "/etc/hosts, what is in it?"),
        (" /frob", " /frob"),
        ("/ is a slash", "/ is a slash"),
        ("//frob", "/frob"),
        ("//attach a.txt is how it is done", "/attach a.txt is how it is done"),
        ("// is a remark", "// is a remark"),
        ("//host/share", "//host/share"),
    ],
)
async def test_other_lines_with_a_slash_are_messages(world: World, line: str, text: str) -> None:
    world.begin()
    world.type(f"{line}\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run, world.session())
        await world.until_sent(1)
        tasks.cancel_scope.cancel()

    assert [sent for _, sent in world.sent] == [text]


async def test_what_takes_up_a_turn_stands_alone(world: World) -> None:
    failed = TurnFailedEvent(event=9, at_us=0, turn=3, code="model_stream_lost", detail="cut", offers=(Offer.RETRY,))
    world.begin(*answered("m"), failed, state="rest")
    world.type("/retry please\n")
    world.end_input()

    await world.run(world.session())

    assert (world.sent, world.resumed) == ([], [])
    assert "(/retry stands alone; as a message to the agent: //retry)" in world.shown


async def test_help_names_what_a_failed_turn_offers(world: World) -> None:
    failed = TurnFailedEvent(event=9, at_us=0, turn=3, code="model_stream_lost", detail="cut", offers=(Offer.RETRY,))
    world.begin(*answered("m"), failed, state="rest")
    world.type("/help\n")
    world.end_input()

    await world.run(world.session())

    assert world.shown.startswith("(/retry takes up the turn that failed; /attach FILE sends")


async def test_end_of_the_watch_is_the_end_of_the_chat(world: World) -> None:
    world.begin()
    world.items.close()

    await world.run(world.session())


async def test_a_file_goes_with_the_next_message_which_waits_for_it(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"abc")
    world.begin(*answered("m"), state="rest")
    world.type(f"/attach '{tmp_path}/a.txt'\n/attach {tmp_path}/missing.txt\nlook\nand?\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run, world.session())
        await world.until_sent(1)
        assert world.sent[0][1] == "and?", "what was said without a file waits for none"
        world.let_upload.set()
        await world.until_sent(2)
        tasks.cancel_scope.cancel()

    assert world.attached == [(), ("ticket of a.txt",)]
    assert "attached a.txt (text/plain), about 3 tokens; read as Latin-1" in world.shown
    assert "cannot read" in world.shown


async def test_a_file_that_a_message_cannot_have_is_not_uploaded(world: World) -> None:
    world.begin()
    world.type("/attach a.txt\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run, world.session(why_not=lambda files: f"{files} is too many"))
        await world.until("cannot attach a.txt: 1 is too many")
        tasks.cancel_scope.cancel()


async def test_what_came_with_a_message_is_shown(world: World) -> None:
    scan = Attachment(blob="", media_type="image/png", size_bytes=1, tokens=1, name="scan.png")
    world.begin()
    world.happen(
        MessageReceivedEvent(event=1, at_us=0, message_id=MessageId("m"), principal="bob", text="", attachments=(scan,))
    )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.run, world.session())
        await world.until("[scan.png (image/png)]")
        tasks.cancel_scope.cancel()
