"""``torpor mcp``: the MCP servers of a home, each started or reached once, and what its tools cost."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import click
import msgspec

from torpor.cli.folders import home_option
from torpor.cli.mcp_running import all_work, running_rows, show_printed, show_running
from torpor.cli.output import json_option, print_json, print_table
from torpor.cli.remote import Server, server_options
from torpor.clock import SystemClock, chance
from torpor.errors import ConfigError
from torpor.flags.face import Flags
from torpor.home import mcp_servers
from torpor.operations.logs import configure_logs
from torpor.operations.redaction import masked
from torpor.records.ids import DEFAULT_TENANT
from torpor.settings import Settings, read_settings
from torpor.toolhost.mcp.connection import Connection
from torpor.toolhost.mcp.listing import tokens_of
from torpor.toolhost.mcp.options import MCP_FILE, McpOptions
from torpor.toolhost.mcp.servers import Link, McpServers
from torpor.toolhost.mcp.values import NO_CREDENTIAL

_GRACE_S: Final = 1.0
"""Beyond the server's own deadline, within which it is known how it went."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One server."""

    server: str
    at: str
    whose: str
    state: str
    """``up``, or why not."""
    is_up: bool
    was_tried: bool = True
    """Not where each user has a credential, and nobody said whose to take."""
    off: str
    """For whom its flag switches it off, in words; empty where for nobody."""
    tools: int
    rejected: int
    tokens: int
    printed: str
    """The last lines that a program wrote which ended by itself; empty where they were shown already."""


@click.group(short_help="Show MCP servers, and test one.")
def command() -> None:
    """The MCP servers that config/mcp.toml names."""


@command.command("list", short_help="List them as the running server has them, or start each once.")
@click.option("--start", "is_started", is_flag=True, help="Start or reach each once, also where a server runs.")
@click.option("--tenant", default=DEFAULT_TENANT, metavar="TENANT", show_default=True, help="Of --user.")
@click.option("--user", default="", metavar="NAME", help="Start them, with this credential where each user has one.")
@server_options
@json_option
def list_(*, server: Server, is_started: bool, tenant: str, user: str, as_json: bool) -> int:
    """List the servers with their state, their tools and the tokens that these cost; exit with 1 if one is down.

    A running server of this home is asked how its connections stand: how often each was started and lost, and why.
    Where none runs, each server is started or reached anew, once.
    """
    running = None if is_started or user else running_rows(server)
    if running is not None:
        return _list_running(running, as_json=as_json)
    servers = _servers(_settings(server.home))
    if not servers.servers:
        click.echo(f"{MCP_FILE} names no server")
        return 0
    rows = anyio.run(_looked_at, servers, tenant, user)
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(
            ("SERVER", "AT", "WHOSE", "STATE", "FLAG", "TOOLS", "LEFT OUT", "TOKENS"), [_cells(row) for row in rows]
        )
    for row in rows:
        show_printed(row.server, row.printed)
    down = [row for row in rows if row.was_tried and not row.is_up]
    silent = [row.server for row in down if row.state != NO_CREDENTIAL and servers.servers[row.server].command]
    if silent:
        click.echo(f"torpor: what a program says of itself is shown by `torpor mcp test {silent[0]}`", err=True)
    return 1 if down else 0


def _list_running(rows: Sequence[dict[str, Any]], *, as_json: bool) -> int:
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        show_running(rows)
        click.echo("torpor: so they stand in the running server; --start starts each once instead", err=True)
    else:
        click.echo("the running server has no MCP server")
    return 0 if all_work(rows) else 1


