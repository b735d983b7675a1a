"""One valid and one invalid request for each rule."""

import base64
from typing import Any

import pytest

from tests.unit.fake_api.parts import (
    ENABLED,
    FOUND,
    HELLO,
    PNG,
    RESULT,
    SEARCH,
    THINKING,
    USE,
    assistant,
    image,
    mark,
    request,
    rounds,
    schema,
    tool,
    user,
)
from torpor_fake_api.rules import envelope, order, pictures
from torpor_fake_api.rules.judge import rules_broken, violations

VALID = {
    "V-01": request(user({"type": "text", "text": "\U0001f600 \u0000"})),
    "V-03": request(),
    "V-04": request(stop_sequences=["."], metadata={"user_id": "u"}, stream=True),
    "V-05": request(max_tokens=1),
    "V-06": request(max_tokens=0, thinking={"type": "adaptive"}, tool_choice={"type": "auto"}),
    "V-07": request({"role": "user", "content": "hello"}),
    "V-08": request(temperature=0),
    "V-09": request(stop_sequences=["\n."]),
    "V-10": request(system="Be brief."),
    "V-20": request(user(HELLO)),
    "V-21": request(user(HELLO), assistant(HELLO), user(HELLO)),
    "V-22": request(user(HELLO, HELLO)),
    "V-23": request(*rounds(1)),
    "V-30": request(user(HELLO), assistant(HELLO), user(HELLO)),
    "V-31": request(*rounds(1, result=RESULT | {"content": [HELLO]})),
    "V-32": request(user(HELLO, image(PNG)), assistant(THINKING, HELLO, USE), user(RESULT, image(PNG))),
    "V-33": request(user(HELLO), assistant({"type": "redacted_thinking", "data": "x"}), user(HELLO)),
    "V-34": request(user(image(PNG))),
    "V-35": request(
        user(
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "note"}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
        )
    ),
    "V-36": request(user(image(base64.b64encode(b"GIF89a\x10\x00\x10\x00").decode(), "image/gif"))),
    "V-40": request(user(HELLO), assistant(USE, USE | {"id": "b"}), user(RESULT | {"tool_use_id": "b"}, RESULT)),
    "V-41": request(*rounds(2)),
    "V-42": request(user(HELLO), assistant(USE), user(RESULT, HELLO)),
    "V-43": request(*rounds(2)),
    "V-44": request(*rounds(3)),
    "V-45": request(
        user(HELLO), assistant(USE | {"id": "toolu_0-A"}), user(RESULT | {"tool_use_id": "toolu_0-A", "content": ""})
    ),
    "V-46": request(user(HELLO), assistant(USE | {"input": {}}), user(RESULT)),
    "V-47": request(user(HELLO), assistant(USE | {"name": "n" * 64}), user(RESULT)),
    "V-48": request(*rounds(1, result={"type": "tool_result", "is_error": True, "content": "it failed"})),
    "V-49": request(user(HELLO), assistant(SEARCH, FOUND, HELLO), user(HELLO)),
    "V-51": request(tools=[tool(name="A-z_0")]),
    "V-52": request(tools=[tool(), tool(name="other")]),
    "V-53": request(
        tools=[schema(properties={"a": True, "b": {"$ref": "#/$defs/b"}}, **{"$defs": {"b": {"type": "string"}}})]
    ),
    "V-54": request(tools=[tool(strict=True)]),
    "V-55": request(tool_choice={"type": "tool", "name": "look_up"}),
    "V-56": request(user(HELLO), assistant(HELLO), user(HELLO), tools=None),
    "V-60a": request(thinking={"type": "adaptive"}),
    "V-60b": request(thinking=ENABLED, max_tokens=1025),
    "V-60c": request(thinking={"type": "disabled"}, tool_choice={"type": "any"}, temperature=0.5),
    "V-60d": request(user(HELLO), assistant(THINKING, HELLO), user(HELLO)),
    "V-60f": request(user(HELLO), assistant(THINKING, USE), user(RESULT), thinking=ENABLED),
    "V-60g": request(user(HELLO), assistant(THINKING, HELLO), user(HELLO)),
    "V-61": request(user(HELLO | mark()), tools=[tool(**mark()), tool(name="b", **mark())], system=[HELLO | mark()]),
    "V-62": request(user(HELLO | mark())),
    "V-63": request(user(HELLO | mark("5m")), tools=[tool(**mark("1h"))]),
}

