"""Values of the wrong kind are read as what was meant, and told."""

from typing import Any

import pytest

from torpor.skillbook.fields import Fields


def fields(value: Any) -> Fields:
    return Fields({"x": value}, lines={"x": 3})


def codes(read: Fields) -> list[tuple[str, int]]:
    return [(finding.code, finding.line) for finding in read.findings]


@pytest.mark.parametrize(
    ("value", "text", "found"),
    [
        ("a", "a", []),
        (["a", "b"], "a, b", [("not_text", 3)]),
        (["a", {"b": "c"}], 'a, {"b":"c"}', [("not_text", 3)]),
        ({"a": ["b"]}, '{"a":["b"]}', [("not_text", 3)]),
    ],
)
def test_text_is_read(value: Any, text: str, found: list[tuple[str, int]]) -> None:
    read = fields(value)
    assert read.text("x") == text
    assert codes(read) == found


def test_key_that_is_not_there_is_empty_and_nothing_to_tell_of() -> None:
    read = Fields({}, lines={})
    assert (
        read.has("x"),
        read.text("x"),
        read.flag("x", default=True, safe=False),
        read.tools("x"),
        read.texts("x"),
    ) == (
        False,
        "",
        True,
        (),
        {},
    )
    assert read.findings == []


@pytest.mark.parametrize(
    ("value", "flag", "found"),
    [
        ("true", True, []),
        ("False", False, []),
        (" TRUE ", True, []),
        ("yes", True, []),
        ("Off", False, []),
        ("0", False, []),
        ("maybe", None, [("not_true_or_false", 3)]),
        ("", None, [("not_true_or_false", 3)]),
        (["true"], None, [("not_true_or_false", 3)]),
    ],
)
@pytest.mark.parametrize("safe", [True, False])
def test_flag_is_read(value: Any, flag: bool | None, found: list[tuple[str, int]], *, safe: bool) -> None:
    read = fields(value)
    assert read.flag("x", default=not safe, safe=safe) is (safe if flag is None else flag)
    assert codes(read) == found


@pytest.mark.parametrize(
    ("value", "tools", "found"),
    [
        ("Read Write", ("Read", "Write"), []),
        ("Read, Write,Edit", ("Read", "Write", "Edit"), []),
        ("Bash(git add:*) Bash(jq: a, b) Read", ("Bash(git add:*)", "Bash(jq: a, b)", "Read"), []),
        ("Bash(echo $(date)) Read", ("Bash(echo $(date))", "Read"), []),
        ("Bash(open Read)) Write", ("Bash(open Read))", "Write"), []),
        ("Bash(open Read", ("Bash(open", "Read"), []),
        ("Read Read", ("Read",), []),
        ("", ("[]",), []),
        ([], ("[]",), [("tools_not_text", 3)]),
        ([""], ("[]",), [("tools_not_text", 3)]),
        (["Read", " Bash(a b) "], ("Read", "Bash(a b)"), [("tools_not_text", 3)]),
        ([{"Bash(git": "x)"}], ('{"Bash(git":"x)"}',), [("tools_not_text", 3)]),
        ({"Read": "yes"}, ("Read",), [("tools_not_text", 3)]),
    ],
)
def test_tools_are_separated_outside_of_parentheses(
    value: Any, tools: tuple[str, ...], found: list[tuple[str, int]]
) -> None:
    read = fields(value)
    assert read.tools("x") == tools
    assert codes(read) == found


@pytest.mark.parametrize("text", ["(" * 200_000, "(a" * 100_000, "(" + "(x)" * 60_000, ")(" * 100_000])
def test_heaps_of_parentheses_are_read_in_no_time(text: str) -> None:
    assert fields(text).tools("x")


@pytest.mark.parametrize(
    ("value", "texts", "found"),
    [
        ({"a": "b"}, {"a": "b"}, []),
        ("", {}, []),
        ("null", {}, []),
        ({"a": ["b"], "c": {"d": "e"}}, {"a": '["b"]', "c": '{"d":"e"}'}, [("metadata_not_text", 3)]),
        ("words", {"value": "words"}, [("metadata_not_text", 3)]),
        (["a"], {"value": '["a"]'}, [("metadata_not_text", 3)]),
    ],
)
def test_map_of_text_is_read(value: Any, texts: dict[str, str], found: list[tuple[str, int]]) -> None:
    read = fields(value)
    assert read.texts("x") == texts
    assert codes(read) == found
