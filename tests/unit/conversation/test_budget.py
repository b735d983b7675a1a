"""Where the tokens of a request go, and what a profile allows."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.turns_told import plain, told
from torpor.conversation.budget import (
    PROFILES,
    SECTIONS,
    Profile,
    encoded_tokens,
    exceeded,
    head_bytes,
    input_tokens,
    next_request_tokens,
    pending_bytes,
    request_bytes,
    request_sections,
    tokens_of_bytes,
)
from torpor.conversation.state import CallState, CallStatus, ConversationState, QueuedMessage, TurnState
from torpor.conversation.view import View, preamble_of
from torpor.records.blocks import canonical, text_block, tool_result_block
from torpor.records.ids import CallId, MessageId
from torpor.records.terms import Usage, WhenBusy


@pytest.mark.parametrize(("size_bytes", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (4_000, 1_000)])
def test_a_token_is_four_bytes_rounded_up(size_bytes: int, tokens: int) -> None:
    assert tokens_of_bytes(size_bytes) == tokens


def test_a_value_is_counted_as_it_is_sent() -> None:
    system = [{"type": "text", "text": "naïve"}]
    assert encoded_tokens(system) == tokens_of_bytes(len(canonical(system)))


@pytest.mark.parametrize("value", [None, [], {}, ""])
def test_what_is_empty_is_not_sent_and_costs_nothing(value: object) -> None:
    assert encoded_tokens(value) == 0


VIEW = View().extended("user", [text_block("hello" * 20)])
FIXED = {"instructions": 30, "tools": 3, "skill_index": 0}


def turn(**fields: Any) -> TurnState:
    return TurnState(number=1, messages=(), principal="ann", **fields)


@pytest.mark.parametrize("running", [None, turn()])
def test_a_request_is_its_fixed_parts_the_history_and_what_remains(running: TurnState | None) -> None:
    history = tokens_of_bytes(VIEW.size_bytes)
    assert request_sections(FIXED, running, VIEW, budget_tokens=1_000) == {
        "instructions": 30,
        "tools": 3,
        "history": history,
        "headroom": 1_000 - 33 - history,
    }


def test_what_stands_for_folded_turns_is_a_section_of_its_own() -> None:
    sections = request_sections(FIXED, turn(), VIEW, budget_tokens=1_000, head_bytes=80)
    assert (sections["summary"], sections["history"]) == (20, tokens_of_bytes(VIEW.size_bytes - 80))
    assert sum(sections.values()) == 1_000
    folded = told(plain(1), plain(2), generation=1)
    assert head_bytes(folded) == folded.starts[0].size_bytes
    moved = msgspec.structs.replace(folded.starts[0], size_bytes=80)
    assert head_bytes(msgspec.structs.replace(folded, starts=(moved, *folded.starts[1:]))) == 80
    assert head_bytes(told(plain(1))) == 0


def test_what_a_turn_was_told_beside_its_messages_is_no_history() -> None:
    told = turn(signal_bytes=40, turn_only_bytes=20, sections={"envelope": 10, "policy_excerpts": 5, "memories": 0})
    sections = request_sections(FIXED, told, VIEW, budget_tokens=1_000)
    assert sections["history"] == tokens_of_bytes(VIEW.size_bytes - 60)
    assert (sections["envelope"], sections["policy_excerpts"]) == (10, 5)
    assert "memories" not in sections


@given(
    st.dictionaries(st.sampled_from(sum(SECTIONS.values(), ())), st.integers(0, 10_000)),
    st.integers(0, 100),
    st.integers(0, 200_000),
)
def test_sections_add_up_to_the_budget(told: dict[str, int], told_bytes: int, budget_tokens: int) -> None:
    running = turn(signal_bytes=told_bytes, sections=told)
    sections = request_sections(FIXED, running, VIEW, budget_tokens=budget_tokens)
    assert sum(sections.values()) == budget_tokens
    assert all(tokens for name, tokens in sections.items() if name != "headroom")


def test_a_request_beyond_its_budget_has_less_than_no_headroom() -> None:
    assert request_sections({"tools": 50}, None, View(), budget_tokens=20) == {"tools": 50, "headroom": -30}


def test_allotments_and_headroom_of_a_profile_are_within_its_budget() -> None:
    for profile in PROFILES.values():
        assert profile.granted_tokens <= profile.budget_tokens
    assert PROFILES["administrative"].granted_tokens == 8_000


def test_profiles_that_ship_are_those_that_the_house_promises() -> None:
    administrative = PROFILES["administrative"]
    assert {name: administrative.allotment(name) for name in (*SECTIONS, "headroom")} == {
        "fixed": 1_200,
        "conversation": 1_500,
        "workflow": 1_000,
        "policies": 2_500,
        "headroom": 1_800,
    }
    assert (administrative.budget_tokens, administrative.messages_max) == (8_000, 50)
    assert PROFILES["clinical"] == Profile()
    assert PROFILES["companion"] == Profile(exchanges_max=12)


def test_every_section_draws_on_one_allotment() -> None:
    drawn = [section for sections in SECTIONS.values() for section in sections]
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == {
        "instructions",
        "tools",
        "skill_index",
        "live_context",
        "lookback",
        "summary",
        "history",
        "workflow",
        "policy_excerpts",
        "memories",
        "envelope",
    }


PROFILE = Profile(fixed_tokens=100, conversation_tokens=50, workflow_tokens=20, policies_tokens=30, headroom_tokens=40)


@pytest.mark.parametrize(
    ("sections", "over"),
    [
        ({"headroom": 40}, ()),
        ({"instructions": 60, "tools": 40, "history": 50, "envelope": 20, "policy_excerpts": 30, "headroom": 40}, ()),
        ({"instructions": 60, "tools": 40, "skill_index": 1, "headroom": 40}, ("fixed",)),
        ({"history": 30, "memories": 21, "headroom": 40}, ("conversation",)),
        ({"workflow": 10, "envelope": 11, "policy_excerpts": 31, "headroom": 40}, ("workflow", "policies")),
        ({"headroom": 39}, ("headroom",)),
        ({}, ("headroom",)),
    ],
)
def test_allotments_that_are_exceeded_are_named(sections: dict[str, int], over: tuple[str, ...]) -> None:
    assert exceeded(sections, PROFILE) == over


def test_a_profile_without_allotments_is_exceeded_by_its_budget_alone() -> None:
    assert exceeded({"instructions": 10**6, "headroom": 0}, Profile()) == ()
    assert exceeded({"instructions": 10**6, "headroom": -1}, Profile()) == ("headroom",)


@pytest.mark.parametrize("value", [-1, 1.5, "many"])
def test_a_profile_takes_whole_numbers_of_tokens(value: object) -> None:
    with pytest.raises(msgspec.ValidationError, match="fixed_tokens"):
        msgspec.convert({"fixed_tokens": value}, Profile)


def test_a_profile_refuses_what_it_does_not_know() -> None:
    with pytest.raises(msgspec.ValidationError, match="fixed_bytes"):
        msgspec.convert({"fixed_bytes": 1}, Profile)


CACHED = Usage(input_tokens=10, cache_creation_input_tokens=200, cache_read_input_tokens=3_000, output_tokens=90)


def test_what_a_cache_had_counts_like_everything_else() -> None:
    assert input_tokens(CACHED) == 3_210


def test_the_next_request_is_what_was_counted_with_the_reply_and_an_estimate_of_what_is_new() -> None:
    before = View().extended("user", [text_block("hello")]).extended("assistant", [text_block("hi")])
    state = ConversationState(last_usage=CACHED, measured_bytes=2 + before.size_bytes, view=before)
    assert next_request_tokens(state, before.size_bytes, bytes_per_token=4.0) == 3_300
    after = before.extended("user", [text_block("x" * 400)])
    new_bytes = after.size_bytes - before.size_bytes
    assert next_request_tokens(state, after.size_bytes, bytes_per_token=4.0) == 3_300 + -(-new_bytes // 4)
    assert next_request_tokens(state, after.size_bytes, bytes_per_token=2.0) == 3_300 + -(-new_bytes // 2)


def test_what_left_the_view_or_the_preamble_is_taken_off_again() -> None:
    state = ConversationState(last_usage=Usage(input_tokens=100), measured_bytes=402)
    assert next_request_tokens(state, View().size_bytes, bytes_per_token=4.0) == 0
    larger = ConversationState(
        last_usage=Usage(input_tokens=100), measured_bytes=2, preamble=preamble_of({"a": "b" * 395})
    )
    assert next_request_tokens(larger, View().size_bytes, bytes_per_token=4.0) == 201


def test_a_host_that_counts_nothing_leaves_it_to_the_estimate() -> None:
    view = View().extended("user", [text_block("hello")])
    assert next_request_tokens(ConversationState(), view.size_bytes, bytes_per_token=4.0) == tokens_of_bytes(
        2 + view.size_bytes
    )


def test_what_enters_the_view_next_is_the_open_round_and_the_messages_that_join() -> None:
    reply, result, note, joins = text_block("so"), tool_result_block("a", "r", is_error=False), text_block("n"), "hi"
    calls = tuple(
        CallState(id=CallId(id_), name="look", arguments=msgspec.Raw(b"{}"), status=status, result=block)
        for id_, status, block in (("a", CallStatus.SETTLED, result), ("b", CallStatus.STARTED, None))
    )
    queued = tuple(
        QueuedMessage(id=MessageId(id_), principal="ann", blocks=(text_block(joins),), when_busy=WhenBusy.STEER)
        for id_ in ("m_2", "m_3")
    )
    state = ConversationState(turn=turn(reply=(reply,), calls=calls, note=(note,)), queued=queued)
    view = View().extended("user", [text_block("hi")])
    after = view.extended("assistant", [reply]).extended("user", [result, note, text_block(joins)])
    assert 0 <= pending_bytes(state, (MessageId("m_3"),)) - (after.size_bytes - view.size_bytes) <= 10
    joined = view.extended("user", [text_block(joins)])
    waits = ConversationState(turn=turn(), queued=queued)
    assert pending_bytes(waits, (MessageId("m_3"),)) >= joined.size_bytes - view.size_bytes
    assert pending_bytes(ConversationState(turn=turn()), ()) == 0
    assert pending_bytes(ConversationState(), ()) == 0


def test_a_request_is_as_long_as_its_preamble_and_its_messages() -> None:
    state = ConversationState(preamble=preamble_of({"model": "m"}))
    assert request_bytes(state, VIEW) == len(bytes(state.preamble.body)) + VIEW.size_bytes
