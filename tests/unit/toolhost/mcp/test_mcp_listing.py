"""Which tools of a server may be offered."""

from typing import Any

from torpor.records.terms import Effect
from torpor.toolhost.mcp.listing import BEYOND, Listing, read_listing
from torpor.toolhost.mcp.options import McpOptions, McpServer

OPTIONS = McpOptions()


def entry(name: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Do {name}.", "inputSchema": {"type": "object"}, **more}


def read(*entries: object, server: McpServer | None = None, options: McpOptions = OPTIONS) -> Listing:
    return read_listing("shop", server or McpServer(command="x"), entries, options=options)


def why(listing: Listing) -> dict[str, str]:
    return {rejected.title: rejected.why for rejected in listing.rejected}


def test_tools_are_in_the_order_of_their_names_whatever_the_server_says() -> None:
    one, two = read(entry("b"), entry("a.x")), read(entry("a.x"), entry("b"))

    assert [tool.title for tool in one.tools] == ["a.x", "b"]
    assert one == two


def test_mcp_06_a_bad_tool_is_left_out_alone() -> None:
    bad = {"string": {"type": "string"}, "none": None, "gone": {"type": "object", "properties": {"a": {"$ref": "#/x"}}}}
    listing = read(entry("good"), *(entry(name, inputSchema=schema) for name, schema in bad.items()))

    assert [tool.title for tool in listing.tools] == ["good"]
    assert why(listing).keys() == bad.keys()


def test_nonsense_is_left_out() -> None:
    listing = read(7, {"name": 7}, {"name": ""}, entry("good"), entry("good"), None)

    assert [tool.title for tool in listing.tools] == ["good"]
    assert why(listing) == {
        "?": "it has no name",
        "good": "the server has two tools of that name, the first one counts",
    }


def test_names_of_the_configuration_that_the_server_has_not_are_told() -> None:
    server = McpServer(command="x", tools=("look", "lok"), reads=("look", "act", "loock"), deadlines_s={"gone": 1.0})

    assert {
        unmet.title: unmet.why.partition(" ")[0] for unmet in read(entry("look"), entry("act"), server=server).unmet
    } == {
        "lok": "tools",
        "loock": "reads",
        "gone": "deadlines_s",
    }


def test_only_what_the_configuration_trusts_is_a_read() -> None:
    said = (entry("look", annotations={"readOnlyHint": True}), entry("act"), entry("odd", annotations=[1]))

    def effects(server: McpServer) -> dict[str, Effect]:
        return {tool.title: tool.effect for tool in read(*said, server=server).tools}

    write, read_ = Effect.WRITE, Effect.READ
    assert effects(McpServer(command="x")) == {"act": write, "look": write, "odd": write}
    assert effects(McpServer(command="x", trust_read_only=True)) == {"act": write, "look": read_, "odd": write}
    assert effects(McpServer(command="x", reads=("act",))) == {"act": read_, "look": write, "odd": write}


def test_a_tool_has_the_nearest_deadline() -> None:
    server = McpServer(command="x", deadline_s=7.0, deadlines_s={"slow": 90.0})

    assert [tool.deadline_s for tool in read(entry("fast"), entry("slow"), server=server).tools] == [7.0, 90.0]
    assert read(entry("fast")).tools[0].deadline_s == OPTIONS.call_deadline_s


def test_only_tools_that_are_asked_for_are_there() -> None:
    listing = read(entry("a"), entry("b"), entry("c", inputSchema=1), server=McpServer(command="x", tools=("b",)))

    assert [tool.title for tool in listing.tools] == ["b"]
    assert listing.rejected == ()


def test_a_description_is_cleaned_cut_and_never_blank() -> None:
    listing = read(entry("a", description="x" * 9_000), entry("b", description=" \u200b "), entry("c", description=1))

    assert len(listing.tools[0].description) == OPTIONS.description_bytes_max
    assert [tool.description for tool in listing.tools][1:] == ["The tool b of shop.", "The tool c of shop."]


def test_a_flood_of_tools_is_contained() -> None:
    options = McpOptions(tools_max=3)
    listing = read(*(entry(f"t{number:04}") for number in range(1_000)), options=options)

    assert [tool.title for tool in listing.tools] == ["t0000", "t0001", "t0002"]
    assert len(listing.rejected) == 4
    assert why(listing)["…"] == "994 more are left out"


def test_what_nobody_looked_at_is_told() -> None:
    assert why(read(entry("a"), BEYOND)) == {"…": "of one list the first 1,000 tools are looked at"}


def test_tools_beyond_what_a_request_may_take_are_left_out() -> None:
    large = {"type": "object", "description": "x" * 900}
    listing = read(entry("a", inputSchema=large), entry("b", inputSchema=large), entry("c"),
                   options=McpOptions(schemas_bytes_max=1_200))  # fmt: skip

    assert [tool.title for tool in listing.tools] == ["a", "c"]
    assert "1,200 bytes" in why(listing)["b"]


def test_the_digest_tells_whether_anything_changed() -> None:
    assert read(entry("a")).digest == read(entry("a"), entry("b", inputSchema=1)).digest
    assert read(entry("a")).digest != read(entry("a", description="Other.")).digest


def test_a_tool_that_is_asked_for_and_not_there_is_told_with_what_is_there() -> None:
    asked = {"find": "evidence of scout", "look": "evidence of other"}
    listing = read_listing("shop", McpServer(command="x"), [entry("look"), entry("a\nb")], options=OPTIONS, asked=asked)

    (unmet,) = listing.unmet
    assert (unmet.title, unmet.why) == ("find", "evidence of scout names it, and the server has no such tool")
    assert (listing.titles, listing.told_titles) == (("a\nb", "look"), ("a b", "look"))


def test_bad_schemas_cost_no_more_time_than_good_ones() -> None:
    bad = {"type": "object", "description": "x" * 900, "maxProperties": -1}
    listing = read(*(entry(f"t{number}", inputSchema=bad) for number in range(4)), entry("z"),
                   options=McpOptions(schemas_bytes_max=1_200))  # fmt: skip

    assert listing.tools == ()
    assert why(listing)["t1"] == "maxProperties is -1, expected minimum 0"
    assert why(listing)["t3"] == why(listing)["z"] == "of the schemas of one server 2,400 bytes are looked at"
