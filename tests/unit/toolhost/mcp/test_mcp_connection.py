"""One task owns a connection, and whatever its server does ends there. Cases MCP-01 and MCP-02, without a process."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.mcp_played import Hanging, Life, PlayedServer, hangs, listed, said
from torpor.errors import ToolError
from torpor.toolhost.mcp.connection import Connection
from torpor.toolhost.mcp.options import McpOptions, McpServer, Reference
from torpor.toolhost.mcp.results import Answer
from torpor.toolhost.mcp.servers import Link, McpServers
from torpor.toolhost.mcp.session import ConnectionLost, NotSent, ServerError, Unreachable
from torpor.toolhost.mcp.states import ServerState
from torpor.toolhost.mcp.values import Values
from torpor.toolhost.process import NotStarted

QUICK = McpOptions(
    start_deadline_s=30.0, backoff_s=0.001, backoff_max_s=0.002, relist_pause_s=0.0, idle_stop_s=0.0, turn_wait_s=30.0
)
SHARED = Link("lib")


@asynccontextmanager
async def living(
    played: PlayedServer, *, options: McpOptions = QUICK, home: Path = Path("/nowhere"), **tables: McpServer
) -> AsyncIterator[McpServers]:
    servers = McpServers(
        tables or {"lib": McpServer(command="x")},
        home=home,
        values=Values(home, {}),
        open_=played.open,
        options=options,
        chance=lambda: 0.5,
    )
    with anyio.fail_after(30):
        async with servers.running():
            yield servers


async def call(servers: McpServers, tool: str = "read", *, link: Link = SHARED, wait_s: float = 30.0) -> str:
    answer = await servers.connection(link).call(tool, {}, wait_s=wait_s, report=lambda _: None)
    return str(answer.content[0]["text"])


async def until(connection: Connection, state: ServerState) -> None:
    while connection.state is not state:
        await connection.next_news()


def names(connection: Connection) -> list[str]:
    return [tool.title for tool in connection.tools.tools]


async def test_nothing_is_started_before_it_is_needed() -> None:
    played = PlayedServer("read")
    async with living(played) as servers:
        assert servers.listings([SHARED]) == ()
        connection = servers.connection(SHARED)
        await anyio.wait_all_tasks_blocked()
        assert played.lives == []
        await connection.known()
        assert names(connection) == ["read"]
        assert await call(servers) == "read of life 1"
        assert connection.generation == 1
    assert played.life.is_closed


async def test_mcp_01_a_call_in_flight_ends_with_its_connection() -> None:
    played = PlayedServer("read")
    played.at_call = hanging = Hanging()
    async with living(played) as servers, anyio.create_task_group() as tasks:
        lost = list[str]()

        async def calling() -> None:
            with pytest.raises(ConnectionLost) as caught:
                await call(servers)
            lost.append(str(caught.value))

        tasks.start_soon(calling)
        await hanging.begun.wait()
        played.at_call = PlayedServer().at_call
        played.life.die()
        assert await call(servers) == "read of life 2"
    assert lost == ["the connection to its server ended"]


@pytest.mark.parametrize("is_busy", [False, True])
async def test_mcp_01_a_transport_that_fails_cancels_nobody_else(is_busy: bool) -> None:
    """As HTTP does: what owns the connection is cancelled and an error comes out of it."""
    played = PlayedServer("read")
    begun = anyio.Event()

    async def hang(life: Life, tool: str, arguments: Mapping[str, Any]) -> Answer:
        begun.set()
        if life.number == 1:
            await anyio.sleep_forever()
        return said("back")

    played.at_call = hang
    async with living(played) as servers, anyio.create_task_group() as tasks:
        if is_busy:

            async def calling() -> None:
                with pytest.raises(ConnectionLost, match="the connection to lib ended"):
                    await call(servers)

            tasks.start_soon(calling)
            await begun.wait()
        else:
            await servers.connection(SHARED).known()
        played.life.breaks.set()
        await anyio.wait_all_tasks_blocked()
        while servers.connection(SHARED).generation == 1:
            await anyio.lowlevel.checkpoint()
        assert await call(servers) == "back"


async def test_a_server_that_does_not_start_is_told_and_tried_again() -> None:
    played = PlayedServer("read")

    async def refuse(life: Life) -> None:
        if life.number < 5:
            raise Unreachable("the server refused with error 401")

    played.at_open = refuse
    options = msgspec.structs.replace(QUICK, backoff_s=0.05, backoff_max_s=0.05)
    async with living(played, options=options) as servers:
        with pytest.raises(NotStarted, match="refused with error 401"):
            await call(servers)
        connection = servers.connection(SHARED)
        assert connection.is_known
        assert names(connection) == []
        await until(connection, ServerState.UP)
        assert names(connection) == ["read"]
        assert await call(servers) == "read of life 5"
        assert connection.standing().why == ""


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (FileNotFoundError("x"), "there is no such program"),
        (PermissionError("x"), "its program may not be run"),
        (ExceptionGroup("g", [ExceptionGroup("h", [ValueError("secret")])]), "it failed with ValueError"),
        (ServerError("its server refused: secret (error -1)", number=-1), "its server refused with error -1"),
    ],
)
async def test_why_is_told_without_what_may_be_secret(error: Exception, why: str) -> None:
    played = PlayedServer("read")

    async def fail(life: Life) -> None:
        raise error

    played.at_open = fail
    async with living(played) as servers:
        with pytest.raises(NotStarted) as caught:
            await call(servers)
    assert why in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_server_that_never_gets_ready_is_given_up() -> None:
    played = PlayedServer("read")
    played.at_list = hangs
    async with living(played, options=msgspec.structs.replace(QUICK, start_deadline_s=0.05)) as servers:
        with pytest.raises(NotStarted, match=r"not ready within 0\.05 s"):
            await call(servers)


async def test_a_server_that_ends_or_floods_before_it_is_ready_is_given_up_at_once() -> None:
    played = PlayedServer("read")

    async def flood(life: Life) -> None:
        life.opening.ended("it sends what is no message")
        await anyio.sleep_forever()

    played.at_list = flood
    async with living(played, options=msgspec.structs.replace(QUICK, start_deadline_s=3600.0)) as servers:
        with pytest.raises(NotStarted, match="it sends what is no message"):
            await call(servers)


async def test_a_call_that_was_not_sent_is_made_over_the_next_connection() -> None:
    played = PlayedServer("read", "write")

    async def refuse_the_first(life: Life, tool: str, arguments: Mapping[str, Any]) -> Answer:
        if life.number == 1:
            raise NotSent("nothing answers at its address")
        return said(f"{tool} of life {life.number}")

    played.at_call = refuse_the_first
    async with living(played) as servers:
        assert await call(servers, "write") == "write of life 2"
        assert played.calls == [(1, "write"), (2, "write")]


async def test_a_call_that_cannot_be_sent_fails_as_not_done() -> None:
    played = PlayedServer("write")

    async def refuse(life: Life, tool: str, arguments: Mapping[str, Any]) -> Answer:
        raise NotSent("nothing answers at its address")

    async def refuse_again(life: Life) -> None:
        if life.number > 1:
            raise Unreachable("nothing answers at its address")

    played.at_call, played.at_open = refuse, refuse_again
    async with living(played) as servers:
        with pytest.raises(NotStarted, match=r"lib cannot be reached now \(nothing answers at its address\); nothing"):
            await call(servers, "write")
        assert played.calls == [(1, "write")]


async def test_a_call_waits_no_longer_than_it_may_and_has_sent_nothing() -> None:
    played = PlayedServer("read")
    played.at_open = hangs
    async with living(played) as servers:
        with pytest.raises(NotStarted, match="nothing was done"):
            await call(servers, wait_s=0.01)
    assert played.calls == []


async def test_a_changed_list_is_looked_at_again() -> None:
    played = PlayedServer("read")
    async with living(played) as servers:
        connection = servers.connection(SHARED)
        await connection.known()
        played.tools = listed("read", "more")
        played.life.opening.changed()
        while names(connection) != ["more", "read"]:
            await connection.next_news()
        assert connection.generation == 1


async def test_a_storm_of_changes_is_looked_at_seldom() -> None:
    played = PlayedServer("read")
    async with living(played, options=msgspec.structs.replace(QUICK, relist_pause_s=30.0)) as servers:
        await servers.connection(SHARED).known()
        for _ in range(1_000):
            played.life.opening.changed()
            await anyio.lowlevel.checkpoint()
        assert played.listings == 1


@pytest.mark.parametrize("told", ["a result", "an error"])
async def test_a_tool_that_the_server_does_not_know_has_the_list_looked_at(told: str) -> None:
    played = PlayedServer("read")

    async def unknown(life: Life, tool: str, arguments: Mapping[str, Any]) -> Answer:
        if told == "an error":
            raise ServerError("unknown", number=-32_602)
        return said("Unknown tool: read", is_error=True)

    async with living(played) as servers:
        connection = servers.connection(SHARED)
        await connection.known()
        played.at_call, played.tools = unknown, listed("other")
        try:
            await call(servers)
        except ToolError:
            assert told == "an error"
        while names(connection) != ["other"]:
            await connection.next_news()


async def test_a_list_that_never_comes_ends_the_connection() -> None:
    played = PlayedServer("read")

    async def hang_later(life: Life) -> None:
        if played.listings == 2:
            await anyio.sleep_forever()

    played.at_list = hang_later
    async with living(played, options=msgspec.structs.replace(QUICK, list_deadline_s=0.05)) as servers:
        connection = servers.connection(SHARED)
        await connection.known()
        played.life.opening.changed()
        while connection.generation == 1:
            await connection.next_news()
        assert names(connection) == ["read"]


async def test_a_list_that_fails_leaves_the_last_one() -> None:
    played = PlayedServer("read")

    async def fail_later(life: Life) -> None:
        if played.listings == 2:
            raise ServerError("its server refused", number=-1)

    played.at_list = fail_later
    async with living(played) as servers:
        connection = servers.connection(SHARED)
        await connection.known()
        with capture_logs() as logs:
            played.life.opening.changed()
            while played.listings == 1:
                await anyio.lowlevel.checkpoint()
            assert await call(servers) == "read of life 1"
        assert names(connection) == ["read"]
        assert [log["why"] for log in logs if log["event"] == "mcp.not_listed"] == ["its server refused with error -1"]


async def test_an_idle_server_is_stopped_and_still_offered() -> None:
    played = PlayedServer("read")
    async with living(played, options=msgspec.structs.replace(QUICK, idle_stop_s=0.05)) as servers:
        connection = servers.connection(SHARED)
        await connection.known()
        await until(connection, ServerState.IDLE)
        assert played.life.is_closed
        assert connection.is_known
        assert names(connection) == ["read"]
        assert await call(servers) == "read of life 2"


@pytest.mark.parametrize("was_up", [True, False])
async def test_a_server_that_was_given_up_is_tried_again_once_somebody_needs_it(was_up: bool) -> None:
    async def refuse(life: Life) -> None:
        raise Unreachable("nothing answers at its address")

    played = PlayedServer("read")
    start, played.at_open = played.at_open, played.at_open if was_up else refuse
    async with living(played, options=msgspec.structs.replace(QUICK, idle_stop_s=0.05)) as servers:
        connection = servers.connection(SHARED)
        await connection.known()
        if was_up:
            played.at_open = refuse
            played.life.die()
            await until(connection, ServerState.RESTING)
        await until(connection, ServerState.IDLE)
        assert not connection.is_known
        await connection.known()
        assert names(connection) == []
        await until(connection, ServerState.IDLE)
        played.at_open = start
        await connection.known()
        assert names(connection) == ["read"]


async def test_a_server_at_work_is_not_stopped_for_idleness() -> None:
    played = PlayedServer("read")

    async def slow(life: Life, tool: str, arguments: Mapping[str, Any]) -> Answer:
        await anyio.sleep(0.2)
        return said("slow")

    played.at_call = slow
    async with living(played, options=msgspec.structs.replace(QUICK, idle_stop_s=0.05)) as servers:
        assert await call(servers) == "slow"
        assert len(played.lives) == 1


async def test_a_connection_that_is_slow_to_close_holds_up_nobody() -> None:
    played = PlayedServer("read")

    async def slow(life: Life) -> None:
        with anyio.move_on_after(0.05):
            await anyio.sleep_forever()

    played.at_close = slow
    async with living(played, options=msgspec.structs.replace(QUICK, close_deadline_s=0.01)) as servers:
        await servers.connection(SHARED).known()
        played.life.die()
        assert await call(servers) == "read of life 2"
        assert played.lives[0].is_closed


async def test_mcp_02_connections_close_in_any_order_and_with_calls_in_flight() -> None:
    played = PlayedServer("read")
    one = McpServer(command="x")
    async with anyio.create_task_group() as tasks, living(played, a=one, b=one, c=one) as servers:
        for name in servers.servers:
            await servers.connection(Link(name)).known()
        played.lives[0].die()  # the one that was opened first
        assert await call(servers, link=Link("c")) == "read of life 3"
        played.at_call = hanging = Hanging()

        async def calling() -> None:
            with pytest.raises(ConnectionLost):
                await call(servers, link=Link("b"))

        tasks.start_soon(calling)
        await hanging.begun.wait()
    assert all(life.is_closed for life in played.lives)


async def test_a_cancelled_call_leaves_the_connection_alone() -> None:
    played = PlayedServer("read")
    async with living(played) as servers:
        await servers.connection(SHARED).known()
        echo, played.at_call = played.at_call, Hanging()
        with anyio.move_on_after(0.01):
            await call(servers)
        played.at_call = echo
        assert await call(servers) == "read of life 1"
        assert servers.connection(SHARED).calls == 0


def own() -> McpServer:
    return McpServer(command="x", credentials="{principal}", env={"KEY": Reference(credential=True)})


async def test_each_user_has_a_connection_with_their_own_credential(tmp_path: Path) -> None:
    for name in ("ada", "bob"):
        (tmp_path / name).write_text(f"key of {name}")
    played = PlayedServer("read")
    async with living(played, home=tmp_path, lib=own()) as servers:
        links = [servers.links(["lib"], tenant="t", principal=name) for name in ("ada", "bob", "eve", "")]
        assert links[2:] == [(), ()]
        assert [await call(servers, link=link) for (link,) in links[:2]] == ["read of life 1", "read of life 2"]
        assert [life.opening.env for life in played.lives] == [{"KEY": "key of ada"}, {"KEY": "key of bob"}]


async def test_a_user_without_a_credential_is_told_once_until_there_is_one(tmp_path: Path) -> None:
    async with living(PlayedServer("read"), home=tmp_path, lib=own()) as servers:
        with capture_logs() as logs:
            for _ in range(2):
                servers.links(["lib"], tenant="t", principal="ada")
        row = next(each for each in servers.standings() if each.principal)
        (tmp_path / "ada").write_text("key")
        servers.links(["lib"], tenant="t", principal="ada")
        assert not any(each.principal for each in servers.standings())

    assert [(log["event"], log["server"], log["tenant"], log["principal"]) for log in logs] == [
        ("mcp.no_credential", "lib", "t", "ada")
    ]
    assert (row.server, row.tenant, row.principal, row.state) == ("lib", "t", "ada", ServerState.IDLE)
    assert row.why == "there is no credential for this user"


async def test_for_whom_a_server_is_switched_off_is_told_of_it(tmp_path: Path) -> None:
    tables = {"lib": McpServer(command="x", flag="tool.odd"), "other": McpServer(command="x")}
    servers = McpServers(
        tables,
        home=tmp_path,
        values=Values(tmp_path, {}),
        open_=PlayedServer("read").open,
        options=QUICK,
        chance=lambda: 0.5,
        off=lambda key: f"off by {key}" if key == "tool.odd" else "",
    )

    assert [(each.server, each.off) for each in servers.standings()] == [("lib", "off by tool.odd"), ("other", "")]


async def test_the_connection_that_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    for name in ("ada", "bob", "cy"):
        (tmp_path / name).write_text("key")
    played = PlayedServer("read")
    options = msgspec.structs.replace(QUICK, connections_max=2)
    async with living(played, options=options, home=tmp_path, lib=own()) as servers:
        ada, bob, cy = (servers.links(["lib"], tenant="t", principal=name)[0] for name in ("ada", "bob", "cy"))
        await call(servers, link=ada)
        await call(servers, link=bob)
        await call(servers, link=ada)
        await call(servers, link=cy)
        await anyio.wait_all_tasks_blocked()
        assert [life.is_closed for life in played.lives] == [False, True, False]
        assert servers.statistics().up == {"lib": 2}
        assert servers.statistics().lost == {"lib": 0}


async def test_who_waits_for_a_connection_keeps_it(tmp_path: Path) -> None:
    for name in ("ada", "bob"):
        (tmp_path / name).write_text("key")
    played = PlayedServer("read")
    opened, opens = anyio.Event(), anyio.Event()

    async def slowly(life: Life) -> None:
        opened.set()
        await opens.wait()

    played.at_open = slowly
    options = msgspec.structs.replace(QUICK, connections_max=1)
    async with living(played, options=options, home=tmp_path, lib=own()) as servers:
        ada, bob = (servers.links(["lib"], tenant="t", principal=name)[0] for name in ("ada", "bob"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(servers.connection(ada).known)
            await opened.wait()
            with pytest.raises(NotStarted, match="too many servers"):
                await servers.reached(bob, wait_s=0.0)

            async def waits() -> None:
                await (await servers.reached(bob, wait_s=30.0)).known()

            tasks.start_soon(waits)
            opens.set()
        assert await call(servers, link=bob) == "read of life 2"
        assert await call(servers, link=ada) == "read of life 3"


async def test_a_connection_that_is_refused_is_replaced_once_its_calls_are_over() -> None:
    played = PlayedServer("read", "write")
    begun, ends = anyio.Event(), anyio.Event()

    async def refuse(life: Life, tool: str, arguments: Mapping[str, Any]) -> Answer:
        if life.number == 1 and tool == "write":
            begun.set()
            await ends.wait()
        elif life.number == 1:
            life.opening.stale("it answered HTTP 401")
            raise NotStarted("it did not accept who asks")
        return said(f"{tool} of life {life.number}")

    played.at_call = refuse
    told = list[str]()

    async def write() -> None:
        told.append(await call(servers, "write"))

    async def read() -> None:
        told.append(await call(servers))

    async with living(played) as servers:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await begun.wait()
            with pytest.raises(NotStarted):
                await call(servers)
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert len(played.lives) == 1
            ends.set()
        assert told == ["write of life 1", "read of life 2"]


async def test_numbers_tell_how_all_stand() -> None:
    played = PlayedServer("read", "write")
    played.tools += [{"name": "bad"}, 7]
    played.tools[-2] = {"name": "bad", "inputSchema": 1}
    async with living(played, lib=McpServer(command="x"), other=McpServer(command="x")) as servers:
        await servers.connection(SHARED).known()
        told = servers.statistics()
        assert (told.up, told.tools, told.rejected) == (
            {"lib": 1, "other": 0},
            {"lib": 2, "other": 0},
            {"lib": 2, "other": 0},
        )
        assert told.connections[ServerState.UP] == 1
        played.life.die()
        await call(servers)
        assert servers.statistics().lost == {"lib": 1, "other": 0}
