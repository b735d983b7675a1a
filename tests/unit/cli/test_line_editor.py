"""Keys that become lines."""

import pytest

from torpor.cli.line_editor import LineEditor, width


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        (b"abc", "abc"),
        (b"abc\x7f\x08", "a"),
        (b"\x7f", ""),
        ("ä€".encode() + b"\x7f", "ä"),
        ("e\u0301x".encode() + b"\x7f\x7f", ""),
        (b"one two\x17", "one "),
        (b"one two  \x17\x17", ""),
        (b"\x17", ""),
        (b"one two\x15three", "three"),
        (b"a\tb", "a b"),
        (b"a\x1b[Ab\x1b[1;5Cc\x1bOPd\x1bxe", "abcde"),
        (b"a\x01\x0bb", "ab"),
        (b"a\x04b", "ab"),
        (b"\xff", "\ufffd"),
    ],
)
def test_line_is_edited_by_keys(keys: bytes, left: str) -> None:
    editor = LineEditor()

    assert list(editor.typed(keys)) == []
    assert editor.text == left
    assert not editor.has_ended


def test_lines_end_with_enter_however_many_come_at_once() -> None:
    editor = LineEditor()

    assert list(editor.typed(b"one\ntwo\r\nth")) == ["one", "two", ""]
    assert list(editor.typed(b"ree\n")) == ["three"]


def test_keys_may_come_in_pieces() -> None:
    editor = LineEditor()

    for piece in (b"\xc3", b"\xa4", b"\x1b", b"[", b"3", b"~", b"b"):
        assert list(editor.typed(piece)) == []
    assert editor.text == "äb"


def test_input_ends_with_ctrl_d_on_an_empty_line_only() -> None:
    editor = LineEditor()

    assert list(editor.typed(b"a\x04\n\x04lost")) == ["a"]
    assert (editor.has_ended, editor.text) == (True, "")


@pytest.mark.parametrize(("text", "columns"), [("", 0), ("abc", 3), ("e\u0301", 1), ("日本", 4), ("a\u200db", 2)])
def test_width_is_that_of_a_terminal(text: str, columns: int) -> None:
    assert width(text) == columns
