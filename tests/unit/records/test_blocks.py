"""Blocks are encoded once, canonically, and never again."""

import msgspec
import pytest

from torpor.records.blocks import canonical, head_of, text_block, tool_result_block


def test_equal_values_give_equal_bytes_whatever_their_order() -> None:
    assert bytes(canonical({"b": 1, "a": {"d": 2, "c": [3]}})) == b'{"a":{"c":[3],"d":2},"b":1}'
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})


def test_text_is_written_as_utf8_not_as_escapes() -> None:
    assert bytes(text_block("naïve \U0001f600")) == '{"text":"naïve \U0001f600","type":"text"}'.encode()


@pytest.mark.parametrize("text", ["\ud83d", "a\ude00"])
def test_what_no_utf8_holds_is_an_error_here(text: str) -> None:
    with pytest.raises(UnicodeEncodeError):
        text_block(text)


def test_a_result_names_its_call() -> None:
    assert msgspec.json.decode(tool_result_block("a", "paid", is_error=False)) == {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": "paid",
    }


def test_an_error_is_marked_and_never_empty() -> None:
    assert msgspec.json.decode(tool_result_block("a", "no funds", is_error=True))["is_error"] is True
    assert (
        msgspec.json.decode(tool_result_block("a", "", is_error=True))["content"] == "the tool failed without a message"
    )
    assert msgspec.json.decode(tool_result_block("a", "", is_error=False))["content"] == ""


def test_the_head_of_a_call_keeps_its_arguments_as_they_came() -> None:
    head = head_of(
        canonical({"type": "tool_use", "id": "a", "name": "pay", "input": {"to": "bob"}, "caller": {"x": 1}})
    )
    assert (head.type, head.id, head.name, bytes(head.input)) == ("tool_use", "a", "pay", b'{"to":"bob"}')


def test_the_head_of_any_other_block_is_its_type_and_text() -> None:
    head = head_of(text_block("hi"))
    assert (head.type, head.text, head.id, bytes(head.input)) == ("text", "hi", "", b"{}")
    assert head_of(canonical({"type": "thinking", "thinking": "hm", "signature": "s"})).text == ""


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"type":3}', b'{"type":"text"'])
def test_what_is_no_block_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        head_of(msgspec.Raw(data))
