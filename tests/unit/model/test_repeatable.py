"""What of a block a later request may repeat, and nothing else of it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.request_rules import violations
from torpor.model.contract import ModelReply
from torpor.model.repeatable import repeatable, uncited
from torpor.records.blocks import canonical
from torpor.turn.storable import storable

SEARCH: dict[str, Any] = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "it"}}
FOUND: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
CITATION: dict[str, Any] = {"type": "char_location", "cited_text": "x", "document_index": 0, "document_title": None}
CITATION |= {"start_char_index": 0, "end_char_index": 1}
REPEATABLE: list[dict[str, Any]] = [
    {"type": "text", "text": "yes"},
    {"type": "text", "text": "yes", "citations": [CITATION]},
    {"type": "thinking", "thinking": "", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "eA=="},
    {"type": "tool_use", "id": "a", "name": "pay", "input": {"to": "bob"}},
    {"type": "tool_use", "id": "a", "name": "pay", "input": {}, "caller": {"type": "direct"}},
    SEARCH,
    FOUND,
    FOUND | {"content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}},
]


def kept(fields: dict[str, Any]) -> Any:
    block = repeatable(fields)
    return None if block is None else msgspec.json.decode(block)


@pytest.mark.parametrize("block", REPEATABLE)
def test_what_requests_take_is_kept_as_it_came_and_nothing_beside_it(block: dict[str, Any]) -> None:
    assert repeatable(block) == canonical(block)
    assert kept(block | {"novelty": {"a": 1}, "cache_control": {"type": "ephemeral"}}) == block


@pytest.mark.parametrize(
    "block",
    [
        {},
        {"type": None},
        {"type": 5},
        {"type": "scent"},
        {"type": "_tool_use"},
        {"type": "mystery_tool_use", "id": "x", "name": "n", "input": {}},
        {"type": "container_upload", "file_id": "f"},
        {"type": "redacted_thinking"},
        {"type": "redacted_thinking", "data": None},
        {"type": "redacted_thinking", "data": ""},
        SEARCH | {"name": "mystery"},
        SEARCH | {"input": None},
        FOUND | {"content": "text"},
        FOUND | {"type": "mystery_tool_result"},
        FOUND | {"content": msgspec.json.decode("[" * 65 + "]" * 65)},
    ],
)
def test_what_no_request_takes_is_no_block(block: dict[str, Any]) -> None:
    assert repeatable(block) is None


@pytest.mark.parametrize(
    "caller", [None, {"type": "code_execution_20250825", "tool_id": "s"}, {"type": "direct", "x": 1}]
)
def test_a_caller_that_may_not_be_there_any_more_is_not_named(caller: object) -> None:
    call = {"type": "tool_use", "id": "a", "name": "pay", "input": {}}
    assert kept(call | {"caller": caller}) == call


def test_a_call_without_an_id_a_name_or_arguments_is_kept_to_be_answered() -> None:
    assert kept({"type": "tool_use", "id": 3, "name": None}) == {"type": "tool_use", "id": "", "name": ""}


@pytest.mark.parametrize(
    "citation",
    [
        None,
        "x",
        {"type": "scent"},
        {},
        {name: value for name, value in CITATION.items() if name != "end_char_index"},
        CITATION | {"end_char_index": None},
        CITATION | {"document_index": True},
        CITATION | {"cited_text": 5},
    ],
)
def test_a_citation_that_is_not_whole_is_left_out(citation: object) -> None:
    block = {"type": "text", "text": "yes", "citations": [citation, CITATION | {"file_id": "f"}, citation]}
    assert kept(block) == {"type": "text", "text": "yes", "citations": [CITATION]}
    assert kept(block | {"citations": [citation]}) == {"type": "text", "text": "yes"}


def test_text_is_cleaned() -> None:
    assert kept({"type": "text", "text": "a\0b"}) == {"type": "text", "text": "a\N{SYMBOL FOR NULL}b"}


def test_text_without_citations_is_text_alone() -> None:
    assert uncited(canonical(REPEATABLE[1])) == canonical(REPEATABLE[0])
    assert uncited(canonical(SEARCH)) == canonical(SEARCH)


ODD: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3) | st.just({}) | st.just([])
)
FIELDS = st.sampled_from(["id", "name", "input", "data", "thinking", "tool_use_id", "content", "citations", "novelty"])
TYPES = st.sampled_from(
    ["text", "tool_use", "redacted_thinking", "server_tool_use", "web_search_tool_result", "x_tool_use"]
)


@given(
    st.lists(
        st.sampled_from(REPEATABLE)
        | st.dictionaries(FIELDS, ODD, max_size=4).flatmap(
            lambda fields: TYPES.map(lambda type_: {**fields, "type": type_, "signature": "", "text": "yes"})
        ),
        max_size=5,
    ),
    st.sampled_from(["tool_use", "end_turn", "pause_turn", "max_tokens"]),
)
def test_whatever_a_host_sends_a_request_with_what_is_kept_is_valid(blocks: list[Any], stop_reason: str) -> None:
    found = tuple(block for fields in blocks if (block := repeatable(fields)) is not None)
    reply = storable(ModelReply(blocks=found, stop_reason=stop_reason), call="1-1-1")
    said = [msgspec.json.decode(block) for block in reply.blocks]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "done"}
        for block in said
        if block["type"] == "tool_use"
    ]
    question = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    answered = [{"role": "assistant", "content": said}, {"role": "user", "content": [*results, *question["content"]]}]
    tools = [{"name": "pay", "input_schema": {"type": "object"}}]
    body = {"model": "m", "max_tokens": 1, "tools": tools, "messages": [question, *(answered if said else ())]}
    assert violations(body) == []
