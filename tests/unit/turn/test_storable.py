"""A reply in the history is one that every later request may repeat."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.request_rules import violations
from torpor.model.contract import ModelReply
from torpor.records.blocks import Block, canonical, head_of, text_block
from torpor.records.journal import Usage
from torpor.turn.storable import is_blank, storable

THINKING = canonical({"type": "thinking", "thinking": "", "signature": "c2ln"})
CALL = {"type": "tool_use", "id": "a", "name": "pay", "input": {"to": "bob"}}
REMAINS_OF_A_KEY = {"type": "tool_use", "id": "a", "name": "pay", "input": {'"input":': 1}}


def stored(*blocks: Any, unusable: dict[str, str] | None = None) -> tuple[list[Any], dict[str, str]]:
    """The decoded blocks of the stored reply, and what is unusable."""
    reply = ModelReply(blocks=tuple(map(canonical, blocks)), stop_reason="tool_use", unusable=unusable or {})
    kept = storable(reply, call="1-2-1")
    return [msgspec.json.decode(block) for block in kept.blocks], dict(kept.unusable)


@pytest.mark.parametrize("block", [THINKING, text_block(" yes"), canonical(CALL), canonical(REMAINS_OF_A_KEY)])
def test_a_block_as_it_should_be_is_kept_byte_for_byte(block: Block) -> None:
    reply = ModelReply(blocks=(block,), stop_reason="end_turn", usage=Usage(output_tokens=3), request_id="r")
    assert storable(reply, call="1-1-1") == reply


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_text_that_says_nothing_is_left_out(text: str) -> None:
    blank = canonical({"type": "text", "text": text})
    assert stored(msgspec.json.decode(blank), CALL) == ([CALL], {})
    assert is_blank(head_of(blank))


def test_missing_arguments_are_none() -> None:
    assert stored({"type": "tool_use", "id": "a", "name": "pay"}) == ([CALL | {"input": {}}], {})


@pytest.mark.parametrize("arguments", [None, [], "{}", 3, True])
def test_arguments_that_are_no_object_become_one_and_the_call_unusable(arguments: object) -> None:
    blocks, unusable = stored(CALL | {"input": arguments})
    assert blocks == [CALL | {"input": {}}]
    shown = msgspec.json.encode(arguments).decode()
    assert unusable == {"a": f"arguments of pay are {shown}, expected a JSON object; nothing was done"}


@pytest.mark.parametrize(
    ("name", "kept"), [("bank.pay", "bank_pay"), ("", "unnamed"), ("n" * 65, "n" * 64), ("naïve tool", "na_ve_tool")]
)
def test_a_name_that_no_request_may_hold_is_changed_and_the_call_unusable(name: str, kept: str) -> None:
    blocks, unusable = stored(CALL | {"name": name})
    assert blocks == [CALL | {"name": kept}]
    assert unusable == {"a": f"no tool {name!r} is offered; nothing was done"}


def test_an_id_given_twice_or_unusable_is_replaced_and_the_call_runs() -> None:
    blocks, unusable = stored(CALL, CALL, CALL | {"id": ""}, CALL | {"id": "b.c"})
    assert [block["id"] for block in blocks] == ["a", "1-2-1-1", "1-2-1-2", "1-2-1-3"]
    assert unusable == {}


def test_what_the_adapter_found_unusable_stays_so_under_a_new_id() -> None:
    blocks, unusable = stored(
        CALL | {"id": "b"}, CALL | {"id": "c.d"}, unusable={"b": "cut short", "c.d": "cut as well"}
    )
    assert unusable == {"b": "cut short", "1-2-1-1": "cut as well"}
    assert [block["id"] for block in blocks] == ["b", "1-2-1-1"]


JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3), st.lists, max_leaves=4)
CALLS = st.fixed_dictionaries(
    {"type": st.just("tool_use"), "id": st.sampled_from(["a", "b", "", "c.d"]), "name": st.text(max_size=70)},
    optional={"input": JSON | st.dictionaries(st.text(max_size=3), JSON, max_size=2)},
)
TEXTS = st.fixed_dictionaries({"type": st.just("text"), "text": st.text(" \na", max_size=3)})


@given(st.lists(CALLS | TEXTS, max_size=4))
def test_whatever_the_host_sends_a_request_with_it_is_valid(blocks: list[dict[str, Any]]) -> None:
    kept, _ = stored(*blocks)
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
