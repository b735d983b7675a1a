"""What the client says to each connection, and to whom it gives the answers."""

import base64
from typing import Any

import msgspec
import pytest

from tests.support.bucket import Bucket
from torpor.client.core import Answer, ClientCore, ResendLater
from torpor.client.failures import ClientClosed, ConnectionLost, OtherPerson, RequestRefused, ServerRefused
from torpor.errors import TokenExpired, Unauthenticated
from torpor.records.events import TurnFinishedEvent
from torpor.records.frames import (
    Accepted,
    BeginUpload,
    Cancel,
    Cursor,
    DeltaFrame,
    Done,
    ErrorFrame,
    EventFrame,
    ListConversations,
    Result,
    Resumed,
    RunStatus,
    Send,
    ServerFrame,
    Welcome,
)
from torpor.records.ids import MessageId


class Caller:
    """Waits for one answer."""

    def __init__(self) -> None:
        self.answers: list[Answer | Exception] = []

    def settle(self, answer: Answer | Exception) -> None:
        self.answers.append(answer)


@pytest.fixture
def core() -> ClientCore:
    return ClientCore("the token")


def said(core: ClientCore) -> list[dict[str, Any]]:
    """What the connection was given to send, and has sent."""
    frames = [msgspec.json.decode(text) for text in core.outgoing]
    core.outgoing.clear()
    return frames


def told(core: ClientCore, frame: ServerFrame) -> ResendLater | None:
    return core.received(msgspec.json.encode(frame))


def send(ref: str) -> Send:
    return Send(ref=ref, conversation="c1", message_id=MessageId(f"m-{ref}"), text="hello")


def accepted(ref: str) -> Accepted:
    return Accepted(ref=ref, conversation="c1", message_id=MessageId(f"m-{ref}"), event=1)


def event(number: int) -> EventFrame:
    return EventFrame(conversation="c1", epoch=1, event=TurnFinishedEvent(event=number, at_us=1))


def resumed(head: int) -> Resumed:
    return Resumed(conversation="c1", epoch=1, head=head, status=RunStatus(state="rest"))


def test_a_connection_begins_with_hello_and_what_is_unanswered_in_its_order(core: ClientCore) -> None:
    for ref in "abc":
        core.ask(send(ref), Caller())
    core.watch("c1", cursor=Cursor(event=3), sink=Bucket())
    assert said(core) == []
    core.connected()

    hello, *sends = said(core)
    assert (hello["frame"], hello["token"]) == ("hello", "the token")
    assert hello["subscriptions"] == [{"conversation": "c1", "cursor": {"epoch": 1, "event": 3}}]
    assert [frame["message_id"] for frame in sends] == ["m-a", "m-b", "m-c"]


def test_an_unanswered_message_is_sent_again_under_its_id_and_an_answered_one_is_not(core: ClientCore) -> None:
    first, second = Caller(), Caller()
    core.connected()
    core.ask(send("a"), first)
    core.ask(send("b"), second)
    told(core, accepted("a"))
    core.disconnected()
    core.connected()

    assert [frame.get("message_id") for frame in said(core)] == [None, "m-b"]
    told(core, accepted("b"))
    told(core, accepted("b"))
    assert first.answers == [accepted("a")]
    assert second.answers == [accepted("b")]


def test_a_withdrawn_message_is_not_sent_again(core: ClientCore) -> None:
    caller = Caller()
    core.connected()
    core.ask(send("a"), caller)
    core.withdraw("a")
    core.disconnected()
    core.connected()
    told(core, accepted("a"))

    assert len(said(core)) == 1
    assert caller.answers == []


def test_a_message_that_met_a_full_mailbox_is_sent_again_later(core: ClientCore) -> None:
    caller = Caller()
    core.connected()
    core.ask(send("a"), caller)
    said(core)
    later = told(core, ErrorFrame(code="busy", message="full", ref="a", message_id="m-a", retry_after_s=0.5))

    assert later == ResendLater(ref="a", after_s=0.5, why="full")
    assert caller.answers == []
    core.resend(later)
    assert [frame["message_id"] for frame in said(core)] == ["m-a"]
    told(core, accepted("a"))
    core.resend(later)
    assert said(core) == []


