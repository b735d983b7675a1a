import msgspec
import pytest

from tests.support.gateway_line import principal
from torpor.errors import BadFrame, Busy, UnknownConversation
from torpor.gateway.wire import decode, error_frame, journal_named, key_named, unreadable_frame
from torpor.records.frames import Ack, Cursor, Hello, Send, Subscribe, Subscription
from torpor.records.ids import ConversationKey, MessageId


def test_a_frame_is_decoded_and_unknown_fields_are_ignored() -> None:
    assert decode('{"frame":"ack","conversation":"c1","event":3,"later":true}') == Ack(conversation="c1", event=3)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "truncated"),
        ("not json", "malformed"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "missing required field `frame`"),
        ('{"frame":"dance"}', "Invalid value 'dance', expected one of 'ack', 'archive', 'bundle', 'cancel', "),
        ('{"frame":5}', "Expected `str`"),
        ('{"frame":"welcome","principal":"a","tenant":"b","owner":"c","scopes":[]}', "Invalid value 'welcome'"),
        ('{"frame":"send","conversation":"c1"}', "missing required field `message_id`"),
        ('{"frame":"ack","conversation":"c1","event":"3"}', r"Expected `int`, got `str` - at `\$.event`"),
        ('{"frame":"ack","conversation":"c1","event":1} {}', "malformed"),
        (
            '{"frame":"send","conversation":"c1","message_id":"m","text":"a","when_busy":"later"}',
            "'later', expected one of 'interrupt', 'queue', 'reject', 'steer'",
        ),
        ('{"frame":"ack","conversation":"c1","event":' + "9" * 5_000 + "}", "out of range"),
        ('{"frame":"hello","x":' + "[" * 5_000 + "]" * 5_000 + "}", "nested too deeply"),
        (r'{"frame":"dance","x":"\ud83d"}', "dance"),
        (r'{"frame":"ack","conversation":"c1","event":"\ud83d"}', "cannot be read"),
        (r'{"frame":"hello","ref":"\ud83d","x":' + "[" * 50_000 + "]" * 50_000 + "}", "nested too deeply"),
        (r'{"frame":"hello","ref":"\ud83d"', "cannot be read"),
        ('{"frame":"hello","ref":"\ud83d"}x', "cannot be read"),
    ],
)
def test_what_is_no_frame_is_refused_with_the_place(text: str, complaint: str) -> None:
    with pytest.raises(BadFrame, match=complaint) as refusal:
        decode(text)

    assert str(refusal.value).encode()


@pytest.mark.parametrize("half", [r"\ud83d", r"\uD83D", r"\ude00", "\ud83d"])
def test_half_an_emoji_costs_neither_the_frame_nor_its_other_fields(half: str) -> None:
    frame = decode(
        '{"frame":"send","conversation":"c1","message_id":"m1","text":"a'
        + half
        + 'b","agent":"'
        + half
        + '","ref":"r'
        + half
        + '"}'
    )

    assert isinstance(frame, Send)
    assert (frame.text[0], frame.text[-1], len(frame.text)) == ("a", "b", 3)
    assert (frame.agent, frame.ref) == ("\ufffd", "r\ufffd")


def test_half_an_emoji_in_another_frame_is_tolerated() -> None:
    assert decode(r'{"frame":"hello","ref":"r\ud83d"}') == Hello(ref="r\ufffd")


@pytest.mark.parametrize("number", [2**53, 2**63 - 1, 10**30, -1])
@pytest.mark.parametrize(
    "frame",
    [
        '{"frame":"fetch","ref":"r","conversation":"c","blob":"b","offset":%d}',
        '{"frame":"upload.piece","ref":"r","upload":"u","offset":%d}',
        '{"frame":"upload.begin","ref":"r","upload":"u","name":"n","sha256":"s","size_bytes":%d}',
    ],
)
def test_a_place_that_no_file_has_is_refused_before_anything_is_looked_up(frame: str, number: int) -> None:
    with pytest.raises(BadFrame, match=r"(?i)int"):
        decode(frame % number)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("c1", ("clinic", "alice", "c1")),
        ("alice/c1", ("clinic", "alice", "c1")),
        ("clinic/alice/c1", ("clinic", "alice", "c1")),
    ],
)
def test_a_name_is_an_id_of_ones_own_or_a_path_to_it(name: str, expected: tuple[str, str, str]) -> None:
    assert key_named(name, by=principal("alice", tenant="clinic")) == ConversationKey(*expected)


@pytest.mark.parametrize("name", ["bob/c1", "other/alice/c1", "clinic/Alice/c1", "clinic/alice2/c1"])
def test_a_path_to_somebody_else_is_unknown_but_to_an_operator(name: str) -> None:
    with pytest.raises(UnknownConversation):
        key_named(name, by=principal("alice", tenant="clinic"))

    operator = principal("alice", tenant="clinic", scopes=("operator",))
    assert key_named(name, by=operator).path.endswith(name)


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("c1", ConversationKey("clinic", "alice", "c1")),
        ("bob/c1", ConversationKey("clinic", "bob", "c1")),
        ("other/bob/c1", ConversationKey("other", "bob", "c1")),
        ("other/bob/c1/x", ConversationKey("other", "bob", "c1").child("x")),
        ("other/bob/c1/x/y", ConversationKey("other", "bob", "c1").child("x").child("y")),
    ],
)
def test_an_operator_names_the_journal_of_a_sub_agent_by_its_whole_path(path: str, key: ConversationKey) -> None:
    operator = principal("alice", tenant="clinic", scopes=("operator",))

    assert journal_named(path, by=operator) == key


