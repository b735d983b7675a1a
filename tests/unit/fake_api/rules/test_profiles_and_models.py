"""What one profile or one model refuses and another takes; the rules that hold everywhere are in test_judge.py."""

from typing import Any

import pytest

from tests.unit.fake_api.parts import (
    ENABLED,
    HELLO,
    RESULT,
    USE,
    assistant,
    image,
    mark,
    png,
    request,
    rounds,
    tool,
    user,
)
from torpor_fake_api.models import MODELS, ModelFacts
from torpor_fake_api.profiles import DEFAULT, LEGACY, STRICT, Profile
from torpor_fake_api.rules.judge import violations

TAKES_ENABLED, TAKES_PREFILL, NEWEST = MODELS["claude-sonnet-4-6"], MODELS["toy-4k-prefill"], MODELS["toy-4k-newest"]
SYSTEM = {"role": "system", "content": "Be brief."}
FORMAT = {
    "format": {"type": "json_schema", "schema": {"type": "object", "properties": {}, "additionalProperties": False}}
}
PREFILLED = (user(HELLO), assistant({"type": "text", "text": "The answer is"}))


def broken(body: Any, *, profile: Profile = STRICT, model: ModelFacts = TAKES_ENABLED) -> set[str]:
    return {found.rule for found in violations(body, profile=profile, model=model)}


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ("V-04", request(container="c_1")),
        ("V-04", request(tools=[tool(defer_loading=False)])),
        ("V-04", request(user(HELLO), assistant(USE | {"toolset_name": "browser"}), user(RESULT))),
        ("V-21", request(user(HELLO), user(HELLO))),
        ("V-32", request(user({"type": "container_upload", "file_id": "f"}))),
        ("V-33", request(user({"type": "search_result", "source": "s", "title": "t", "content": []}))),
        ("V-34", request(user({"type": "image", "source": {"type": "url", "url": "http://pictures/1"}}))),
        ("V-35", request(user({"type": "document", "source": {"type": "file", "file_id": "f"}}))),
        ("V-49", request(user(HELLO), assistant({"type": "web_fetch_tool_result", "tool_use_id": "x"}), user(HELLO))),
        ("V-51", request(tools=[tool(name="n" * 65)])),
        ("V-51", request(tools=[{"type": "web_search_20250305", "name": "web search", "max_uses": 3}])),
        ("V-56", request(*rounds(1), tools=None)),
        ("V-62", request(user(HELLO), assistant({"type": "redacted_thinking", "data": "x", **mark()}), user(HELLO))),
    ],
)
def test_strict_refuses_what_default_lets_pass(rule: str, body: Any) -> None:
    assert rule in broken(body)
    assert rule not in broken(body, profile=DEFAULT)


def test_default_refuses_fields_that_no_request_has() -> None:
    assert broken(request(at_us=1), profile=DEFAULT) == {"V-04"}
    assert broken(request(user(HELLO | {"seq": 1})), profile=DEFAULT) == {"V-04"}


def test_neighbours_of_one_role_are_judged_as_one_message() -> None:
    answered_in_two = request(
        user(HELLO),
        assistant(USE),
        assistant(USE | {"id": "b"}),
        user(RESULT),
        user(RESULT | {"tool_use_id": "b"}),
        {"role": "user", "content": "and then?"},
    )
    text_before_a_result = request(user(HELLO), assistant(USE), user(HELLO), user(RESULT))

    assert broken(answered_in_two, profile=DEFAULT) == set()
    assert broken(text_before_a_result, profile=DEFAULT) == {"V-42"}


def test_an_empty_message_does_not_vanish_in_its_neighbour() -> None:
    assert broken(request(user(HELLO), user(), user(HELLO)), profile=DEFAULT) == {"V-30"}


@pytest.mark.parametrize(
    ("rule", "body", "refusing", "taking"),
    [
        ("V-05", request(max_tokens=128_000), MODELS["claude-haiku-4-5"], MODELS["claude-opus-4-6"]),
        ("V-08", request(temperature=0.5), MODELS["claude-opus-4-8"], MODELS["claude-opus-4-6"]),
        ("V-08", request(top_k=5), MODELS["claude-sonnet-5"], MODELS["claude-sonnet-4-5"]),
        ("V-08", request(temperature=0.5, top_p=0.9), TAKES_ENABLED, MODELS["claude-sonnet-4-20250514"]),
        ("V-22", request(user(HELLO), SYSTEM), TAKES_ENABLED, NEWEST),
        ("V-23", request(*PREFILLED, tools=None), TAKES_ENABLED, TAKES_PREFILL),
        ("V-30", request(user(HELLO), assistant(), tools=None), TAKES_ENABLED, TAKES_PREFILL),
        ("V-60a", request(thinking=ENABLED), NEWEST, TAKES_ENABLED),
        ("V-60a", request(thinking={"type": "adaptive"}), MODELS["claude-opus-4-5"], TAKES_ENABLED),
        ("V-60a", request(thinking={"type": "disabled"}), MODELS["claude-fable-5-1"], MODELS["claude-opus-5"]),
    ],
)
def test_what_a_model_cannot_do_is_refused(rule: str, body: Any, refusing: ModelFacts, taking: ModelFacts) -> None:
    assert rule in broken(body, model=refusing)
    assert rule not in broken(body | {"max_tokens": min(body["max_tokens"], taking.max_output_tokens)}, model=taking)