@pytest.mark.parametrize(("after_s", "waits"), [(5.0, 12), (61.0, 0)])
def test_room_for_a_file_is_waited_for_no_longer_than_a_minute(core: ClientCore, after_s: float, waits: int) -> None:
    caller = Caller()
    core.connected()
    core.ask(BeginUpload(ref="a", upload="u", name="scan.png", size_bytes=1, sha256="0" * 64), caller)
    full = ErrorFrame(code="too_many_uploads", message="full", ref="a", retry_after_s=after_s)
    for _ in range(waits):
        later = told(core, full)
        assert later is not None
        assert caller.answers == []
        core.resend(later)
    assert told(core, full) is None
    (refusal,) = caller.answers
    assert isinstance(refusal, RequestRefused)
    assert (refusal.code, refusal.retry_after_s) == ("too_many_uploads", after_s)


def test_what_came_too_fast_is_said_again_later_whatever_it_is(core: ClientCore) -> None:
    caller, bucket = Caller(), Bucket()
    core.connected()
    core.ask(ListConversations(ref="l"), caller)
    core.watch("c1", cursor=Cursor(event=3), sink=bucket)
    said(core)
    refused = ErrorFrame(code="too_many_frames", message="too fast", retry_after_s=0.25)
    for name, frame in ({"ref": "l"}, "list"), ({"conversation": "c1"}, "subscribe"):
        later = told(core, msgspec.structs.replace(refused, **name))
        assert later == msgspec.structs.replace(ResendLater(after_s=0.25, why="too fast"), **name)
        core.resend(later)
        assert [again["frame"] for again in said(core)] == [frame]
    assert (caller.answers, bucket.error) == ([], None)


def test_any_other_refusal_is_the_answer(core: ClientCore) -> None:
    caller = Caller()
    core.connected()
    core.ask(send("a"), caller)
    assert told(core, ErrorFrame(code="rejected", message="turn 3 is running", ref="a")) is None

    (refusal,) = caller.answers
    assert isinstance(refusal, RequestRefused)
    assert (refusal.code, str(refusal)) == ("rejected", "turn 3 is running")


def test_only_messages_are_repeated_when_the_server_is_busy(core: ClientCore) -> None:
    caller = Caller()
    core.connected()
    core.ask(ListConversations(ref="a"), caller)

    assert told(core, ErrorFrame(code="unavailable", message="no", ref="a", retry_after_s=1)) is None
    (refusal,) = caller.answers
    assert isinstance(refusal, RequestRefused)
    assert refusal.retry_after_s == 1


def test_a_cancel_that_was_sent_is_not_repeated_and_one_that_was_not_is_sent(core: ClientCore) -> None:
    early, late = Caller(), Caller()
    core.connected()
    core.ask(Cancel(ref="a", conversation="c1"), early)
    core.disconnected()
    core.ask(Cancel(ref="b", conversation="c1"), late)
    core.connected()

    (lost,) = early.answers
    assert isinstance(lost, ConnectionLost)
    assert [frame["ref"] for frame in said(core)[1:]] == ["b"]
    told(core, Done(ref="b"))
    assert late.answers == [Done(ref="b")]


def test_answers_go_to_whoever_asked(core: ClientCore) -> None:
    first, second = Caller(), Caller()
    core.connected()
    core.ask(ListConversations(ref="a"), first)
    core.ask(ListConversations(ref="b"), second)
    told(core, Result(ref="b", rows=({"path": "x"},)))
    told(core, Result(ref="a", rows=()))
    told(core, Result(ref="nobody", rows=()))

    assert first.answers == [Result(ref="a", rows=())]
    assert second.answers == [Result(ref="b", rows=({"path": "x"},))]


