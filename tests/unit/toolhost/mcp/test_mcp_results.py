"""What a server answers, as the model reads it."""

from typing import Any

import pytest

from torpor.errors import ToolFailed
from torpor.toolhost.mcp.results import Answer, told


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def read(answer: Answer, *, size_bytes_max: int = 10_000) -> str:
    return told(answer, tool="wiki__read", size_bytes_max=size_bytes_max)


CASES: list[tuple[Answer, str]] = [
    (Answer(), "done, without a word"),
    (Answer(content=(text("one"), text("two"))), "one\ntwo"),
    (Answer(content=(text("hi"),), structured={"result": "hi"}), "hi"),
    (Answer(content=(text('{"a": 1}'),), structured={"a": 1}), '{"a": 1}'),
    (Answer(content=(text("7"),), structured={"result": 7}), "7"),
    (Answer(content=(text("seven"),), structured={"n": 7}), 'seven\n{"n":7}'),
    (Answer(content=(text("buy milk"),), structured={"result": ["buy milk"]}), "buy milk"),
    (
        Answer(content=(text("a"), text('{\n "n": 7\n}'), text("7")), structured={"result": ["a", [{"n": 7}, 7]]}),
        'a\n{\n "n": 7\n}\n7',
    ),
    (Answer(content=(text("a"),), structured={"result": ["a", "b"]}), 'a\n{"result":["a","b"]}'),
    (Answer(content=(text("a"), text("b")), structured={"result": ["b", "a"]}), 'a\nb\n{"result":["b","a"]}'),
    (Answer(structured={"result": []}), '{"result":[]}'),
    (Answer(structured=[1]), "[1]"),
    (Answer(structured={"a": float("nan"), "b": [float("-inf"), 1.5]}), '{"a":"NaN","b":["-Infinity",1.5]}'),
    (
        Answer(content=(text("see"), {"type": "image", "mimeType": "image/png", "data": "AAAA" * 100})),
        "see\n[image, image/png, about 300 bytes: not shown]",
    ),
    (
        Answer(
            content=(text("see"), {"type": "image", "data": "AAAA", "mimeType": "image/png"}),
            structured={"result": [text("see"), {"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
        ),
        "see\n[image, image/png, about 3 bytes: not shown]",
    ),
    (Answer(content=(text("a"),), structured={"result": [{"type": "row"}]}), 'a\n{"result":[{"type":"row"}]}'),
    (Answer(content=({"type": "audio"},)), "[audio, of an unknown type, about 0 bytes: not shown]"),
    (Answer(content=({"type": "resource", "resource": {"uri": "x:1", "text": "body"}},)), "body"),
    (Answer(content=({"type": "resource", "resource": {"uri": "x:1"}},)), "[a resource x:1: not shown]"),
    (Answer(content=({"type": "resource", "resource": 1},)), "[resource: not shown]"),
    (
        Answer(content=({"type": "resource_link", "uri": "x:1"},)),
        "[a link to x:1, which cannot be followed here]",
    ),
    (Answer(content=({"type": "hologram"}, {"text": "odd"}, {"type": "text", "text": 1})),
     "[hologram: not shown]\n[something: not shown]\n[text: not shown]"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "expected"), CASES)
def test_an_answer_is_told(answer: Answer, expected: str) -> None:
    assert read(answer) == expected


def test_an_error_is_raised_with_what_the_server_says() -> None:
    with pytest.raises(ToolFailed, match=r"^no such page$"):
        read(Answer(content=(text("no such page"),), is_error=True))
    with pytest.raises(ToolFailed, match="does not say why"):
        read(Answer(is_error=True))


def test_an_answer_that_is_too_large_is_no_result() -> None:
    with pytest.raises(ToolFailed, match="it has run all the same"):
        read(Answer(content=(text("x" * 200),)), size_bytes_max=100)
    with pytest.raises(ToolFailed, match=r"about 2\d\d bytes"):
        read(Answer(structured={"rows": ["x" * 200, 1, None]}), size_bytes_max=100)


def test_a_result_without_a_form_in_json_is_an_error() -> None:
    with pytest.raises(ToolFailed, match="cannot be written as JSON"):
        read(Answer(structured={"a": "\ud800"}))
