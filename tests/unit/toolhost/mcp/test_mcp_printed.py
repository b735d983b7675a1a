"""Of what a program writes to standard error the last lines are told, and no secret."""

import pytest

from torpor.toolhost.mcp.printed import Printed


@pytest.mark.parametrize(
    ("pieces", "last"),
    [
        ([], ""),
        ([b"one\n", b"two\r\n", b"\n  \nth", b"ree\nfour"], "two\nthree\nfour"),
        ([b"key s3cret-value, of s3cret-value-too\n"], "key [masked], of [masked]"),
        ([b"yes it is\n"], "yes it is"),
        ([b"red \x1b[31m and \xff\n"], "red \N{REPLACEMENT CHARACTER}[31m and \N{REPLACEMENT CHARACTER}"),
        ([b"a line with s3cret-", b"value " + b"x" * 4_090], ""),
        ([b"x" * 5_000, b"\nwhole\n"], "whole"),
        ([b"y" * 1_000], "y" * 200),
    ],
)
def test_the_last_lines_are_told(pieces: list[bytes], last: str) -> None:
    printed = Printed(["s3cret-value", "s3cret-value-too", "yes"])
    for piece in pieces:
        printed.add(piece)
    assert printed.last == last