def test_a_watch_goes_on_from_what_it_has_over_connections(core: ClientCore) -> None:
    bucket = Bucket()
    core.watch("c1", cursor=Cursor(event=0), sink=bucket)
    for first, last in ((1, 3), (2, 5), (6, 6)):
        core.connected()
        told(core, resumed(9))
        for number in range(first, last + 1):
            told(core, event(number))
        core.disconnected()
    core.connected()

    assert bucket.numbers == [1, 2, 3, 4, 5, 6]
    assert said(core)[0]["subscriptions"][0]["cursor"] == {"epoch": 1, "event": 6}


def test_a_missing_event_is_asked_for(core: ClientCore) -> None:
    bucket = Bucket()
    core.watch("c1", cursor=Cursor(event=0), sink=bucket)
    core.connected()
    said(core)
    told(core, resumed(0))
    told(core, event(1))
    told(core, event(3))
    told(core, event(4))
    (subscribe,) = said(core)
    told(core, resumed(4))
    for number in (2, 3, 4):
        told(core, event(number))

    assert subscribe["subscription"] == {"conversation": "c1", "cursor": {"epoch": 1, "event": 1}}
    assert bucket.numbers == [1, 2, 3, 4]


@pytest.mark.parametrize("meanwhile", ["nothing", "disconnected", "reconnected"])
def test_a_watch_that_had_no_room_is_resumed_when_it_is_drained(meanwhile: str, core: ClientCore) -> None:
    bucket = Bucket(room=2)
    core.watch("c1", cursor=Cursor(event=0), sink=bucket)
    core.connected()
    told(core, resumed(3))
    for number in (1, 2, 3):
        told(core, event(number))
    if meanwhile != "nothing":
        core.disconnected()
    if meanwhile == "reconnected":
        core.connected()
        assert said(core)[0]["subscriptions"] == []
    said(core)
    core.drained("c1")
    core.drained("c1")
    if meanwhile == "disconnected":
        core.connected()
        (subscription,) = said(core)[0]["subscriptions"]
    else:
        (frame,) = said(core)
        subscription = frame["subscription"]

    assert subscription["cursor"] == {"epoch": 1, "event": 1}


def test_a_drained_watch_that_missed_nothing_asks_for_nothing(core: ClientCore) -> None:
    core.watch("c1", cursor=None, sink=Bucket())
    core.connected()
    said(core)
    core.drained("c1")
    core.drained("c2")

    assert said(core) == []


def test_a_watch_that_the_server_refuses_fails_and_no_other(core: ClientCore) -> None:
    refused, other = Bucket(), Bucket()
    core.watch("c1", cursor=None, sink=refused)
    core.watch("c2", cursor=None, sink=other)
    core.connected()
    told(core, ErrorFrame(code="quarantined", message="bad journal", conversation="c1"))

    assert isinstance(refused.error, RequestRefused)
    assert other.error is None
    assert not core.is_watched("c1")


def test_watches_that_are_too_many_for_a_hello_are_asked_for_one_by_one(core: ClientCore) -> None:
    for name in ("c1", "c2"):
        core.watch(name, cursor=None, sink=Bucket())
    core.connected()
    said(core)
    told(core, ErrorFrame(code="too_many_subscriptions", message="too many"))

    asked = [(frame["frame"], frame["subscription"]["conversation"]) for frame in said(core)]
    assert asked == [("subscribe", "c1"), ("subscribe", "c2")]


def test_an_unwatched_conversation_is_told_to_the_server_and_its_frames_are_ignored(core: ClientCore) -> None:
    bucket, newer = Bucket(), Bucket()
    core.watch("c1", cursor=None, sink=bucket)
    core.connected()
    said(core)
    core.unwatch("c1", sink=newer)
    assert said(core) == []
    core.unwatch("c1", sink=bucket)
    core.unwatch("c1", sink=bucket)
    told(core, resumed(0))
    told(core, DeltaFrame(conversation="c1", call="call1", offset=0, text="abc"))

    assert [frame["frame"] for frame in said(core)] == ["unsubscribe"]
    assert bucket.items == []


