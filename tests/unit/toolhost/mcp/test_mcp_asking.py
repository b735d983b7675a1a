"""A server is asked for an answer of its own, and tools that only read are lent to whoever may only read."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.mcp_house import QUICK, lending
from tests.support.mcp_played import Life, PlayedServer, said
from tests.support.tools import a_context
from torpor.errors import ToolFailed, ToolRefused, ToolTimedOut
from torpor.toolhost.mcp.asking import McpAsks
from torpor.toolhost.mcp.elsewhere import McpTools
from torpor.toolhost.mcp.options import McpServer
from torpor.toolhost.mcp.results import Answer
from torpor.toolhost.mcp.servers import Link, McpServers
from torpor.toolhost.mcp.values import Values

NOWHERE = Path("/nowhere")


def served(played: PlayedServer, **fields: Any) -> McpServers:
    return McpServers(
        {"lib": McpServer(command="x", **fields)},
        home=NOWHERE,
        values=Values(NOWHERE, {}),
        open_=played.open,
        options=QUICK,
        chance=lambda: 0.5,
        asked={"lib": {"find": "evidence of scout"}},
    )


def texts(*said: str) -> Answer:
    return Answer(content=tuple({"type": "text", "text": text} for text in said))


async def test_a_tool_that_the_server_has_not_is_told_to_operator_and_model() -> None:
    async def unknown(life: Life, tool: str, arguments: Any) -> Answer:
        return said(f"Unknown tool: {tool}", is_error=True)

    played = PlayedServer("look", "other")
    played.at_call = unknown
    servers = served(played)
    with capture_logs() as logs, anyio.fail_after(60):
        async with servers.running():
            with pytest.raises(ToolFailed, match="the server lib has no tool 'find'"):
                await McpAsks(servers).ask("lib", "find", {}, a_context())

    (log,) = [log for log in logs if log["event"] == "mcp.tool_unknown"]
    assert log["log_level"] == "warning"
    assert (log["server"], log["tool"], log["has"]) == ("lib", "find", ("look", "other"))
    assert log["why"].startswith("evidence of scout")


async def test_what_a_tool_that_is_there_says_of_its_failure_is_told() -> None:
    async def fails(life: Life, tool: str, arguments: Any) -> Answer:
        return said("the index is locked", is_error=True)

    played = PlayedServer("find")
    played.at_call = fails
    servers = served(played)
    with anyio.fail_after(60):
        async with servers.running():
            with pytest.raises(ToolFailed, match="the index is locked"):
                await McpAsks(servers).ask("lib", "find", {}, a_context())


async def test_what_was_switched_off_while_its_server_started_is_not_asked() -> None:
    class Onset:
        """Implements ``contract.Onset``."""

        def __init__(self) -> None:
            self.told = list[str]()

        def wait(self) -> None:
            self.told.append(f"waits, after {len(played.lives)} lives")

        def begin(self) -> None:
            raise ToolRefused(f"it is switched off, after {len(played.lives)}")

    played, onset = PlayedServer("find"), Onset()
    servers = served(played)
    with anyio.fail_after(60):
        async with servers.running():
            with pytest.raises(ToolRefused, match="it is switched off, after 1"):
                await McpAsks(servers).ask("lib", "find", {}, msgspec.structs.replace(a_context(), onset=onset))
    assert (onset.told, played.calls) == (["waits, after 0 lives"], [])


async def test_an_answer_that_does_not_come_is_not_waited_for_beyond_the_deadline() -> None:
    async def hangs(life: Life, tool: str, arguments: Any) -> Answer:
        await anyio.sleep_forever()
        raise AssertionError

    played = PlayedServer("find")
    played.at_call = hangs
    servers = served(played, deadlines_s={"find": 0.01})
    with anyio.fail_after(60):
        async with servers.running():
            await servers.connection(Link("lib")).known()
            with pytest.raises(ToolTimedOut, match=r"'find' did not finish within 0\.01 s"):
                await McpAsks(servers).ask("lib", "find", {}, a_context())


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (Answer(structured={"result": [1]}), [1]),
        (Answer(structured={"result": [1], "more": 2}), {"result": [1], "more": 2}),
        (said('[{"id": "a"}]'), [{"id": "a"}]),
        (said("words"), "words"),
        (texts('{"id": "a"}', '{"id": "b"}'), [{"id": "a"}, {"id": "b"}]),
        (texts("1", "and"), "1\nand"),
    ],
)
async def test_an_answer_is_told_as_values(answer: Answer, value: Any) -> None:
    async def answers(life: Life, tool: str, arguments: Any) -> Answer:
        return answer

    played = PlayedServer("find")
    played.at_call = answers
    servers = served(played)
    with anyio.fail_after(60):
        async with servers.running():
            assert await McpAsks(servers).ask("lib", "find", {}, a_context()) == value


async def test_tools_that_write_are_not_lent_to_who_may_only_read() -> None:
    with capture_logs() as logs, anyio.fail_after(60):
        async with lending(PlayedServer("read", "write"), reads=("read",), reads_only=True) as tools:
            context = a_context()
            await tools.known(context.key, context.principal)
            names = {spec.name for spec in _lent(tools)}

    assert names == {"lib__read"}
    (log,) = [log for log in logs if log["event"] == "mcp.writes_left_out"]
    assert (log["server"], log["tools"]) == ("lib", ["write"])


def _lent(tools: McpTools) -> Any:
    lent = tools.lent(a_context().key, a_context().principal)
    assert lent is not None
    return lent.toolbox.specs()
