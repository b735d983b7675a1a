"""Nothing that was written by others is obeyed by a terminal."""

import pytest

from torpor.cli.output import print_table
from torpor.cli.terminal import harmless, on_one_line


@pytest.mark.parametrize("text", ["\x1b[2J", "\x1b]0;pwn\x07", "\x9b2J", "a\u202eb", "a\u2028b", "\ud800", "\x00"])
def test_what_a_terminal_obeys_is_replaced(text: str) -> None:
    assert not set(harmless(text)) & set("\x1b\x07\x9b\u202e\u2028\ud800\x00")
    assert len(harmless(text)) == len(text)


def test_lines_stay_where_there_may_be_some() -> None:
    assert harmless("a\tb\r\nc") == "a\tb\r\nc"
    assert on_one_line("a\tb\r\nc") == "a b c"
    assert on_one_line("Zoë \N{FAMILY}") == "Zoë \N{FAMILY}"


def test_no_cell_of_a_table_is_obeyed_or_breaks_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("ID", "TITLE"), [("c1", "\x1b[2Jtitle\nx"), (5, None)])

    assert capsys.readouterr().out.splitlines() == [
        "ID  TITLE",
        "c1  \N{SYMBOL FOR ESCAPE}[2Jtitle x",
        "5   None",
    ]