def test_a_token_that_the_server_refuses_is_final(core: ClientCore) -> None:
    core.connected()
    with pytest.raises(Unauthenticated, match="expired"):
        told(core, ErrorFrame(code="unauthenticated", message="token has expired"))


WELCOME = Welcome(principal="alice", tenant="default", owner="alice", scopes=("chat",), frame_bytes_max=20_000)


def test_a_request_longer_than_the_server_takes_is_refused_here_as_it_would_be_there(core: ClientCore) -> None:
    core.connected()
    told(core, WELCOME)
    said(core)
    long, short = Caller(), Caller()
    core.ask(msgspec.structs.replace(send("a"), text="é" * 10_000), long)
    core.ask(send("b"), short)

    (refusal,) = long.answers
    assert isinstance(refusal, RequestRefused)
    assert (refusal.code, "expected at most 20000" in str(refusal)) == ("too_long", True)
    assert [frame["message_id"] for frame in said(core)] == ["m-b"]


def test_a_long_request_waits_for_the_welcome_and_those_behind_it_keep_their_order(core: ClientCore) -> None:
    long, longer, short = Caller(), Caller(), Caller()
    core.ask(msgspec.structs.replace(send("a"), text="x" * 17_000), long)
    core.ask(msgspec.structs.replace(send("b"), text="x" * 21_000), longer)
    core.connected()
    core.ask(send("c"), short)
    assert [frame["frame"] for frame in said(core)] == ["hello"]
    told(core, WELCOME)

    assert [frame["message_id"] for frame in said(core)] == ["m-a", "m-c"]
    assert isinstance(longer.answers[0], RequestRefused)
    assert not long.answers


def test_a_server_that_does_not_say_how_long_a_frame_may_be_takes_a_mebibyte(core: ClientCore) -> None:
    core.connected()
    told(core, msgspec.structs.replace(WELCOME, frame_bytes_max=0))
    fits, does_not = Caller(), Caller()
    core.ask(msgspec.structs.replace(send("a"), text="x" * 1_000_000), fits)
    core.ask(msgspec.structs.replace(send("b"), text="x" * 1_048_576), does_not)

    assert not fits.answers
    assert isinstance(does_not.answers[0], RequestRefused)


def token(**claims: str) -> str:
    return ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b"{}", msgspec.json.encode(claims), b"x")
    )


OTHERS = [{"sub": "bob"}, {"sub": "alice", "owner": "ward-7"}, {"sub": "alice", "tenant": "clinic"}]


@pytest.mark.parametrize("claims", OTHERS)
@pytest.mark.parametrize("is_told", [True, False])
def test_a_token_of_somebody_else_is_refused_and_the_one_before_stays(is_told: bool, claims: dict[str, str]) -> None:
    first = token(sub="alice")
    core = ClientCore(first)
    if is_told:
        core.connected()
        told(core, WELCOME)
        said(core)
    with pytest.raises(OtherPerson, match="expected one of 'alice' of 'default/alice'"):
        core.renew(token(**claims))

    assert said(core) == []
    core.disconnected()
    core.connected()
    assert said(core)[0]["token"] == first


def test_a_welcome_as_somebody_else_is_final_and_nothing_was_asked_under_that_name(core: ClientCore) -> None:
    core.connected()
    told(core, WELCOME)
    core.disconnected()
    core.ask(send("a"), Caller())
    core.renew("a token that only the server can read")
    core.connected()

    assert [frame["frame"] for frame in said(core)] == ["hello"]
    with pytest.raises(ServerRefused, match="'bob' of 'default/alice', expected 'alice' of 'default/alice'"):
        told(core, msgspec.structs.replace(WELCOME, principal="bob"))
    assert said(core) == []


def test_a_newer_token_that_the_server_takes_for_somebody_elses_is_forgotten(core: ClientCore) -> None:
    core.connected()
    core.renew("another's")
    told(core, WELCOME)
    _, renewal = said(core)
    told(core, ErrorFrame(code="bad_frame", message="hello names somebody else", ref=renewal["ref"]))
    core.disconnected()
    core.connected()

    assert said(core)[0]["token"] == "the token"


