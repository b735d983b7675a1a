"""MCP servers as a running server has them; it is asked, and nothing is started."""

from collections.abc import Sequence
from typing import Any, Final

import anyio
import click

from torpor.cli.output import print_table
from torpor.cli.remote import ANSWER_DEADLINE_S, Server, ask
from torpor.errors import TorporError

Row = dict[str, Any]

_DOWN: Final = "resting"


def running_rows(server: Server) -> Sequence[Row] | None:
    """A row for each connection; None where no server of this home runs that could be asked.

    Raises: click.ClickException: the one that the command line names cannot be asked. ClientError: likewise.
    """
    if server.url is not None:
        return ask(server, lambda questions: questions.client.mcp_servers())
    try:
        url, token = server.address()
    except click.ClickException:
        return None
    return anyio.run(_asked, server, url, token) if server.pid(url) is not None else None


async def _asked(server: Server, url: str, token: str) -> Sequence[Row] | None:
    if not await server.listens(url):
        return None
    try:
        async with server.client(url, token) as client:
            with anyio.move_on_after(ANSWER_DEADLINE_S):
                return await client.mcp_servers()
    except TorporError:  # of an older version, or another home's by now
        return None
    return None


def show_running(rows: Sequence[Row]) -> None:
    """As a table, and below it what programs wrote that ended by themselves."""
    head = ("SERVER", "USER", "STATE", "FLAG", "STARTS", "LOST", "TOOLS", "LEFT OUT", "TOKENS", "LAST ERROR")
    cells = [
        (
            row["server"],
            f"{row['tenant']}/{row['principal']}" if row["principal"] else "-",
            row["state"],
            row.get("off") or "-",  # an older server does not tell
            row["generation"],
            row["lost"],
            row["tools"],
            row["rejected"],
            f"{row['tokens']:,}",
            row["why"] or "-",
        )
        for row in rows
    ]
    print_table(head, cells)
    for row in rows:
        show_printed(row["server"], row["printed"])


def show_printed(server: str, printed: str) -> None:
    for line in printed.splitlines():
        click.echo(f"torpor: {server} wrote: {line}", err=True)


def all_work(rows: Sequence[Row]) -> bool:
    """Whether none of them is down; one that nobody needs is not."""
    return all(row["state"] != _DOWN for row in rows)
