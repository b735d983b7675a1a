"""The bytes that go out: what is stored, and what belongs to sending alone."""

import json
from typing import Any

import pytest

from tests.support.request_rules import violations
from torpor.conversation.view import FALLBACK, Preamble, Role, View, preamble_of, request_body
from torpor.model.anthropic_wire import PREPARED_MAX, WireRequests
from torpor.records.blocks import canonical, text_block, tool_result_block

FIELDS: dict[str, Any] = {
    "model": "m",
    "max_tokens": 10,
    "system": [{"type": "text", "text": "You are a clerk."}],
    "tools": [{"name": "pay", "description": "Pays.", "input_schema": {"type": "object"}}],
}
PREAMBLE = preamble_of(FIELDS)
MARK = {"type": "ephemeral"}
HI = View().extended("user", [text_block('one "}], two')])


def sent(preamble: Preamble, view: View, *, ttl: str = "5m", model: str = "") -> Any:
    return json.loads(WireRequests(cache_ttl=ttl).body(preamble, view, model=model))


def without_marks(body: Any) -> Any:
    body.pop("stream")
    for block in (*body.get("system", []), *(block for message in body["messages"] for block in message["content"])):
        block.pop("cache_control", None)
    return body


@pytest.mark.parametrize(
    "view",
    [
        HI,
        HI.extended("assistant", [text_block("yes")]).extended("user", [text_block("and?")]),
        HI.extended("assistant", [canonical({"type": "tool_use", "id": "a", "name": "pay", "input": {}})]).extended(
            "user", [tool_result_block("a", "paid", is_error=False)]
        ),
        HI.extended("assistant", [text_block("paused")]),
        HI.extended("assistant", [text_block("paused")]).extended("user", [text_block("go on")]).packed(),
    ],
)
@pytest.mark.parametrize("ttl", ["5m", "1h", "off"])
def test_what_goes_out_is_what_is_stored_but_for_stream_and_marks(view: View, ttl: str) -> None:
    body = sent(PREAMBLE, view, ttl=ttl)
    assert body["stream"] is True
    assert violations(body, after_pause=True) == []
    assert without_marks(body) == json.loads(request_body(PREAMBLE, view))


def test_the_end_of_the_system_prompt_and_of_the_messages_are_marked() -> None:
    body = sent(PREAMBLE, HI)
    assert body["system"][-1]["cache_control"] == MARK
    assert body["messages"][-1]["content"][-1]["cache_control"] == MARK
    assert json.dumps(body).count("cache_control") == 2


def test_marks_may_ask_for_an_hour_or_be_left_out() -> None:
    assert sent(PREAMBLE, HI, ttl="1h")["system"][-1]["cache_control"] == MARK | {"ttl": "1h"}
    assert "cache_control" not in json.dumps(sent(PREAMBLE, HI, ttl="off"))


def marked(view: View, *lasting: int) -> list[tuple[int, int]]:
    """Message and block of each mark."""
    body = json.loads(WireRequests(cache_ttl="5m").body(PREAMBLE, view, lasting=lasting))
    assert without_marks(json.loads(json.dumps(body))) == json.loads(request_body(PREAMBLE, view))
    return [
        (at, block)
        for at, message in enumerate(body["messages"])
        for block, content in enumerate(message["content"])
        if "cache_control" in content
    ]


def test_the_end_of_the_request_before_is_marked_beside_the_end_of_this_one() -> None:
    calls = [canonical({"type": "tool_use", "id": f"t{number}", "name": "pay", "input": {}}) for number in range(30)]
    results = [tool_result_block(f"t{number}", "paid", is_error=False) for number in range(30)]
    first = HI.extended("user", [text_block("now")])
    second = first.extended("assistant", calls).extended("user", results)
    third = second.extended("assistant", calls).extended("user", [*results, text_block("hurry")])
    assert [marked(view) for view in (first, second, third)] == [
        [(0, 1)],
        [(0, 1), (2, 29)],
        [(2, 29), (4, 30)],
    ]


