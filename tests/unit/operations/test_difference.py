"""What changed from one request to the next."""

import json
from typing import Any

from torpor.operations.difference import difference, laid_out


def body(*messages: tuple[str, list[dict[str, Any]]], **fields: Any) -> bytes:
    said = [{"role": role, "content": content} for role, content in messages]
    return json.dumps({"model": "m", **fields, "messages": said}).encode()


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


ASKED = ("user", [text("when are you open?")])
CALLED = ("assistant", [{"type": "tool_use", "id": "c1", "name": "hours", "input": {"day": "friday"}}])
TOLD = ("user", [{"type": "tool_result", "tool_use_id": "c1", "content": "eight\nto four"}])


def test_a_request_is_laid_out_in_the_order_in_which_hosts_cache() -> None:
    tool = {"name": "hours", "description": "opening hours", "input_schema": {"type": "object"}}
    assert laid_out(body(ASKED, CALLED, TOLD, system=[text("be\nbrief")], tools=[tool], max_tokens=9)) == [
        "max_tokens: 9",
        'model: "m"',
        "tool hours",
        '    description: "opening hours"',
        '    input_schema: {"type":"object"}',
        '    name: "hours"',
        "system 1",
        "    be",
        "    brief",
        "message 1 user text",
        "    when are you open?",
        "message 2 assistant tool_use",
        '    id: "c1"',
        '    input: {"day":"friday"}',
        '    name: "hours"',
        "message 3 user tool_result",
        "    content:",
        "        eight",
        "        to four",
        '    tool_use_id: "c1"',
    ]


def test_equal_requests_do_not_differ() -> None:
    assert difference(body(ASKED), body(ASKED)) == []


def test_what_came_is_marked_with_what_stands_around_it() -> None:
    assert difference(body(ASKED), body(ASKED, CALLED)) == [
        "@@ -1,3 +1,7 @@",
        ' model: "m"',
        " message 1 user text",
        "     when are you open?",
        "+message 2 assistant tool_use",
        '+    id: "c1"',
        '+    input: {"day":"friday"}',
        '+    name: "hours"',
    ]


def test_what_went_and_what_took_its_place_stand_together() -> None:
    lines = difference(body(ASKED, system=[text("be brief")]), body(ASKED, system=[text("be kind")]))
    assert lines == [
        "@@ -1,5 +1,5 @@",
        ' model: "m"',
        " system 1",
        "-    be brief",
        "+    be kind",
        " message 1 user text",
        "     when are you open?",
    ]


def test_changes_far_apart_are_told_apart_and_numbered_as_in_the_whole() -> None:
    many = [("user", [text(f"line {number}")]) for number in range(40)]
    other = [*many]
    other[10], other[30] = ("user", [text("new")]), ("user", [text("newer")])

    lines = difference(body(*many), body(*other))

    assert [line for line in lines if line.startswith("@@")] == ["@@ -20,7 +20,7 @@", "@@ -60,7 +60,7 @@"]
    assert laid_out(body(*many))[22] == "    line 10"
    assert "-    line 10" in lines


def test_everything_is_new_in_a_first_request() -> None:
    assert [line[0] for line in difference(b"{}", body(ASKED))] == ["@", "+", "+", "+"]