INVALID = [
    ("V-01", request(user({"type": "text", "text": "\ud83d"}))),
    ("V-01", request(user(HELLO), assistant(USE | {"input": {"\udc00": 1}}), user(RESULT))),
    ("V-01", [request()]),
    ("V-03", request(model=None)),
    ("V-03", request(max_tokens=None)),
    ("V-03", request(messages=None)),
    ("V-04", request(seq=1)),
    ("V-04", request(user(HELLO) | {"id": "m"})),
    ("V-04", request(user(HELLO | {"at_us": 1}))),
    ("V-04", request(system=[HELLO | {"name": "x"}])),
    ("V-04", request(tools=[tool(effect="read")])),
    ("V-05", request(max_tokens=-1)),
    ("V-05", request(max_tokens=True)),
    ("V-06", request(max_tokens=0, stream=True)),
    ("V-06", request(max_tokens=0, tool_choice={"type": "any"})),
    ("V-06", request(max_tokens=0, thinking=ENABLED)),
    ("V-06", request(max_tokens=0, output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}})),
    ("V-07", request(messages=[])),
    ("V-07", request(messages={"role": "user"})),
    ("V-07", request("hello")),
    ("V-08", request(temperature=1.5)),
    ("V-08", request(temperature=1.0, top_p=0.9)),
    ("V-09", request(stop_sequences=[" \n"])),
    ("V-09", request(stop_sequences="end")),
    ("V-10", request(system="  ")),
    ("V-10", request(system=[{"type": "text", "text": ""}])),
    ("V-10", request(system=[image(PNG)])),
    ("V-33", request(user(3))),
    ("V-10", request(system=3)),
    ("V-20", request(assistant(HELLO), user(HELLO))),
    ("V-21", request(user(HELLO), user(HELLO))),
    ("V-22", request(user(HELLO), {"role": "system", "content": "x"}, user(HELLO))),
    ("V-23", request(user(HELLO), assistant(HELLO))),
    ("V-30", request(user())),
    ("V-30", request({"role": "user", "content": ""})),
    ("V-30", request({"role": "user"})),
    ("V-31", request({"role": "user", "content": " \n"})),
    ("V-31", request(user({"type": "text", "text": ""}))),
    ("V-31", request(user({"type": "text", "text": "\t "}))),
    ("V-31", request(*rounds(1, result=RESULT | {"content": [{"type": "text", "text": ""}]}))),
    ("V-32", request(user(USE), assistant(HELLO), user(HELLO))),
    ("V-32", request(user(HELLO), assistant(USE), user(RESULT), assistant(RESULT), user(HELLO))),
    ("V-32", request(user(HELLO), assistant(image(PNG)), user(HELLO))),
    ("V-32", request(user(THINKING))),
    ("V-32", request(*rounds(1, result=RESULT | {"content": [USE | {"id": "inner"}]}))),
    ("V-33", request(user({"type": "note", "text": "x"}))),
    ("V-33", request(user("hello"))),
    ("V-34", request(user(image(PNG, "image/bmp")))),
    ("V-34", request(user(image(PNG, "image/jpeg")))),
    ("V-34", request(user({"type": "image", "source": None}))),
    (
        "V-35",
        request(user({"type": "document", "source": {"type": "base64", "media_type": "text/csv", "data": "YQ=="}})),
    ),
    ("V-36", request(user(image("")))),
    ("V-36", request(user(image("not base64!")))),
    ("V-40", request(user(HELLO), assistant(USE), user(HELLO))),
    ("V-40", request(user(HELLO), assistant(USE, USE | {"id": "b"}), user(RESULT))),
    ("V-40", request(user(HELLO), assistant(USE))),
    ("V-41", request(user(RESULT))),
    ("V-41", request(*rounds(1), assistant(HELLO), user(RESULT))),
    ("V-42", request(user(HELLO), assistant(USE), user(HELLO, RESULT))),
    ("V-43", request(user(HELLO), assistant(USE), user(RESULT, RESULT))),
    ("V-44", request(user(HELLO), assistant(USE), user(RESULT), assistant(USE), user(RESULT))),
    ("V-45", request(user(HELLO), assistant(USE | {"id": "a.b"}), user(RESULT | {"tool_use_id": "a.b"}))),
    ("V-45", request(user(HELLO), assistant(USE | {"id": ""}), user(RESULT | {"tool_use_id": ""}))),
    ("V-45", request(user(HELLO), assistant(USE | {"id": "a\n"}), user(RESULT | {"tool_use_id": "a\n"}))),
    ("V-46", request(user(HELLO), assistant(USE | {"input": []}), user(RESULT))),
    ("V-46", request(user(HELLO), assistant(USE | {"input": None}), user(RESULT))),
    ("V-46", request(user(HELLO), assistant(USE | {"input": "{}"}), user(RESULT))),
    ("V-47", request(user(HELLO), assistant(USE | {"name": "a.b"}), user(RESULT))),
    ("V-47", request(user(HELLO), assistant(USE | {"name": ""}), user(RESULT))),
    ("V-48", request(*rounds(1, result=RESULT | {"is_error": True, "content": ""}))),
    ("V-48", request(*rounds(1, result={"type": "tool_result", "is_error": True}))),
    ("V-48", request(*rounds(1, result=RESULT | {"content": {"a": 1}}))),
    ("V-48", request(*rounds(1, result=RESULT | {"is_error": "yes"}))),
    ("V-49", request(user(HELLO), assistant(FOUND, SEARCH), user(HELLO))),
    ("V-51", request(tools=[tool(name="a/b")])),
    ("V-51", request(tools=[tool(name="n" * 65)])),
    ("V-51", request(tools=[tool(name="naïve")])),
    ("V-52", request(tools=[tool(), tool()])),
    ("V-53", request(tools="look_up")),
    ("V-53", request(tools=[tool(input_schema={"type": "string"})])),
    ("V-53", request(tools=[tool(input_schema=None)])),
    ("V-53", request(tools=[schema(anyOf=[{"type": "object"}])])),
    ("V-53", request(tools=[schema(properties={"a": "string"})])),
    ("V-53", request(tools=[schema(properties={"a": {"type": "object", "required": True}})])),
    ("V-53", request(tools=[schema(required=["a", "a"])])),
    ("V-53", request(tools=[schema(properties=["a"])])),
    ("V-53", request(tools=[schema(properties={"a": {"type": "text"}})])),
    ("V-53", request(tools=[schema(properties={"a": {"anyOf": {}}})])),
    ("V-53", request(tools=[schema(properties={"a": {"uniqueItems": "yes"}})])),
    ("V-53", request(tools=[schema(properties={"a": {"pattern": "(?<bad["}})])),
    ("V-54", request(tools=[schema(properties={}) | {"strict": True}])),
    ("V-54", request(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}})),
    ("V-54", request(output_config={"format": {"type": "xml"}})),
    ("V-55", request(tool_choice={"type": "maybe"})),
    ("V-55", request(tool_choice={"type": "auto"}, tools=None)),
    ("V-55", request(tool_choice={"type": "tool", "name": "other"})),
    ("V-56", request(*rounds(1), tools=None)),
    ("V-56", request(*rounds(1), tools=[])),
    ("V-60a", request(thinking={"type": "on"})),
    ("V-60b", request(thinking={"type": "enabled", "budget_tokens": 1023})),
    ("V-60b", request(thinking=ENABLED, max_tokens=1024)),
    ("V-60c", request(thinking=ENABLED, temperature=0.5)),
    ("V-60c", request(thinking={"type": "adaptive"}, tool_choice={"type": "any"})),
    ("V-60d", request(user(HELLO), assistant({"type": "thinking", "thinking": "x"}), user(HELLO))),
    ("V-60d", request(user(HELLO), assistant({"type": "thinking", "signature": "x"}), user(HELLO))),
    ("V-60d", request(user(HELLO), assistant({"type": "redacted_thinking"}), user(HELLO))),
    ("V-60g", request(user(HELLO), assistant({"type": "thinking", "thinking": ""}), user(HELLO))),
    ("V-60f", request(user(HELLO), assistant(HELLO, USE), user(RESULT), thinking=ENABLED)),
    ("V-61", request(user(*[HELLO | mark()] * 5))),
    ("V-61", request(user(*[HELLO | mark()] * 4), cache_control={"type": "ephemeral"})),
    ("V-61", request(*rounds(1, result=RESULT | {"content": [HELLO | mark()] * 5}))),
    ("V-62", request(user(HELLO), assistant(THINKING | mark(), HELLO), user(HELLO))),
    ("V-62", request(user({"type": "text", "text": ""} | mark()))),
    ("V-63", request(user(HELLO | mark("2h")))),
    ("V-63", request(cache_control={"type": "eternal"})),
    ("V-63", request(cache_control="ephemeral")),
    ("V-63", request(user(HELLO | mark("1h")), tools=[tool(**mark("5m"))])),
]