@pytest.mark.parametrize("path", ["a/b/c1/", "a/b/c1//x", "a/b/c1/..", "a/b/c1/x\n", f"a/b/c1/{'x' * 65}"])
def test_what_is_no_name_of_a_sub_agent_is_refused(path: str) -> None:
    with pytest.raises(BadFrame, match="not a name"):
        journal_named(path, by=principal("alice", scopes=("operator",)))


@pytest.mark.parametrize(
    "name",
    ["", "/", "c 1", "c1/", "/c1", "a/b/c/d", "..", "ü", "c" * 65, "c1\n", "a b/c1", "\ud800/c1", "\ud800", "a//c1"],
)
def test_what_is_no_name_is_refused_and_can_be_sent_back(name: str) -> None:
    with pytest.raises(BadFrame, match="not a name") as refusal:
        key_named(name, by=principal("alice", scopes=("operator",)))

    assert str(refusal.value).encode()


def test_an_error_names_the_request_it_answers() -> None:
    busy = Busy("mailbox", waiting=64, bound="actor.mailbox_capacity", retry_after_s=0.5)
    send = Send(ref="r1", conversation="c1", message_id=MessageId("m1"), text="hello")

    frame = error_frame(busy, of=send)

    assert (frame.code, frame.ref, frame.conversation, frame.message_id) == ("busy", "r1", "c1", "m1")
    assert frame.retry_after_s == 0.5
    assert "64 waiting" in frame.message
    assert "an operator may raise actor.mailbox_capacity" in frame.message


def test_an_error_of_a_subscription_names_the_conversation() -> None:
    subscribe = Subscribe(subscription=Subscription(conversation="c1", cursor=Cursor(event=3)))

    assert error_frame(BadFrame("no"), of=subscribe).conversation == "c1"


def test_a_fault_of_the_server_tells_nothing_of_itself() -> None:
    frame = error_frame(None, of=Hello(ref="r1"))

    assert (frame.code, frame.ref) == ("internal", "r1")


def test_an_error_can_be_encoded_whatever_the_client_called_things() -> None:
    send = Send(conversation="c\ud83d", message_id=MessageId("m\ud83d"), text="hello")

    assert msgspec.json.encode(error_frame(BadFrame("no"), of=send))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"frame":"dance","ref":"r1","conversation":"c1","message_id":"m1"}', ("r1", "c1", "m1")),
        ('{"frame":"dance","ref":7}', ("", "", "")),
        ("not json", ("", "", "")),
        ("\ud83d", ("", "", "")),
        ("[" * 5_000, ("", "", "")),
    ],
)
def test_a_frame_that_cannot_be_read_is_answered_under_its_names(text: str, names: tuple[str, str, str]) -> None:
    frame = unreadable_frame(text, BadFrame("no"))

    assert (frame.ref, frame.conversation, frame.message_id) == names


@pytest.mark.parametrize(
    ("context", "told"),
    [
        ('{"recrod":{"type":"case","id":"7"}}', "context has an unknown field 'recrod', expected of record, screen"),
        ('{"record":{"type":"case","id":"7","txt":"x"}}', "context.record has an unknown field 'txt'"),
        ('{"actions":[{"text":"x"},{"text":"y","lable":"z"}]}', r"context.actions\[1\] has an unknown field 'lable'"),
        ('{"screen":{"text":"\\ud83d","lable":"z"}}', "context.screen has an unknown field 'lable'"),
    ],
)
def test_a_misspelt_part_of_a_context_is_refused(context: str, told: str) -> None:
    with pytest.raises(BadFrame, match=told):
        decode(f'{{"frame":"context.update","ref":"r","conversation":"c1","context":{context}}}')


@pytest.mark.parametrize(
    "text",
    [
        r'{"frame":"send","ref":"7","conversation":"c1","message_id":"m1","text":"\ud83d","lookback":99}',
        '{"frame":"send","ref":"7","conversation":"c1","message_id":"m1","text":"\ud83d","lookback":99}',
    ],
)
def test_half_an_emoji_in_what_is_no_frame_leaves_the_answer_its_names(text: str) -> None:
    frame = unreadable_frame(text, BadFrame("no"))

    assert (frame.ref, frame.conversation, frame.message_id) == ("7", "c1", "m1")


def test_a_name_of_the_wrong_kind_leaves_the_answer_the_others() -> None:
    frame = unreadable_frame('{"frame":"send","ref":"7","conversation":5,"message_id":null}', BadFrame("no"))

    assert (frame.ref, frame.conversation, frame.message_id) == ("7", "", "")


def test_half_an_emoji_in_the_names_of_what_is_no_frame_is_replaced() -> None:
    frame = unreadable_frame(r'{"frame":"dance","ref":"\ud83d","conversation":"c\ud83d"}', BadFrame("no"))

    assert msgspec.json.encode(frame)
    assert (frame.ref, frame.conversation) == ("\N{REPLACEMENT CHARACTER}", "c\N{REPLACEMENT CHARACTER}")
