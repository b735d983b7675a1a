"""Cases MCP-03, MCP-04 and MCP-05, as far as names go."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.toolhost.mcp.names import server_of, tool_name

ALLOWED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SERVERS = st.from_regex(r"\A[a-zA-Z0-9-]{1,4}(_[a-zA-Z0-9-]{1,4}){0,2}\Z")


def test_a_plain_name_keeps_its_words() -> None:
    assert tool_name("wiki", "read-page_2") == "wiki__read-page_2"


def test_mcp_03_long_names_that_differ_at_their_end_stay_different_and_short() -> None:
    server, one, two = "a" * 40, "b" * 60, "b" * 59 + "c"

    names = {tool_name(server, one), tool_name(server, two)}

    assert len(names) == 2
    assert all(ALLOWED.fullmatch(name) for name in names)
    assert {server_of(name) for name in names} == {server}
    assert names == {tool_name(server, two), tool_name(server, one)}


def test_mcp_04_names_with_other_characters_are_allowed_and_different() -> None:
    tools = ["catalog.get", "catalog_get", "a/b", "naive-é", "a_b", "a b", "", "é", "日本", "\ud800"]

    names = [tool_name("shop", tool) for tool in tools]

    assert len(set(names)) == len(tools)
    assert all(ALLOWED.fullmatch(name) for name in names)
    assert names[1] == "shop__catalog_get"


def test_mcp_05_two_servers_with_one_tool_have_two_names() -> None:
    assert {tool_name("prod", "read"), tool_name("preprod", "read")} == {"prod__read", "preprod__read"}


def test_a_name_that_looks_shortened_is_not_the_shortened_one() -> None:
    shortened = tool_name("shop", "catalog.get").removeprefix("shop__")

    assert tool_name("shop", shortened) != tool_name("shop", "catalog.get")


@pytest.mark.parametrize("name", ["read", "", "a_b"])
def test_a_name_without_the_divider_is_no_servers(name: str) -> None:
    assert server_of(name) == ""


@given(server=SERVERS, tool=st.text(max_size=80), other=SERVERS, others=st.text(max_size=80))
def test_different_tools_have_different_names(server: str, tool: str, other: str, others: str) -> None:
    first, second = tool_name(server, tool), tool_name(other, others)

    assert ALLOWED.fullmatch(first)
    assert server_of(first) == server
    assert (first == second) == ((server, tool) == (other, others))
