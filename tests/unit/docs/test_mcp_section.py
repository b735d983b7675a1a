"""docs/operators.md tells the keys and the limits of MCP servers as the code has them."""

import tomllib

import msgspec

from tests.unit.docs.test_tables import DOCS
from torpor.toolhost.mcp.options import McpOptions, McpServer
from torpor.toolhost.mcp.states import ServerState


def section() -> str:
    return (DOCS / "operators.md").read_text().partition("\n## MCP servers\n")[2].partition("\n## ")[0]


def rows(head: str) -> list[list[str]]:
    lines = section().partition(head)[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines]


def test_keys_of_a_server_are_told_with_their_defaults() -> None:
    told = {cells[0]: cells[1] for cells in rows("| Key |")}
    defaults = msgspec.json.decode(msgspec.json.encode(McpServer(command="x")))

    assert told.keys() == defaults.keys()
    for key, cell in told.items():
        value = tomllib.loads(f"value = {cell}")["value"] if cell else None
        assert value == ("" if key == "command" else defaults[key]), key


def test_limits_are_told_with_their_defaults() -> None:
    told = {cells[0]: tomllib.loads(f"value = {cells[1]}")["value"] for cells in rows("| `[mcp]` |")}

    assert told == msgspec.to_builtins(McpOptions())


def test_states_of_the_listing_are_told() -> None:
    assert {cells[0] for cells in rows("| State |")} == {state.value for state in ServerState}


def test_the_example_of_the_page_is_a_server() -> None:
    examples = [block.partition("\n```")[0] for block in section().split("```toml\n")[1:]]

    for example in examples:
        for table in tomllib.loads(example)["mcp"].values():
            server = msgspec.convert(table, McpServer)
            assert server.url.startswith("https://") != bool(server.command)
    assert len(examples) == 2
