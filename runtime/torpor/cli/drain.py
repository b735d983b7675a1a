"""``torpor drain``: ends a server gently, and shows what that waits for."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import anyio
import click

from torpor.cli.output import json_option, print_json
from torpor.cli.remote import ANSWER_DEADLINE_S, REACH_DEADLINE_S, Server, server_options, unanswered
from torpor.client.failures import ConnectionLost
from torpor.client.torpor_client import TorporClient
from torpor.errors import Unauthenticated
from torpor.records.frames import Welcome

_LOOK_S: Final = 0.5
_ENDS_S: Final = 30.0
"""Within which a process is gone once it has closed its last connection."""

Row = dict[str, Any]


@click.command(short_help="End a server after the steps that run.")
@click.option(
    "--wait",
    "deadline_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    show_default="the configured time",
    help="How long running turns may take to come to the end of a step.",
)
@server_options
@json_option
def command(*, deadline_s: float | None, server: Server, as_json: bool) -> None:
    """Have the server end as with SIGTERM, and wait until it has. Operators only.

    No turn begins any more. Those that run come to the end of the model call or the tools that are under way; what
    takes longer is cut off. What is not done goes on at the next start. Pressing Ctrl-C here leaves the server to it.
    """
    anyio.run(_drain, server, deadline_s, print_json if as_json else _Lines().show)


class _Lines:
    """Says in words what is new."""

    def __init__(self) -> None:
        self._said = ""

    def show(self, row: Row) -> None:
        said = "the server has ended" if row.get("ended") else in_words(row)
        if said != self._said:
            click.echo(said)
        self._said = said


def in_words(row: Row) -> str:
    """What is waited for."""
    turns, jobs = row["turns"], row["jobs"]
    if not turns and not jobs:
        return "draining, nothing runs any more"
    running = [f"{count} {what}{'s' * (count > 1)}" for count, what in ((turns, "turn"), (jobs, "job")) if count]
    return f"draining, {' and '.join(running)} still {'run' if turns + jobs > 1 else 'runs'}"


async def _drain(server: Server, deadline_s: float | None, show: Callable[[Row], None]) -> None:
    url, token = await server.reached()
    connection = _Connection()
    pid = server.pid(url)
    async with server.client(url, token, on_connection=connection.changed) as client:
        try:
            with anyio.fail_after(ANSWER_DEADLINE_S), suppress(ConnectionLost):  # which may be how it ends
                show(await client.drain(deadline_s=deadline_s))
        except TimeoutError as exc:
            raise unanswered(url, client) from exc
        while True:
            await _watch(client, connection, show)
            if not await server.listens(url) or await _is_another(client):
                break
    if pid is not None and not await server.ended(pid, within_s=_ENDS_S):
        raise click.ClickException(f"{url} is closed, but its process {pid} still runs")
    show({"ended": True})


class _Connection:
    """Whether it is there."""

    def __init__(self) -> None:
        self.lost = anyio.Event()

    def changed(self, welcome: Welcome | None) -> None:
        if welcome is None:
            self.lost.set()
        elif self.lost.is_set():
            self.lost = anyio.Event()


async def _watch(client: TorporClient, connection: _Connection, show: Callable[[Row], None]) -> None:
    """Show how far it is, until the connection is lost."""
    async with anyio.create_task_group() as tasks:

        async def look() -> None:
            while True:
                await anyio.sleep(_LOOK_S)
                rooms = await client.server_statistics()
                show({"draining": True, "turns": rooms["drain"]["turns_left"], "jobs": rooms["jobs"]["running"]})

        tasks.start_soon(look)
        await connection.lost.wait()
        tasks.cancel_scope.cancel()


async def _is_another(client: TorporClient) -> bool:
    """Whether whoever listens there now does not drain."""
    try:
        with anyio.move_on_after(REACH_DEADLINE_S):
            return not (await client.server_statistics())["drain"]["draining"]
    except Unauthenticated:
        return True
    return False
