"""``torpor serve``: runs the engine in a home until it is told to stop."""

import errno
import os
import resource
import shlex
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import click
import msgspec
import structlog

from torpor import app
from torpor.cli.folders import data_folder, data_option, home_option, where
from torpor.cli.local_model import model_file_option, model_option, with_local_model
from torpor.cli.output import json_option, print_json, program
from torpor.cli.stop import Stop
from torpor.gateway.exposure import reachable_here
from torpor.model.registry import is_rehearsed
from torpor.operations.logs import server_logs
from torpor.settings import Settings, read_settings
from torpor.toolhost.failures import place_of

_log = structlog.get_logger()

_STOP_SLACK_S: Final = 5.0
"""For what a stopping server does beside waiting."""
_ENDED_FROM_WITHIN: Final = 70
"""The exit code where code of a home asked for the end of the process."""


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs to know of a server that is ready."""

    url: str
    token: str
    """The development token; empty where others than this machine may connect, since what is printed may be kept."""
    data: str


@click.command(short_help="Start the engine in an agent home.")
@home_option
@data_option
@click.option("--host", metavar="ADDRESS", help="Where to listen, instead of the configured address.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Instead of the configured one; 0 picks a free one.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Instead of the configured one."
)
@model_option
@model_file_option
@json_option
def command(
    home: Path,
    *,
    data: Path | None,
    host: str | None,
    port: int | None,
    log_level: str | None,
    instead: str | None,
    model_file: Path | None,
    as_json: bool,
) -> None:
    """Start the engine and serve until Ctrl-C, SIGTERM, the end of its terminal or `torpor drain`.

    No turn begins any more then, and running ones come to the end of their step within a deadline; what is left goes on
    at the next start. A second signal ends the process at once with exit code 137, and loses nothing that was
    acknowledged.
    """
    settings = with_local_model(
        read_settings(home.resolve(), os.environ), instead=instead, file=model_file, environ=os.environ
    )
    level = settings.logs.level if log_level is None else log_level
    folder = data_folder(home, data).resolve()
    _take_descriptors()

    async def serve() -> None:
        stop = Stop(bound_s=_bound_s(settings, drain_s=settings.supervisor.stop_deadline_s))
        stop.listen()
        async with app.running(settings, data=folder, host=host, port=port) as running:
            token = running.development_token if running.is_development else ""
            ready = Announcement(url=running.url, token=token, data=str(folder))
            if as_json:
                print_json(ready)
            else:
                listens = settings.gateway.host if host is None else host
                _announce(ready, settings, listens=listens, chat=_chat_command(ready, home=home, data=data))
            await stop.wait(running.drain)
            stop.end_within(_bound_s(settings, drain_s=running.drain.left_s()))
            if not as_json:
                with suppress(OSError):  # of a terminal that was closed, which is what SIGHUP tells
                    click.echo("stopping, running turns come to the end of a step first")

    try:
        with server_logs(msgspec.structs.replace(settings.logs, level=level)):
            _run(serve)
    except* OSError as faults:
        options = settings.gateway
        listens = (options.host if host is None else host, options.port if port is None else port)
        raise _told(faults, address=listens) from None


def _run(serve: Callable[[], Awaitable[None]]) -> None:
    """A callback on the event loop that asks for an exit ends it; whoever restarts servers must not take that for one
    that was told to stop."""
    try:
        anyio.run(serve)
    except SystemExit as exc:
        _log.critical("server.ended_from_within", code=str(exc.code), where=place_of(exc))
        raise SystemExit(_ENDED_FROM_WITHIN) from exc


def _bound_s(settings: Settings, *, drain_s: float) -> float:
    """Of a server that ends, from the beginning of its drain on."""
    bound_s = drain_s + 2 * settings.gateway.close_deadline_s + _STOP_SLACK_S
    return min(bound_s, threading.TIMEOUT_MAX)  # some 290 years, beyond which no timer can be set


def _take_descriptors() -> None:
    """A connection costs a descriptor, and many systems give a process few of those it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _told(faults: ExceptionGroup[OSError], *, address: tuple[str, int]) -> Exception:
    """What stands in the way of listening, with the remedy; any other fault as it is."""
    while isinstance(fault := faults.exceptions[0], ExceptionGroup):
        faults = fault
    host, port = address
    if isinstance(fault, socket.gaierror):
        return click.ClickException(f"no address is known for the host {host!r}, name another with --host")
    if fault.errno == errno.EADDRINUSE:
        return click.ClickException(f"port {port} of {host} is in use, name another with --port or let 0 pick one")
    if fault.errno in {errno.EADDRNOTAVAIL, errno.EACCES} and not fault.filename:
        return click.ClickException(f"cannot listen on port {port} of {host}, {os.strerror(fault.errno).lower()}")
    return fault


def _announce(ready: Announcement, settings: Settings, *, listens: str, chat: str) -> None:
    rehearsed, real = _by_model(settings)
    click.echo(f"serving the agent home {settings.home}")
    click.echo(f"  address  {ready.url}")
    if reachable_here(listens) != listens:
        click.echo("           (for this machine; it listens on every address, elsewhere say a name of this machine)")
    click.echo(f"  data     {ready.data}")
    if ready.token:
        click.echo(f"  token    {ready.token}")
        click.echo("           (for development: it never expires and may do everything)")
    if real:
        click.echo(f"  models   {', '.join(f'{name}: {model}' for name, model in real.items())}")
    if any(agent.model["kind"] == "local" for agent in settings.agents):
        click.echo("\nA small model on this machine says false things with confidence, and cannot decide on tools.")
        click.echo("It is for trying the engine, and no source of advice on health or anything else that matters.")
    if rehearsed:
        names = ", ".join(rehearsed)
        click.echo(f"\nNo language model is behind {names}: its replies are scripted, played from config/rehearsals.")
        click.echo("Everything else is real: tools, journal, streaming, cancellation, recovery.")
        if variables := ", ".join(sorted(set(filter(None, rehearsed.values())))):
            click.echo(
                f"For a real model, set {variables} and start again; `{program()} doctor` tells whether it works."
            )
    click.echo(f"\nto chat, in another terminal:\n  {chat}")
    click.echo("Ctrl-C stops the server")


def _by_model(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """Who is rehearsed, with the variable that would change it, and who has a model, with its name."""
    rehearsed, real = {}, {}
    for agent in settings.asking:
        if is_rehearsed(agent.model, environ=os.environ, where=agent.where):
            is_scripted = agent.model.get("kind") == "scripted"
            rehearsed[agent.name] = "" if is_scripted else str(agent.model.get("key_env", "ANTHROPIC_API_KEY"))
        else:
            is_local = agent.model.get("kind") == "local"
            real[agent.name] = f"{Path(agent.model['path']).name} (local)" if is_local else str(agent.model["model"])
    return rehearsed, real


def _chat_command(ready: Announcement, *, home: Path, data: Path | None) -> str:
    """What finds this very server from the current directory."""
    if data is None:
        return f"{program()} chat{where(home)}"
    token = ready.token or "TOKEN"
    return f"{program()} chat --url {shlex.quote(ready.url)} --token {token}"