@command.command(short_help="Start one server, and show its tools.")
@click.argument("name")
@click.option("--tenant", default=DEFAULT_TENANT, metavar="TENANT", show_default=True, help="Of --user.")
@click.option("--user", default="", metavar="NAME", help="Whose credential is used where each user has one.")
@home_option
@json_option
def test(name: str, *, home: Path, tenant: str, user: str, as_json: bool) -> int:
    """Start or reach the server NAME, and show each of its tools with its effect and what it costs, or why it is left
    out; exit with 1 if the server is not up. What a program writes to standard error is shown."""
    settings = _settings(home)
    if name not in settings.mcp_servers:
        known = ", ".join(settings.mcp_servers)
        expected = f"expected one of: {known}" if known else "which names none"
        raise click.UsageError(f"there is no server {name!r} in {MCP_FILE}, {expected}")
    servers = _servers(settings, shows_errors=True)
    row, connection = anyio.run(_tested, servers, name, tenant, user)
    tools = connection.listing.tools if connection is not None and row.is_up else ()
    rejected = connection.listing.rejected if connection is not None and row.is_up else ()
    unmet = connection.listing.unmet if connection is not None and row.is_up else ()
    if as_json:
        print_json(row)
        for tool in tools:
            print_json({"tool": tool.name, "calls": tool.title, "effect": tool.effect, "tokens": tokens_of(tool)})
        for left_out in rejected:
            print_json({"left_out": left_out.title, "why": left_out.why})
        for unknown in unmet:
            print_json({"unknown": unknown.title, "why": unknown.why})
    else:
        click.echo(f"{name} at {row.at}, {row.whose}: {row.state}{f', {row.off}' if row.off else ''}")
        lines = [(tool.name, tool.title, tool.effect.value, "offered", f"{tokens_of(tool):,}") for tool in tools]
        lines += [("-", left_out.title, "-", left_out.why, "0") for left_out in (*rejected, *unmet)]
        if lines:
            print_table(("TOOL", "AS THE SERVER CALLS IT", "EFFECT", "STATE", "TOKENS"), lines)
    return 0 if row.is_up else 1


def _cells(row: Row) -> tuple[str, ...]:
    numbers = (str(row.tools), str(row.rejected), f"{row.tokens:,}")
    return (row.server, row.at, row.whose, row.state, row.off or "-", *numbers)


def _servers(settings: Settings, *, shows_errors: bool = False) -> McpServers:
    flags = Flags(settings.home, clock=SystemClock(), options=settings.flags)
    try:
        flags.load()
    except ConfigError as exc:  # what a server is like can be seen without them
        click.echo(f"torpor: {exc}", err=True)
    return mcp_servers(settings, environ=os.environ, chance=chance, off=flags.off_in_words, shows_errors=shows_errors)


def _settings(home: Path) -> Settings:
    settings = read_settings(home.resolve(), os.environ)
    configure_logs(msgspec.structs.replace(settings.logs, level="error"))
    return settings


async def _looked_at(servers: McpServers, tenant: str, user: str) -> Sequence[Row]:
    """All at the same time."""
    rows: dict[str, Row] = {}

    async def look(name: str) -> None:
        rows[name], _ = await _look(servers, name, tenant=tenant, user=user)

    async with servers.running(), anyio.create_task_group() as tasks:
        for name in servers.servers:
            tasks.start_soon(look, name)
    return [rows[name] for name in servers.servers]


async def _tested(servers: McpServers, name: str, tenant: str, user: str) -> tuple[Row, Connection | None]:
    async with servers.running():
        return await _look(servers, name, tenant=tenant, user=user)


async def _look(servers: McpServers, name: str, *, tenant: str, user: str) -> tuple[Row, Connection | None]:
    server = servers.servers[name]
    links = servers.links([name], tenant=tenant, principal=user)
    whose = "shared" if not server.is_users_own else f"of {user}" if user else "of each user"
    if not links:
        why = NO_CREDENTIAL if user else "not tried: each user has a credential, --user says whose"
        return _row(name, servers, whose=whose, state=why, was_tried=bool(user)), None
    connection = await _connected(servers, links[0], servers.options)
    standing = connection.standing()
    is_up = connection.generation > 0
    return _row(name, servers, whose=whose, state="up" if is_up else standing.why, connection=connection), connection


async def _connected(servers: McpServers, link: Link, options: McpOptions) -> Connection:
    connection = servers.connection(link)
    with anyio.move_on_after(options.start_deadline_s + options.close_deadline_s + _GRACE_S):
        await connection.known()
    return connection


def _row(
    name: str,
    servers: McpServers,
    *,
    whose: str,
    state: str,
    was_tried: bool = True,
    connection: Connection | None = None,
) -> Row:
    listing = connection.listing if connection is not None else None
    tools = listing.tools if listing is not None else ()
    return Row(
        server=name,
        at=servers.servers[name].place,
        whose=whose,
        state=state or "it does not answer",
        is_up=state == "up",
        was_tried=was_tried,
        off=servers.off(name),
        tools=len(tools),
        rejected=len(listing.rejected) if listing is not None else 0,
        tokens=sum(map(tokens_of, tools)),
        printed=masked(connection.standing().printed) if connection is not None else "",
    )