@pytest.mark.parametrize("is_packed", [False, True])
def test_what_stands_before_the_parts_of_one_turn_alone_is_marked_in_it_and_in_the_next(is_packed: bool) -> None:
    def asked(view: View) -> View:
        return view.extended("user", [text_block("recalled for this turn")])

    def round_(view: View) -> View:
        call = canonical({"type": "tool_use", "id": f"t{view.blocks}", "name": "pay", "input": {}})
        result = tool_result_block(f"t{view.blocks}", "paid", is_error=False)
        return view.extended("assistant", [call]).extended("user", [result])

    first = HI.size_bytes
    assert marked(asked(HI), 0, first) == [(0, 0), (0, 1)]
    assert marked(round_(asked(HI)), 0, first) == [(0, 0), (0, 1), (2, 0)]
    assert marked(round_(round_(asked(HI))), 0, first) == [(0, 0), (2, 0), (4, 0)]

    left = round_(HI).extended("assistant", [text_block("done")])
    kept = (left.packed() if is_packed else left).extended("user", [text_block("more")])
    second = kept.size_bytes
    assert marked(asked(kept), first, second) == [(0, 0), (4, 0), (4, 1)]
    assert marked(round_(asked(kept)), first, second) == [(4, 0), (4, 1), (6, 0)]
    assert marked(kept, first, 0) == ([(0, 0), (4, 0)] if is_packed else [(0, 0), (2, 0), (4, 0)])


def test_results_without_text_are_not_marked() -> None:
    calls = [canonical({"type": "tool_use", "id": f"t{number}", "name": "pay", "input": {}}) for number in range(3)]
    texts = ("paid", "", "")
    results = [tool_result_block(f"t{number}", text, is_error=False) for number, text in enumerate(texts)]
    view = HI.extended("assistant", calls).extended("user", results)
    assert marked(view) == [(0, 0), (2, 0)]
    silent = view.extended("assistant", calls[:1]).extended("user", [tool_result_block("t0", "", is_error=False)])
    assert marked(silent) == [(2, 0)]
    assert marked(silent.extended("assistant", [text_block("and")]).extended("user", [text_block("so?")])) == [(6, 0)]


def test_what_the_assistant_said_is_never_marked() -> None:
    paused = HI.extended("assistant", [text_block("paused")])
    assert marked(paused) == [(0, 0)]
    assert marked(paused.extended("assistant", [text_block("and again")])) == [(0, 0)]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_ends_inside_a_packed_history_are_not_marked(role: Role) -> None:
    packed = HI.extended("assistant", [text_block("yes")]).extended(role, [text_block("and")]).packed()
    assert packed.length == 1
    assert marked(packed.extended("user", [text_block("more")])) == [(2, 1 if role == "user" else 0)]


def test_what_only_looks_like_the_end_of_a_message_is_not_marked() -> None:
    nested = {"list": [{"content": ["a"], "role": "user"}, {"content": ["b"], "role": "user"}]}
    call = canonical({"type": "tool_use", "id": "a", "name": "pay", "input": nested})
    view = HI.extended("assistant", [call]).extended("user", [tool_result_block("a", "],", is_error=False)])
    assert marked(view.packed()) == [(2, 0)]
    assert marked(view) == [(0, 0), (2, 0)]
    assert without_marks(sent(PREAMBLE, view)) == json.loads(request_body(PREAMBLE, view))


def test_without_a_system_prompt_the_messages_alone_are_marked() -> None:
    bare = preamble_of({name: value for name, value in FIELDS.items() if name != "system"})
    assert json.dumps(sent(bare, HI)).count("cache_control") == 1


def test_another_model_may_be_asked() -> None:
    wire = WireRequests(cache_ttl="5m")
    models = [json.loads(wire.body(PREAMBLE, HI, model=model))["model"] for model in ("", "other", "")]
    assert models == ["m", "other", "m"]


def test_the_fallback_is_asked_with_what_the_preamble_says_of_it() -> None:
    thoughtful = preamble_of(
        FIELDS | {"thinking": {"type": "adaptive"}, FALLBACK: {"model": "other", "thinking": None}}
    )
    first, second = (sent(thoughtful, HI, model=model) for model in ("", "other"))
    assert first == sent(preamble_of(FIELDS | {"thinking": {"type": "adaptive"}}), HI)
    assert second == sent(PREAMBLE, HI, model="other")


def test_a_preamble_is_prepared_once_and_only_so_many_are_kept() -> None:
    wire = WireRequests(cache_ttl="5m")
    for number in range(PREPARED_MAX + 5):
        wire.body(preamble_of(FIELDS | {"max_tokens": number + 1}), HI)
    assert len(wire._prepared) == PREPARED_MAX
    assert wire.body(PREAMBLE, HI) == wire.body(PREAMBLE, HI)
