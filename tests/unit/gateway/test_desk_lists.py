"""What lists and inspections show, and what operators do with what they found."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.support.gateway_line import Line, principal
from tests.support.gateway_table import example
from tests.support.gateway_world import World
from torpor.errors import NotNow
from torpor.records.commands import Hibernate, Wake
from torpor.records.context import ContextPart, WorkingContext
from torpor.records.frames import (
    ClientFrame,
    Done,
    ErrorFrame,
    HibernateConversation,
    InspectConversation,
    ListConversations,
    Result,
    Send,
    ThawConversation,
)
from torpor.records.ids import ConversationKey, MessageId
from torpor.supervisor.contract import LiveStatus

KEY = ConversationKey("default", "alice", "c1")
CONTEXT = WorkingContext(screen=ContextPart(text="calendar"))
OPERATOR = principal("ops", scopes=("operator",))
Opened = Callable[..., AbstractAsyncContextManager[Line]]


def send(message_id: str = "m1", text: str = "hello", **more: Any) -> Send:
    return Send(**{"conversation": "c1", "message_id": MessageId(message_id), "text": text, **more})


async def test_a_list_shows_ones_own_and_an_operator_everybodys(world: World, opened: Opened) -> None:
    for tenant, owner, name in (("default", "alice", "c1"), ("default", "alice", "c2"), ("default", "bob", "c1")):
        world.converse(ConversationKey(tenant, owner, name), turns=1)
    world.converse(ConversationKey("elsewhere", "alice", "c1"), turns=1)
    world.live[KEY] = LiveStatus(state="running", turn=2, waiting=1)
    async with opened() as line:
        line.say(ListConversations(ref="r1"))
        own = await line.hear_a(Result)
    async with opened(OPERATOR) as line:
        line.say(ListConversations(ref="r2"))
        everybodys = await line.hear_a(Result)

    assert [row["path"] for row in own.rows] == ["default/alice/c1", "default/alice/c2"]
    assert [row["path"] for row in everybodys.rows] == [
        "default/alice/c1",
        "default/alice/c2",
        "default/bob/c1",
        "elsewhere/alice/c1",
    ]
    assert (own.ref, own.more) == ("r1", False)
    assert own.rows[0] == {
        "path": "default/alice/c1",
        "tenant": "default",
        "owner": "alice",
        "conversation": "c1",
        "agent": "rehearsal",
        "title": "",
        "archived": False,
        "state": "running",
        "failed": False,
        "turn": 2,
        "waiting": 1,
        "actor": "running",
        "event": 4,
        "seq": 4,
        "created_us": 1_000,
        "updated_us": 2_000,
        "due_us": None,
        "quarantine": "",
        "quarantine_kind": "",
        "quarantined_us": 0,
        "quarantine_seq": 0,
    }
    assert (own.rows[1]["state"], own.rows[1]["actor"]) == ("rest", "hibernated")


@pytest.mark.parametrize("bounds", [{"list_rows_max": 2}, {"result_bytes_max": 700}, {"result_bytes_max": 1}])
async def test_a_long_list_comes_in_parts(bounds: dict[str, int], world: World, opened: Opened) -> None:
    for number in range(5):
        world.converse(ConversationKey("default", "alice", f"c{number}"), turns=1)
    paths: list[str] = []
    async with opened(**bounds) as line:
        more = True
        while more:
            line.say(ListConversations(after=paths[-1] if paths else ""))
            result = await line.hear_a(Result)
            assert 1 <= len(result.rows) <= 2
            paths += [row["path"] for row in result.rows]
            more = result.more

    assert paths == [f"default/alice/c{number}" for number in range(5)]


@pytest.mark.parametrize(
    "frame", ['"list"', '"history","conversation":"c1"', '"jobs"', '"turns"', '"inspect","path":"c1"']
)
@pytest.mark.parametrize("limit", [-5, 0, 10_001, 10**30])
async def test_an_absurd_limit_is_refused(limit: int, frame: str, opened: Opened) -> None:
    async with opened(OPERATOR) as line:
        line.session.receive(f'{{"ref":"r","frame":{frame},"limit":{limit}}}')
        refused = await line.hear_a(ErrorFrame)

    assert (refused.ref, refused.code, "$.limit" in refused.message) == ("r", "bad_frame", True)


@pytest.mark.parametrize("place", ['"history","before"', '"ack","event"', '"inspect","path":"c1","seq"'])
async def test_a_place_before_the_first_one_is_refused(place: str, opened: Opened) -> None:
    async with opened(OPERATOR) as line:
        line.session.receive(f'{{"ref":"r","conversation":"c1","frame":{place}:-1}}')
        assert (await line.hear_a(ErrorFrame)).code == "bad_frame"


async def test_an_inspection_gives_the_records_as_they_are(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=2)
    async with opened(OPERATOR, list_rows_max=3) as line:
        rows: list[dict[str, Any]] = []
        more = True
        while more:
            line.say(InspectConversation(ref="r1", path="default/alice/c1", seq=rows[-1]["seq"] if rows else 0))
            result = await line.hear_a(Result)
            rows += result.rows
            more = result.more
        line.say(InspectConversation(path="alice/c1", seq=10**30))
        beyond = await line.hear_a(Result)

    assert [row["seq"] for row in rows] == list(range(1, 9))
    assert rows[0]["kind"] == "message_received"
    assert rows[0]["blocks"] == [{"text": "question 0", "type": "text"}]
    assert beyond.rows == ()


@pytest.mark.parametrize("frame", [InspectConversation, ThawConversation, HibernateConversation])
async def test_what_does_not_exist_is_unknown_to_operators_too_and_wakes_nobody(
    frame: type[ClientFrame], world: World, opened: Opened
) -> None:
    async with opened(OPERATOR) as line:
        line.say(example(frame, "default/alice/c1"))
        answer = await line.hear_a(ErrorFrame)

    assert answer.code == "unknown_conversation"
    assert world.posted == []


async def test_hibernate_and_thaw_are_done_when_they_are(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    async with opened(OPERATOR, hibernate_deadline_max_s=60) as line:
        line.say(HibernateConversation(ref="r1", path="alice/c1", deadline_s=2.5))
        assert (await line.hear_a(Done)).ref == "r1"
        line.say(ThawConversation(ref="r2", path="default/alice/c1"))
        assert (await line.hear_a(Done)).ref == "r2"
        for deadline_s in (-1.0, 1e9):
            line.say(HibernateConversation(path="alice/c1", deadline_s=deadline_s))
            await line.hear_a(Done)

    assert [command for _, command in world.posted] == [
        Hibernate(deadline_s=2.5),
        Wake(),
        Hibernate(deadline_s=0.0),
        Hibernate(deadline_s=60.0),
    ]


async def test_a_hibernate_that_met_a_turn_says_not_now(world: World, opened: Opened) -> None:
    world.converse(KEY, turns=1)
    world.answers[Hibernate] = NotNow(turn=2, deadline_s=0)
    async with opened(OPERATOR) as line:
        line.say(HibernateConversation(ref="r1", path="alice/c1"))
        error = await line.hear_a(ErrorFrame)

    assert (error.code, error.ref) == ("not_now", "r1")
