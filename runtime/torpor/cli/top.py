"""``torpor top``: a live view of what a server is doing."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import click

from torpor.cli.keyboard import Keyboard
from torpor.cli.lines import readable
from torpor.cli.output import json_option, print_json
from torpor.cli.questions import Questions
from torpor.cli.remote import ANSWER_DEADLINE_S, Server, ask, server_options, unanswered
from torpor.cli.top_view import Look, cut, view
from torpor.client.torpor_client import TorporClient
from torpor.clock import SystemClock
from torpor.records.frames import Welcome

_LOOK_S: Final = 1.0
_TURNS_MAX: Final = 500
_UNBOUND: Final = 200
"""Columns where there is no terminal."""
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""Another screen, without a cursor."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_END_LINE: Final = "\x1b[K"
_END_SCREEN: Final = "\x1b[J"
_QUITS: Final = b"qQ\x03\x04"


@click.command(short_help="Watch what a server is doing.")
@click.option("--once", is_flag=True, help="Print one view and leave; so it does where there is no terminal.")
@server_options
@json_option
def command(*, once: bool, server: Server, as_json: bool) -> None:
    """Show what a server is doing, anew each second, until q or Ctrl-C. Operators only.

    Below the numbers of the server stand the turns that run, the oldest first: for how long, the step that is under
    way, what it is of (the model that is asked, the tools that run), and for how long that has been. With --json, each
    view is one line, until Ctrl-C.
    """
    is_terminal = sys.stdout is not None and sys.stdout.isatty() and sys.stdin is not None and sys.stdin.isatty()
    if once or not (as_json or is_terminal):
        url, _ = server.address()
        look = ask(server, _looked_by)
        if as_json:
            print_json(look)
        else:
            click.echo("\n".join(view(look, name=url, columns=_columns())))
        return
    try:
        anyio.run(_stream if as_json else _live, server)
    except KeyboardInterrupt:
        return


async def _looked_by(connected: Questions) -> Look:
    return await looked(connected.client)


async def looked(client: TorporClient) -> Look:
    """What the server says now."""
    rooms = await client.server_statistics()
    turns = await client.turns(limit=_TURNS_MAX)
    return Look(at_us=SystemClock().now_us(), rooms=rooms, turns=turns)


async def _stream(server: Server) -> None:
    """A line a second."""
    url, token = await server.reached()
    async with server.client(url, token) as client:
        while True:
            try:
                with anyio.fail_after(ANSWER_DEADLINE_S):
                    print_json(await looked(client))
            except TimeoutError as exc:
                raise unanswered(url, client) from exc
            await anyio.sleep(_LOOK_S)


async def _live(server: Server) -> None:
    """A screen of its own, and the terminal as it was behind it."""
    url, token = await server.reached()
    screen = _Screen(url)
    async with server.client(url, token, on_connection=screen.connected) as client:
        try:
            with anyio.fail_after(ANSWER_DEADLINE_S):
                await looked(client)  # a token that may not is told before anything is drawn
        except TimeoutError as exc:
            raise unanswered(url, client) from exc
        with Keyboard(sys.stdin.fileno()) as keyboard, _own_screen():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_quit, tasks.cancel_scope)
                tasks.start_soon(_look_after, keyboard, screen, tasks.cancel_scope)
                while True:
                    with anyio.move_on_after(_LOOK_S):
                        screen.show(await looked(client))
                    screen.draw()
                    await anyio.sleep(_LOOK_S)


class _Screen:
    """Draws the last look, and says when there is no server to look at."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._look: Look | None = None
        self._before: Look | None = None
        self._is_connected = True

    def connected(self, welcome: Welcome | None) -> None:
        self._is_connected = welcome is not None

    def show(self, look: Look) -> None:
        self._before, self._look = self._look, look

    def draw(self) -> None:
        columns, rows = shutil.get_terminal_size()
        name = self._url if self._is_connected else f"{self._url} (connection lost, trying again)"
        lines = []
        if self._look is not None:
            lines = view(self._look, name=name, before=self._before, columns=columns - 1, rows=max(2, rows - 2))
        lines += [""] * (rows - 2 - len(lines)) + [cut("q leaves", columns - 1)]
        _write(_HOME + "".join(f"{line}{_END_LINE}\r\n" for line in lines) + _END_SCREEN)


@contextmanager
def _own_screen() -> Iterator[None]:
    _write(_ENTER)
    try:
        yield
    finally:
        _write(_LEAVE)


async def _quit(scope: anyio.CancelScope) -> None:
    descriptor = sys.stdin.fileno()
    while True:
        await readable(descriptor)
        keys = os.read(descriptor, 64)
        if not keys or set(keys) & set(_QUITS):
            scope.cancel()
            return


async def _look_after(keyboard: Keyboard, screen: _Screen, scope: anyio.CancelScope) -> None:
    """Leave the terminal as it was when told to end, and take it again after a stop; draw when its size changes."""
    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGCONT, signal.SIGWINCH)
    with anyio.open_signal_receiver(*watched) as signals:
        async for number in signals:
            match number:
                case signal.SIGCONT:
                    keyboard.take()
                    _write(_ENTER)
                    screen.draw()
                case signal.SIGWINCH:
                    screen.draw()
                case _:
                    scope.cancel()


def _write(text: str) -> None:
    click.echo(text, nl=False)


def _columns() -> int:
    return shutil.get_terminal_size(fallback=(_UNBOUND, 0)).columns
