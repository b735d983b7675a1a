"""Flags in words: for whom they are off."""

import pytest

from torpor.flags.declared import Flag, Rule
from torpor.flags.wording import Reach, by_reach, off_in_words, reach_of

NORTH = Rule(tenant="north", value=False)


@pytest.mark.parametrize(
    ("flag", "reach", "told"),
    [
        (None, Reach.ON, ""),
        (Flag(default=True), Reach.ON, ""),
        (Flag(default=False), Reach.OFF, "off by mcp.a"),
        (Flag(default=True, rules=(NORTH,)), Reach.PARTLY, "off for tenant north by mcp.a"),
        (
            Flag(default=False, rules=(Rule(owner=("ada", "bob"), value=True),)),
            Reach.PARTLY,
            "off by mcp.a, on for owner ada or bob",
        ),
        (Flag(default=True, rules=(Rule(value=False), Rule(tenant="x", value=True))), Reach.OFF, "off by mcp.a"),
        (Flag(default=False, rules=(NORTH,)), Reach.OFF, "off by mcp.a"),
    ],
)
def test_for_whom_a_flag_is_off_is_told(flag: Flag | None, reach: Reach, told: str) -> None:
    assert reach_of(flag) is reach
    assert off_in_words("mcp.a", {} if flag is None else {"mcp.a": flag}) == told


def test_flags_are_grouped_by_how_they_are() -> None:
    flags = {"a": Flag(default=True), "b": Flag(default=False), "c": Flag(default=True, rules=(NORTH,))}

    assert by_reach(["a", "b", "c", "gone"], flags) == {"on": ["a", "gone"], "off": ["b"], "partly": ["c"]}
    assert by_reach([], flags) == {}
