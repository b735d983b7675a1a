"""A reply in the history is one that every later request may repeat."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.request_rules import violations
from torpor.model.contract import ModelReply
from torpor.records.blocks import canonical, head_of
from torpor.records.terms import Usage
from torpor.turn.storable import is_blank, is_unsigned, storable, was_cut

THINKING = {"type": "thinking", "thinking": "", "signature": "c2ln"}
YES = {"type": "text", "text": " yes"}
CALL = {"type": "tool_use", "id": "a", "name": "pay", "input": {"to": "bob"}}
REMAINS_OF_A_KEY = CALL | {"input": {'"input":': 1}}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "it"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
CITATION = {"type": "web_search_result_location", "url": "u", "title": None, "encrypted_index": "i", "cited_text": "x"}
CITING = {"type": "text", "text": "so it says", "citations": [CITATION]}


def replied(*blocks: Any, stop_reason: str = "tool_use", unusable: dict[int, str] | None = None) -> ModelReply:
    return ModelReply(blocks=tuple(map(canonical, blocks)), stop_reason=stop_reason, unusable=unusable or {})


def stored(
    *blocks: Any, stop_reason: str = "tool_use", unusable: dict[int, str] | None = None
) -> tuple[list[Any], dict[str, str]]:
    """The decoded blocks of the stored reply, and what is unusable by the id that a call has now."""
    kept = storable(replied(*blocks, stop_reason=stop_reason, unusable=unusable), call="1-2-1")
    ids = {place: head_of(kept.blocks[place]).id for place in kept.unusable}
    return [msgspec.json.decode(block) for block in kept.blocks], {ids[at]: why for at, why in kept.unusable.items()}


def call(place: int, **changes: Any) -> Any:
    """The call as it is kept."""
    return CALL | {"id": f"call_1-2-1_{place}"} | changes


@pytest.mark.parametrize("blocks", [[YES], [THINKING, YES], [YES, SEARCH, FOUND, CITING]])
def test_what_is_as_it_should_be_is_kept_byte_for_byte(blocks: list[Any]) -> None:
    reply = msgspec.structs.replace(
        replied(*blocks, stop_reason="end_turn"), usage=Usage(output_tokens=3), request_id="r"
    )
    assert storable(reply, call="1-1-1") == reply


@pytest.mark.parametrize("block", [CALL, REMAINS_OF_A_KEY])
def test_a_call_is_kept_under_an_id_of_our_own(block: dict[str, Any]) -> None:
    assert stored(THINKING, block) == ([THINKING, block | {"id": "call_1-2-1_1"}], {})


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_text_that_says_nothing_is_left_out(text: str) -> None:
    blank = {"type": "text", "text": text}
    assert stored(blank, CALL) == ([call(1)], {})
    assert is_blank(head_of(canonical(blank)))


def test_thinking_that_no_host_signed_is_left_out() -> None:
    unsigned = {"type": "thinking", "thinking": "hm", "signature": ""}
    kept = storable(replied(unsigned, YES, stop_reason="end_turn"), call="1-2-1")
    assert (kept.blocks, kept.dropped) == ((canonical(YES),), ("thinking",))
    assert is_unsigned(head_of(canonical(unsigned)))
    assert not is_unsigned(head_of(canonical(THINKING)))


@pytest.mark.parametrize("stop_reason", ["max_tokens", "end_turn", "tool_use"])
def test_thinking_that_nothing_came_of_is_left_out(stop_reason: str) -> None:
    kept = storable(replied(THINKING, stop_reason=stop_reason), call="1-2-1")
    assert (kept.blocks, kept.dropped) == ((), ("thinking",))


def test_thinking_at_which_the_host_paused_is_kept_since_it_goes_on_from_there() -> None:
    assert stored(THINKING, stop_reason="pause_turn") == ([THINKING], {})


@pytest.mark.parametrize("stop_reason", ["max_tokens", "end_turn", "pause_turn", "something_new"])
def test_calls_of_a_reply_that_did_not_stop_for_them_are_left_out(stop_reason: str) -> None:
    reply = storable(replied(YES, CALL, stop_reason=stop_reason, unusable={1: "cut"}), call="1-2-1")
    assert (reply.blocks, reply.dropped, reply.unusable) == ((canonical(YES),), ("tool_use",), {})
    assert was_cut(reply)


def test_nothing_of_a_refusal_is_kept() -> None:
    reply = storable(replied(YES, CALL, stop_reason="refusal"), call="1-2-1")
    assert (reply.blocks, reply.dropped) == ((), ("text", "tool_use"))
    assert not was_cut(reply)


def test_a_reply_with_its_calls_was_not_cut() -> None:
    assert not was_cut(storable(replied(YES, CALL), call="1-2-1"))


def test_missing_arguments_are_none() -> None:
    assert stored({"type": "tool_use", "id": "a", "name": "pay"}) == ([call(0, input={})], {})


@pytest.mark.parametrize("arguments", [None, [], "{}", 3, True])
def test_arguments_that_are_no_object_become_one_and_the_call_unusable(arguments: object) -> None:
    blocks, unusable = stored(CALL | {"input": arguments})
    assert blocks == [call(0, input={})]
    shown = msgspec.json.encode(arguments).decode()
    assert unusable == {"call_1-2-1_0": f"arguments of pay are {shown}, expected a JSON object; nothing was done"}


@pytest.mark.parametrize(
    ("name", "kept"), [("bank.pay", "bank_pay"), ("", "unnamed"), ("n" * 65, "n" * 64), ("naïve tool", "na_ve_tool")]
)
def test_a_name_that_no_request_may_hold_is_changed_and_the_call_unusable(name: str, kept: str) -> None:
    blocks, unusable = stored(CALL | {"name": name})
    assert blocks == [call(0, name=kept)]
    assert unusable == {"call_1-2-1_0": f"no tool {name!r} is offered; nothing was done"}


def test_ids_given_twice_or_unfit_are_no_matter_and_the_calls_run() -> None:
    blocks, unusable = stored(CALL, CALL, CALL | {"id": ""}, CALL | {"id": "b.c"})
    assert [block["id"] for block in blocks] == [f"call_1-2-1_{place}" for place in range(4)]
    assert unusable == {}


def test_what_the_adapter_found_unusable_stays_so_under_the_new_id() -> None:
    blank = {"type": "text", "text": " "}
    twice = (CALL | {"id": ""}, CALL, CALL)
    _, unusable = stored(blank, *twice, unusable={1: "cut short", 3: "cut as well"})
    assert unusable == {"call_1-2-1_1": "cut short", "call_1-2-1_3": "cut as well"}


@pytest.mark.parametrize(
    "halves",
    [
        [SEARCH],
        [FOUND],
        [FOUND, SEARCH],
        [SEARCH, SEARCH, FOUND],
        [SEARCH, FOUND, FOUND],
        [SEARCH, FOUND | {"tool_use_id": "t"}],
        [SEARCH, FOUND | {"type": "web_fetch_tool_result"}],
        [SEARCH | {"id": ""}, FOUND | {"tool_use_id": ""}],
    ],
)
@pytest.mark.parametrize("stop_reason", ["end_turn", "pause_turn"])
def test_half_of_what_the_hosts_own_tool_did_is_left_out_and_nothing_cites_it(
    halves: list[Any], stop_reason: str
) -> None:
    kept = storable(replied(YES, *halves, CITING, stop_reason=stop_reason), call="1-2-1")
    assert [msgspec.json.decode(block) for block in kept.blocks] == [YES, {"type": "text", "text": "so it says"}]
    assert kept.dropped == tuple(half["type"] for half in halves)


JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3), st.lists, max_leaves=4)
CALLS = st.fixed_dictionaries(
    {"type": st.just("tool_use"), "id": st.sampled_from(["a", "b", "", "c.d"]), "name": st.text(max_size=70)},
    optional={"input": JSON | st.dictionaries(st.text(max_size=3), JSON, max_size=2)},
)
TEXTS = st.fixed_dictionaries({"type": st.just("text"), "text": st.text(" \na", max_size=3)})
THOUGHTS = st.fixed_dictionaries(
    {"type": st.just("thinking"), "thinking": st.just("hm"), "signature": st.sampled_from(["", "c2ln"])}
)
STOPS = st.sampled_from(["tool_use", "end_turn", "max_tokens", "refusal", "something_new"])


@given(st.lists(CALLS | TEXTS | THOUGHTS, max_size=4), STOPS)
def test_whatever_the_host_sends_a_request_with_it_is_valid(blocks: list[dict[str, Any]], stop_reason: str) -> None:
    kept, _ = stored(*blocks, stop_reason=stop_reason)
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": ""}
        for block in kept
        if block["type"] == "tool_use"
    ]
    hello = {"type": "text", "text": "hello"}
    messages = [{"role": "user", "content": [hello]}, {"role": "user", "content": [*results, hello]}]
    if kept:
        messages.insert(1, {"role": "assistant", "content": kept})
    tools = [{"name": "pay", "input_schema": {"type": "object"}}]
    body = {"model": "m", "max_tokens": 1, "tools": tools, "messages": messages if kept else messages[:1]}
    assert violations(body) == []
