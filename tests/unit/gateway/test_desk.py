"""What a known client may ask for, frame by frame."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, get_args

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.gateway_line import Line, principal
from tests.support.gateway_table import KINDS, UPLOADING, example
from tests.support.gateway_world import Durable, World
from torpor.errors import Busy, JournalCorrupt, Rejected, StoreFull, StoreUnavailable
from torpor.gateway.auth import Scope
from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.rules import RULES
from torpor.records.commands import CancelTurn, SendMessage, TellContext
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext
from torpor.records.frames import (
    Accepted,
    AnyClientFrame,
    Cancel,
    ClientFrame,
    Done,
    ErrorFrame,
    EventFrame,
    Hello,
    ReadHistory,
    Reload,
    Result,
    Send,
    Subscribe,
    Subscription,
    Unsubscribe,
    UpdateContext,
)
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.terms import Offer, WhenBusy
from torpor.supervisor.contract import LiveStatus

KEY = ConversationKey("default", "alice", "c1")
CONTEXT = WorkingContext(screen=ContextPart(text="calendar"))
OPERATOR = principal("ops", scopes=("operator",))
Opened = Callable[..., AbstractAsyncContextManager[Line]]


def send(message_id: str = "m1", text: str = "hello", **more: Any) -> Send:
    return Send(**{"conversation": "c1", "message_id": MessageId(message_id), "text": text, **more})


# Every frame, for whoever is not allowed to see the conversation that it names.

NAMING: dict[type[ClientFrame], Callable[[str], ClientFrame]] = {
    kind: partial(example, kind) for kind in KINDS if kind is not Hello
}


def test_every_frame_of_the_protocol_has_a_rule_and_a_case_here() -> None:
    frames = set(get_args(AnyClientFrame)) - {Hello}

    assert set(RULES) == frames
    assert set(NAMING) == frames


async def answer_to(frame: ClientFrame, *, who: Any, opened: Opened) -> dict[str, Any]:
    async with opened(who) as line:
        line.say(frame)
        answer: dict[str, Any] = msgspec.to_builtins(await line.hear())
        return answer


@pytest.mark.parametrize("frame", [*filter(lambda kind: kind not in UPLOADING, NAMING)], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ["default/alice/c1", "alice/c1"])
async def test_a_foreign_conversation_looks_like_one_that_does_not_exist(
    name: str, frame: type[ClientFrame], world: World, opened: Opened
) -> None:
    world.converse(KEY, turns=1)
    world.live[KEY] = LiveStatus(state="running", turn=2)
    absent = name.replace("alice", "nobody")

    bob = principal("bob")
    foreign = await answer_to(NAMING[frame](name), who=bob, opened=opened)
    unknown = await answer_to(NAMING[frame](absent), who=bob, opened=opened)

    expected = "not_permitted" if RULES[frame].scope is Scope.OPERATOR else "unknown_conversation"
    assert foreign["code"] == expected
    assert msgspec.json.encode(foreign).replace(b"alice", b"nobody") == msgspec.json.encode(unknown)
    assert world.posted == []
    assert not world.bus.is_watched(KEY)


@pytest.mark.parametrize("frame", NAMING, ids=lambda kind: kind.__name__)
async def test_the_same_bare_id_of_two_owners_is_two_conversations(
    frame: type[ClientFrame], world: World, opened: Opened
) -> None:
    world.converse(KEY, turns=1)
    async with opened(principal("bob")) as line:
        line.say(NAMING[frame]("c1"))
        await anyio.wait_all_tasks_blocked()
        line.say(Unsubscribe(conversation="c9", ref="last"))
        answers = await line.hear_until(lambda heard: isinstance(heard, Done) and heard.ref == "last")

    assert all(key.owner == "bob" for key, _ in world.posted)
    assert b"question" not in msgspec.json.encode(answers)
    assert not world.bus.is_watched(KEY)


async def test_a_message_needs_no_words_to_take_up_an_offer(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(send(text=" ", resume=Offer.CONTINUE))
        assert isinstance(await line.hear(), Accepted)
    ((_, command),) = world.posted
    assert isinstance(command, SendMessage)
    assert (command.text, command.resume) == (" ", Offer.CONTINUE)


async def test_a_message_says_how_many_exchanges_are_to_be_quoted(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(send(lookback=50))
        assert isinstance(await line.hear(), Accepted)
    ((_, command),) = world.posted
    assert isinstance(command, SendMessage)
    assert command.lookback == 50


@pytest.mark.parametrize("frame", NAMING, ids=lambda kind: kind.__name__)
async def test_a_frame_is_refused_without_its_scope(frame: type[ClientFrame], world: World, opened: Opened) -> None:
    answer = await answer_to(NAMING[frame]("c1"), who=principal("alice", scopes=("watching",)), opened=opened)

    assert answer["code"] == "not_permitted"
    assert RULES[frame].scope in answer["message"]
    assert world.posted == []


# Reading back.


@pytest.mark.parametrize(
    ("asked", "numbers", "more"),
    [
        ({}, list(range(1, 13)), False),
        ({"limit": 5}, [8, 9, 10, 11, 12], True),
        ({"limit": 5, "before": 8}, [3, 4, 5, 6, 7], True),
        ({"limit": 5, "before": 3}, [1, 2], False),
        ({"before": 1}, [], False),
        ({"limit": 1, "before": 10**30}, [12], True),
        ({"limit": 10_000}, list(range(1, 13)), False),
    ],
)
async def test_events_are_read_back_page_by_page(
    asked: dict[str, int], numbers: list[int], more: bool, world: World, opened: Opened
) -> None:
    world.converse(KEY, turns=3)
    async with opened() as line:
        line.say(ReadHistory(ref="r", conversation="c1", **asked))
        result = await line.hear_a(Result)
    assert [row["event"] for row in result.rows] == numbers
    assert result.more is more


async def test_a_page_of_events_has_a_size(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=3)
    async with opened(result_bytes_max=250) as line:
        line.say(ReadHistory(ref="r", conversation="c1"))
        result = await line.hear_a(Result)
    assert [row["event"] for row in result.rows] == [11, 12]
    assert result.more


# Sending.


async def test_a_message_is_accepted_once_it_is_durable_and_holds_up_nothing_else(world: World, opened: Opened) -> None:
    world.durable = Durable()
    async with opened() as line:
        line.say(send("m1", ref="r1"))
        line.say(send("m2", ref="r2"))
        line.say(Unsubscribe(conversation="c9", ref="r3"))
        assert (await line.hear_a(Done)).ref == "r3"
        assert [command.message_id for _, command in world.posted if isinstance(command, SendMessage)] == ["m1", "m2"]
        world.durable.set()
        accepted = [await line.hear_a(Accepted) for _ in range(2)]

    assert {(frame.ref, frame.message_id, frame.event, frame.at_us) for frame in accepted} == {
        ("r1", "m1", 1, world.at_us),
        ("r2", "m2", 2, world.at_us),
    }


async def test_a_resend_gets_the_first_receipt(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(send("m1", ref="r1"))
        first = await line.hear_a(Accepted)
        line.say(send("m2"))
        await line.hear_a(Accepted)
        line.say(send("m1", ref="r2"))
        again = await line.hear_a(Accepted)

    assert msgspec.structs.replace(again, ref="r1") == first


async def test_a_message_carries_who_sent_it_and_what_to_do_when_busy(world: World, opened: Opened) -> None:
    async with opened(principal("ann", owner="alice")) as line:
        line.say(send(when_busy=WhenBusy.STEER, agent="helper"))
        await line.hear_a(Accepted)

    ((key, command),) = world.posted
    assert key == KEY
    assert command == SendMessage(
        message_id=MessageId("m1"), principal="ann", text="hello", when_busy=WhenBusy.STEER, agent="helper"
    )


@pytest.mark.parametrize(
    ("text", "stored", "cleaned"),
    [
        (r"half an emoji \ud83d here", "half an emoji \ufffd here", 1),
        (r"\ud83d\ude00 whole", "\U0001f600 whole", 0),
        (r"nul \u0000 and bell \u0007", "nul \u2400 and bell \u2407", 2),
        (r"tab\tand\nnewline", "tab\tand\nnewline", 0),
    ],
)
async def test_text_is_made_storable_visibly_and_counted(
    text: str, stored: str, cleaned: int, world: World, opened: Opened
) -> None:
    async with opened() as line:
        line.say('{"frame":"send","conversation":"c1","message_id":"m1","text":"' + text + '"}')
        await line.hear_a(Accepted)

    ((_, command),) = world.posted
    assert isinstance(command, SendMessage)
    assert (command.text, command.cleaned) == (stored, cleaned)


@pytest.mark.parametrize("text", ["", " ", "\n\t \r", "\u200b\u200d\ufeff", "\u00a0\u3000", "\u2060 \u200e"])
async def test_a_message_without_anything_visible_is_refused(text: str, world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(send(text=text))
        error = await line.hear_a(ErrorFrame)
        line.say(send(text="visible"))
        await line.hear_a(Accepted)

    assert (error.code, error.message_id) == ("empty_message", "m1")
    assert len(world.posted) == 1


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (send(message_id=""), "message_id is not an id"),
        (send(message_id="a b"), "message_id is not an id"),
        (send(message_id="x" * 65), "message_id is not an id"),
        (send(text="ü" * 51), "102 bytes, expected at most 100"),
        (send(conversation="c/1/2/3"), "not a name"),
        (send(conversation=""), "not a name"),
    ],
)
async def test_a_message_that_cannot_be_taken_is_refused(
    frame: Send, complaint: str, world: World, opened: Opened
) -> None:
    async with opened(message_bytes_max=100) as line:
        line.say(frame)
        error = await line.hear_a(ErrorFrame)

    assert error.code == ("too_long" if "bytes" in complaint else "bad_frame")
    assert complaint in error.message
    assert world.posted == []


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_the_actor_refuses_is_told_with_the_time_to_wait(
    at_once: bool, world: World, opened: Opened
) -> None:
    busy = Busy("mailbox", waiting=64, bound="actor.mailbox_capacity", retry_after_s=0.25)
    (world.refusals if at_once else world.failures).append(busy)
    async with opened() as line:
        line.say(send(ref="r1"))
        error = await line.hear_a(ErrorFrame)

    assert (error.code, error.ref, error.conversation, error.message_id) == ("busy", "r1", "c1", "m1")
    assert error.retry_after_s == 0.25


async def test_a_rejected_message_is_not_to_be_tried_again(world: World, opened: Opened) -> None:
    world.refusals.append(Rejected(turn=3))
    async with opened() as line:
        line.say(send())
        error = await line.hear_a(ErrorFrame)

    assert (error.code, error.retry_after_s) == ("rejected", None)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (StoreUnavailable("disk on fire"), "unavailable"),
        (StoreFull("no space left for /var/lib/torpor.db"), "unavailable"),
        (JournalCorrupt(KEY.path, reason="torn"), "quarantined"),
        (ZeroDivisionError("bug"), "internal"),
    ],
)
async def test_a_fault_behind_a_request_is_its_answer_and_nobody_elses(
    fault: Exception, code: str, world: World, opened: Opened
) -> None:
    world.failures.append(fault)
    async with opened() as line:
        line.say(send(ref="r1"))
        error = await line.hear_a(ErrorFrame)
        line.say(send("m2"))
        await line.hear_a(Accepted)

    assert (error.code, error.ref) == (code, "r1")
    assert str(fault) not in error.message


async def test_storage_that_does_not_answer_is_logged_with_why_and_without_a_traceback(
    world: World, opened: Opened
) -> None:
    world.failures.append(StoreUnavailable("bucket 'b' does not exist"))
    with capture_logs() as logs:
        async with opened() as line:
            line.say(send(ref="r1"))
            await line.hear_a(ErrorFrame)

    (told,) = [each for each in logs if each["event"] == "gateway.store_unreadable"]
    assert (told["why"], told["exc_info"]) == ("bucket 'b' does not exist", None)


async def test_requests_that_wait_are_bounded_and_the_answer_is_busy(world: World, opened: Opened) -> None:
    world.durable = Durable()
    async with opened(requests_max=3) as line:
        for number in range(4):
            line.say(send(f"m{number}"))
        error = await line.hear_a(ErrorFrame)
        world.durable.set()
        accepted = [(await line.hear_a(Accepted)).message_id for _ in range(3)]
        line.say(send("m3"))
        await line.hear_a(Accepted)

    assert (error.code, error.message_id, error.retry_after_s) == ("busy", "m3", 0.5)
    assert sorted(accepted) == ["m0", "m1", "m2"]
    assert len(world.posted) == 4


async def test_answers_that_are_not_read_close_the_connection(world: World, opened: Opened) -> None:
    async with opened(outbox_frames_max=4) as line:
        for number in range(6):
            line.say(send(f"m{number}"))
        await anyio.wait_all_tasks_blocked()

        assert await line.hear() is None
        assert line.outbox.closing is CloseReason.OVERFLOW


# The working context.


async def test_a_context_is_done_once_it_is_durable(world: World, opened: Opened) -> None:
    world.durable = Durable()
    async with opened(principal("ann", owner="alice")) as line:
        line.say(UpdateContext(ref="r1", conversation="c1", context=CONTEXT, agent="helper"))
        line.say(Unsubscribe(conversation="c9", ref="r2"))
        assert (await line.hear_a(Done)).ref == "r2"
        world.durable.set()
        assert (await line.hear_a(Done)).ref == "r1"

    assert world.posted == [(KEY, TellContext(principal="ann", context=CONTEXT, agent="helper"))]


async def test_every_text_of_a_context_is_made_storable(world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(
            r'{"frame":"context.update","conversation":"c1","context":{"record":{"type":"patient","id":"7",'
            r'"text":"a\u0000"},"screen":{"text":"b\ud83d"},"role":{"text":"c\u0007"},"plan":{"text":"d\u001b"},'
            r'"actions":[{"text":"e\u0000"},{"text":"f","label":"public"}]}}'
        )
        await line.hear_a(Done)

    ((_, command),) = world.posted
    assert isinstance(command, TellContext)
    assert command.context == WorkingContext(
        record=SelectedRecord(type="patient", id="7", text="a\u2400"),
        screen=ContextPart(text="b\ufffd"),
        role=ContextPart(text="c\u2407"),
        plan=ContextPart(text="d\u241b"),
        actions=(ContextPart(text="e\u2400"), ContextPart(text="f", label="public")),
    )


@pytest.mark.parametrize(
    ("context", "complaint"),
    [
        ('{"screen":{"text":"' + "x" * 200 + '"}}', "context has 222 bytes, expected at most 200"),
        ('{"screen":{"text":"a","label":"Top Secret"}}', "label"),
        ('{"screen":{"text":"a","label":"internal\\n"}}', "label"),
        ('{"record":{"type":"a b","id":"1"}}', "record.type"),
        ('{"record":{"type":"a","id":"1\\n"}}', "record.id"),
        ('{"actions":[' + ",".join(['{"text":"a"}'] * 51) + "]}", "actions"),
    ],
)
async def test_a_context_that_cannot_be_taken_is_refused(
    context: str, complaint: str, world: World, opened: Opened
) -> None:
    async with opened(context_bytes_max=200) as line:
        line.say('{"frame":"context.update","ref":"r1","conversation":"c1","context":' + context + "}")
        error = await line.hear_a(ErrorFrame)

    assert error.code == ("too_long" if "bytes" in complaint else "bad_frame")
    assert complaint in error.message
    assert world.posted == []


# Cancelling.


async def test_a_cancel_is_done_when_the_turn_has_ended(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    world.live[KEY] = LiveStatus(state="running", turn=2)
    async with opened() as line:
        line.say(Cancel(ref="r1", conversation="c1"))
        assert (await line.hear_a(Done)).ref == "r1"

    assert world.posted == [(KEY, CancelTurn(principal="alice", reason="client"))]


async def test_a_cancel_at_rest_says_so(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    async with opened() as line:
        line.say(Cancel(conversation="c1"))

        assert (await line.hear_a(ErrorFrame)).code == "nothing_to_cancel"


async def test_a_cancel_of_what_does_not_exist_is_unknown(opened: Opened) -> None:
    async with opened() as line:
        line.say(Cancel(conversation="c1"))

        assert (await line.hear_a(ErrorFrame)).code == "unknown_conversation"


async def test_files_go_to_ones_own_conversations_only_also_from_an_operator(world: World, opened: Opened) -> None:
    async with opened(OPERATOR) as line:
        line.say(send(conversation="alice/c1", attachments=("ticket",)))
        foreign = await line.hear_a(ErrorFrame)
        line.say(send("m2", attachments=("ticket",)))
        own = await line.hear_a(ErrorFrame)

    assert foreign.code == own.code == "unknown_attachment"
    assert "your own conversations only" in foreign.message
    assert "upload it again" in own.message


async def test_an_operators_cancel_is_recorded_as_one(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    world.live[KEY] = LiveStatus(state="running", turn=2)
    async with opened(OPERATOR) as line:
        line.say(Cancel(conversation="alice/c1"))
        await line.hear_a(Done)

    assert world.posted == [(KEY, CancelTurn(principal="ops", reason="operator"))]


# Watching.


async def test_the_conversations_watched_at_once_are_bounded(opened: Opened) -> None:
    async with opened(subscriptions_max=2) as line:
        for name in ("c1", "c2", "c1", "c3"):
            line.say(Subscribe(subscription=Subscription(conversation=name)))
        error = await line.hear_a(ErrorFrame)
        line.say(Unsubscribe(conversation="c2"))
        line.say(Subscribe(subscription=Subscription(conversation="c3")))
        await line.hear_until(lambda frame: isinstance(frame, Reload) and frame.conversation == "c3")

    assert (error.code, error.conversation) == ("too_many_subscriptions", "c3")


async def test_frames_carry_the_name_that_the_client_used(world: World, opened: Opened) -> None:
    async with opened(OPERATOR) as line:
        line.say(Subscribe(subscription=Subscription(conversation="default/alice/c1")))
        reload = await line.hear_a(Reload)
        await anyio.wait_all_tasks_blocked()
        world.converse(KEY, turns=1)
        event = await line.hear_a(EventFrame)

    assert reload.conversation == event.conversation == "default/alice/c1"
