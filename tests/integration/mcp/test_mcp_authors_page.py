"""The two servers of docs/tool-authors.md are served and called as the page has it, also from its rehearsal."""

import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.support.tools import DictBlobs, a_context
from torpor.model.rehearsal import RehearsalFile
from torpor.records.terms import Effect, Outcome
from torpor.toolhost.mcp.elsewhere import McpTools
from torpor.toolhost.mcp.loading import open_session
from torpor.toolhost.mcp.options import McpOptions, McpServer
from torpor.toolhost.mcp.servers import McpServers
from torpor.toolhost.mcp.values import Values
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.registry import ToolRegistry

PAGE = Path(__file__).parents[3] / "docs" / "tool-authors.md"
SECTION = PAGE.read_text().partition("### Two whole servers\n")[2].partition("\n## ")[0]
NOTES, HOURS = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
TABLES, RULE = re.findall(r"```toml\n(.*?)```", SECTION, re.DOTALL)
PORT = "8931"


@pytest.fixture
def anyio_backend() -> str:
    """One is enough: the page is what is tried."""
    return "asyncio"


@contextmanager
def listening(home: Path) -> Iterator[str]:
    """The port at which the second server of the page listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    (home / "hours_server.py").write_text(HOURS.replace(PORT, port))
    with subprocess.Popen([sys.executable, "hours_server.py"], cwd=home, stderr=subprocess.DEVNULL) as process:
        try:
            yield port
        finally:
            process.kill()


async def test_both_servers_of_the_page_are_called(tmp_path: Path) -> None:
    (tmp_path / "notes_server.py").write_text(NOTES)
    with listening(tmp_path) as port:
        text = TABLES.replace(PORT, port).replace('"python3"', f'"{sys.executable}"')
        tables: dict[str, Any] = tomllib.loads(text)["mcp"]
        servers = McpServers(
            {name: msgspec.convert(table, McpServer) for name, table in tables.items()},
            home=tmp_path,
            values=Values(tmp_path, {}),
            open_=open_session,
            options=McpOptions(turn_wait_s=60.0, backoff_s=0.05, backoff_max_s=0.1),
            chance=lambda: 0.5,
        )
        registry = ToolRegistry((), blobs=DictBlobs(), options=ToolOptions())
        with anyio.fail_after(60):
            async with registry.running(), servers.running():
                await _calls(servers, registry)
    assert (tmp_path / "notes.txt").read_text() == "buy milk\n"


async def _calls(servers: McpServers, registry: ToolRegistry) -> None:
    (hours,) = servers.links(["hours"], tenant="", principal="")
    while not servers.connection(hours).generation:  # it may not listen yet
        servers.connection(hours).want()
        await servers.connection(hours).next_news()
    tools = McpTools(servers, names=servers.servers, taken=(), toolbox_of=registry.lent_toolbox)
    await tools.known(a_context().key, "ada")
    lent = tools.lent(a_context().key, "ada")
    assert lent is not None
    effects = {spec.name: spec.effect for spec in lent.toolbox.specs()}
    assert effects == {
        "notes__list_notes": Effect.READ,
        "notes__add_note": Effect.WRITE,
        "hours__opening_hours": Effect.READ,
    }
    rule = msgspec.convert(tomllib.loads(RULE), RehearsalFile).rule[0]
    (call,) = rule.step[0].call
    assert f"{{result.{call.tool}}}" == rule.step[1].say
    said = re.search(rule.match, "please note buy milk")
    assert said is not None
    given = {name: value.format(**said.groupdict()) for name, value in call.arguments.items()}
    calls = {call.tool: (given, "noted"), "notes__list_notes": ({}, "buy milk")}
    for name, (arguments, expected) in (calls | {"hours__opening_hours": ({"day": "Monday"}, "9 to 17")}).items():
        result = await lent.toolbox.call(name, msgspec.Raw(msgspec.json.encode(arguments)), a_context())
        assert (result.outcome, result.text) == (Outcome.SUCCEEDED, expected)
