"""The ways to misbehave, laid over a reply."""

import msgspec
import pytest

from torpor_fake_api.scripting import faults
from torpor_fake_api.scripting.catalogue import CATALOGUE, every, misbehave
from torpor_fake_api.scripting.positions import position
from torpor_fake_api.scripting.replies import Raw, Text, ToolUse, says

CALL = ToolUse("look_up", {"what": "the weather"}, id="toolu_1")
OVER = says("One two three.", CALL)


@pytest.mark.parametrize(("name", "at"), every())
def test_every_way_changes_the_reply_at_every_position(name: str, at: str) -> None:
    assert misbehave(name, at=at, over=OVER) != OVER
    if at:
        position(at)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_way_has_a_default_position_and_reply(name: str) -> None:
    assert misbehave(name) == misbehave(name, at=CATALOGUE[name].positions[0])


def test_a_fault_is_laid_over_the_reply_at_its_position() -> None:
    reply = misbehave("cut", at="after_deltas:2", over=OVER)

    assert reply == msgspec.structs.replace(OVER, fault=faults.Cut(at="after_deltas:2"))


def test_an_unknown_way_is_an_error() -> None:
    with pytest.raises(KeyError):
        misbehave("sing")


@pytest.mark.parametrize(
    ("name", "spelling"),
    [("rate_limited", "seconds"), ("rate_limited_date", "date"), ("rate_limited_ms", "ms")],
)
def test_a_rate_limit_tells_when_to_come_back(name: str, spelling: str) -> None:
    fault = misbehave(name).fault

    assert isinstance(fault, faults.HttpError)
    assert (fault.status, fault.retry_after_as) == (429, spelling)
    assert fault.retry_after_s


@pytest.mark.parametrize(("at", "said"), [("after_deltas:1", "One "), ("after_deltas:2", "One two ")])
def test_a_refusal_keeps_what_was_said_before(at: str, said: str) -> None:
    reply = misbehave("refusal_after_text", at=at, over=OVER)

    [block] = reply.content
    assert isinstance(block, Text)
    assert ("".join(block.pieces), reply.stop_reason) == (said, "refusal")


def test_a_refusal_at_once_says_nothing() -> None:
    reply = misbehave("refusal", over=OVER)

    assert (reply.content, reply.stop_reason) == ((), "refusal")
    assert reply.stop_details


def test_tokens_that_end_in_a_call_leave_it_unfinished() -> None:
    reply = misbehave("max_tokens_in_call", over=OVER)

    [text, call] = reply.content
    assert text == Text("One two three.")
    assert isinstance(call, ToolUse)
    assert '{"what":"the weather"}'.startswith("".join(call.pieces))
    assert reply.stop_reason == "max_tokens"


@pytest.mark.parametrize(
    ("name", "json"),
    [("call_with_list", '["a", "b"]'), ("call_with_null", "null"), ("call_with_bad_json", '{"what": 1]x')],
)
def test_a_broken_call_takes_the_place_of_the_call(name: str, json: str) -> None:
    reply = misbehave(name, over=OVER)

    assert reply.content == (Text("One two three."), msgspec.structs.replace(CALL, json=json))
    assert reply.stop_reason == "tool_use"


def test_a_reply_without_a_call_gets_one_that_is_broken() -> None:
    [_, call] = misbehave("illegal_tool_name").content

    assert isinstance(call, ToolUse)
    assert call.name == "look.up/now"


def test_two_calls_of_one_reply_share_an_id() -> None:
    calls = [block for block in misbehave("duplicate_tool_ids", over=OVER).content if isinstance(block, ToolUse)]

    assert [call.id for call in calls] == ["toolu_twice", "toolu_twice"]


def test_an_unknown_block_comes_before_the_others() -> None:
    assert isinstance(misbehave("unknown_block", over=OVER).content[0], Raw)