@pytest.mark.parametrize("rule", VALID)
def test_a_request_that_keeps_a_rule_by_a_hair_is_accepted(rule: str) -> None:
    assert violations(VALID[rule]) == []


@pytest.mark.parametrize(("rule", "body"), INVALID)
def test_a_request_that_breaks_a_rule_is_refused_by_its_name(rule: str, body: Any) -> None:
    assert rule in rules_broken(body)


def test_every_rule_has_a_valid_and_an_invalid_request() -> None:
    assert {rule for rule, _ in INVALID} == VALID.keys()


def test_a_body_above_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "BODY_MAX_BYTES", 500)
    assert rules_broken(request()) == set()
    assert rules_broken(request(user(*[HELLO] * 20))) == {"V-11"}


def test_too_many_messages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "MESSAGES_MAX", 3)
    assert rules_broken(request(*rounds(1))) == set()
    assert rules_broken(request(*rounds(2))) == {"V-07"}


@pytest.mark.parametrize(("count", "is_valid"), [(100, True), (101, False)])
def test_a_pdf_has_a_limit_of_pages(count: int, is_valid: bool) -> None:
    data = base64.b64encode(b"%PDF-1.7 " + b"<< /Type /Page >> " * count).decode()
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    assert rules_broken(request(user({"type": "document", "source": source}))) == (set() if is_valid else {"V-35"})


def test_an_image_above_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "IMAGE_MAX_BYTES", 11)
    assert rules_broken(request(user(image(PNG)))) == {"V-34"}


def test_a_violation_names_the_place() -> None:
    body = request(user(HELLO), assistant(USE | {"input": []}), user(RESULT))
    assert [(found.rule, found.path) for found in violations(body)] == [("V-46", "messages.1.content.0.tool_use.input")]
