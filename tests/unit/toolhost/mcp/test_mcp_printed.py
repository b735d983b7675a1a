"""Of what a program writes to standard error the last lines are told, and no secret."""

from base64 import b64encode

import pytest

from torpor.toolhost.mcp.options import Reference
from torpor.toolhost.mcp.printed import Printed
from torpor.toolhost.mcp.values import secrets_of


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
        ([b"at ?key=s%3Fcret%20value, s?cret+value, s%3Fcret+value\n"], "at ?key=[masked], s?cret+value, [masked]"),
        (
            [b"b64 " + b64encode(b"s?cret value") + b" and " + b64encode(b"me:s3cret-value") + b";"],
            "b64 [masked] and bWU6[masked];",
        ),
        (
            [b"b64 " + b64encode(b"you:s3cret-value") + b", " + b64encode(b"yo:s3cret-value\n")],
            "b64 eW91On[masked], eW86[masked]",
        ),
    ],
)
def test_the_last_lines_are_told(pieces: list[bytes], last: str) -> None:
    printed = Printed(["s3cret-value", "s3cret-value-too", "s?cret value", "yes"])
    for piece in pieces:
        printed.add(piece)
    assert printed.last == last


def test_no_part_of_a_secret_is_told_that_its_program_may_take_out_of_it() -> None:
    bearer, address = Reference(file="a", prefix="Bearer "), Reference(env="B")
    held = {"KEY": "Bearer s3cret-value", "AT": "redis://me:0ther-s3cret@store/0", "MODE": "plain words"}
    printed = Printed(secrets_of({"KEY": bearer, "AT": address, "MODE": "plain words"}, held))
    printed.add(b"the token s3cret-value and the password 0ther-s3cret in plain mode")
    assert printed.last == "the token [masked] and the password [masked] in plain mode"