@pytest.mark.parametrize(
    "messages",
    [
        (SYSTEM, user(HELLO)),
        (user(HELLO), SYSTEM, user(HELLO)),
        (user(HELLO), assistant(HELLO), SYSTEM),
        (user(HELLO), {"role": "system", "content": [image(png())]}),
    ],
)
def test_a_system_message_stands_only_where_it_may(messages: tuple[Any, ...]) -> None:
    assert "V-22" in broken(request(*messages), model=NEWEST)


def test_a_system_message_may_follow_the_hosts_own_tool() -> None:
    searching = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    body = request(user(HELLO), assistant(searching), SYSTEM, assistant(HELLO), user(HELLO))

    assert "V-22" not in broken(body, model=NEWEST)


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("V-24", {"messages": [user(HELLO), assistant({"type": "text", "text": "It is "})]}),
        ("V-24", {"tools": [tool()]}),
        ("V-54", {"output_config": FORMAT}),
        ("V-60c", {"thinking": ENABLED, "max_tokens": 1200}),
    ],
)
def test_a_prefill_excludes_some_things(rule: str, fields: dict[str, Any]) -> None:
    body = request(*PREFILLED, tools=None, max_tokens=100) | fields

    assert broken(body, model=TAKES_PREFILL) == {rule}


def test_legacy_reads_every_model_as_an_old_one() -> None:
    def legacy(body: Any) -> set[str]:
        return broken(body, profile=LEGACY, model=NEWEST)

    assert legacy(request(*PREFILLED, tools=None, max_tokens=100, temperature=0.5, top_p=0.5)) == set()
    assert legacy(request(thinking=ENABLED, max_tokens=1200)) == set()
    assert legacy(request(thinking={"type": "adaptive"}, max_tokens=100)) == {"V-60a"}
    assert legacy(request(user(HELLO), SYSTEM, max_tokens=100)) == {"V-22"}


@pytest.mark.parametrize(
    ("size", "count", "is_valid"),
    [
        ((8000, 10), 1, True),
        ((8001, 10), 1, False),
        ((2000, 2000), 21, True),
        ((2001, 10), 20, True),
        ((10, 2001), 21, False),
        ((10, 10), 100, True),
        ((10, 10), 101, False),
        ((0, 10), 1, False),
    ],
)
def test_sizes_of_images_are_judged_over_the_whole_request(size: tuple[int, int], count: int, is_valid: bool) -> None:
    body = request(user(*[image(png(*size))] * count))

    assert (broken(body) == set()) is is_valid


def test_strict_counts_documents_among_the_many_images() -> None:
    note = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "note"}}
    body = request(user(image(png(2001, 10)), *[note] * 20))

    assert (broken(body), broken(body, profile=DEFAULT)) == ({"V-34"}, set())


def test_an_image_inside_a_tool_result_is_found() -> None:
    body = request(*rounds(1, result=RESULT | {"content": [image(png(9000, 1))]}))

    [found] = violations(body, model=TAKES_ENABLED)

    assert (found.rule, found.path) == ("V-34", "messages.2.content.0.tool_result.content.0.image.source")


def test_citations_exclude_a_wanted_format() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "note"}
    cited = {"type": "document", "source": source, "citations": {"enabled": True}}

    assert broken(request(user(cited), output_config=FORMAT)) == {"V-54"}
    assert broken(request(user(cited | {"citations": {"enabled": False}}), output_config=FORMAT)) == set()


@pytest.mark.parametrize("field", ["max_tokens", "stream", "temperature", "stop_sequences", "metadata"])
def test_a_count_of_tokens_takes_no_field_of_a_reply(field: str) -> None:
    body = request(max_tokens=None)
    values = {"max_tokens": 10, "stream": True, "temperature": 1, "stop_sequences": ["."], "metadata": {}}

    assert violations(body, counts_only=True) == []
    assert [found.rule for found in violations(body | {field: values[field]}, counts_only=True)] == ["V-04"]
    assert violations(body | {"speed": "fast"}, counts_only=True, profile=DEFAULT) == []