def test_a_newer_token_is_said_again_where_the_server_had_no_room_for_it_and_kept_once_it_is_welcome(
    core: ClientCore,
) -> None:
    core.connected()
    told(core, WELCOME)
    said(core)
    core.renew("newer")
    (renewal,) = said(core)
    later = told(core, ErrorFrame(code="too_many_frames", message="too fast", retry_after_s=1.0, ref=renewal["ref"]))
    assert later is not None
    core.resend(later)
    assert said(core) == [renewal]
    told(core, msgspec.structs.replace(WELCOME, ref=renewal["ref"]))
    core.resend(later)
    core.disconnected()
    core.connected()

    assert [frame["token"] for frame in said(core)] == ["newer"]


@pytest.mark.parametrize("unreadable", ["", "a.b", "a.!.c", "a.bm8.c", "a.W10.c"])
def test_a_token_that_cannot_be_read_says_nothing_of_whose_it_is(unreadable: str, core: ClientCore) -> None:
    core.connected()
    told(core, WELCOME)
    said(core)
    core.renew(unreadable)

    assert len(said(core)) == 1


def test_giving_up_tells_everybody(core: ClientCore) -> None:
    caller, bucket = Caller(), Bucket()
    core.ask(send("a"), caller)
    core.watch("c1", cursor=None, sink=bucket)
    core.give_up(ClientClosed())

    assert isinstance(caller.answers[0], ClientClosed)
    assert isinstance(bucket.error, ClientClosed)


def test_the_welcome_lasts_as_long_as_the_connection(core: ClientCore) -> None:
    welcome = Welcome(principal="alice", tenant="default", owner="alice", scopes=("chat",))
    core.connected()
    told(core, welcome)
    assert core.welcome == welcome
    core.disconnected()

    assert core.welcome is None


@pytest.mark.parametrize(
    "text",
    [
        '{"frame":"from.the.future","x":1}',
        '{"frame":"accepted"}',
        '{"no":"frame"}',
        '{"frame":"event","conversation":"c1","epoch":1,"event":{"type":"turn.finished"}}',
        "not json",
        "[" * 5000,
        '{"frame":"done","ref":"a","x":' + "[" * 5000 + "]" * 5000 + "}",
    ],
)
def test_frames_that_are_not_known_are_ignored_and_counted(text: str, core: ClientCore) -> None:
    core.connected()
    core.received(text)

    assert core.unreadable == 1


def test_unknown_fields_are_ignored(core: ClientCore) -> None:
    caller = Caller()
    core.connected()
    core.ask(Cancel(ref="a", conversation="c1"), caller)
    core.received('{"frame":"done","ref":"a","later":{"x":1}}')

    assert caller.answers == [Done(ref="a")]


def test_half_an_emoji_in_a_message_travels_as_an_escape(core: ClientCore) -> None:
    core.connected()
    core.ask(Send(ref="a", conversation="c1", message_id=MessageId("m1"), text="x\ud83d"), Caller())

    assert r"x\ud83d" in core.outgoing[-1]
    assert isinstance(core.outgoing[-1], str)
    assert core.outgoing[-1].encode()


def test_repr_shows_counts(core: ClientCore) -> None:
    core.ask(send("a"), Caller())

    assert repr(core) == "<ClientCore disconnected pending=1 watches=0>"


def test_an_expired_token_is_told_apart_from_one_that_was_never_good(core: ClientCore) -> None:
    core.connected()

    with pytest.raises(TokenExpired):
        told(core, ErrorFrame(code="token_expired", message="token has expired"))


def test_a_newer_token_is_told_at_once_and_to_every_connection_after(core: ClientCore) -> None:
    core.renew("before there is one")
    core.connected()
    core.renew("the newer token")
    tokens = [frame["token"] for frame in said(core)]
    core.disconnected()
    core.connected()

    assert tokens == ["before there is one", "the newer token"]
    assert [frame["token"] for frame in said(core)] == ["the newer token"]
