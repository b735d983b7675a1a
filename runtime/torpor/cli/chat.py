"""``torpor chat``: a conversation in a plain terminal, or through pipes."""

import shutil
import sys
from contextlib import ExitStack
from typing import Final

import anyio
import click

from torpor.cli.attaching import why_not
from torpor.cli.chat_session import ChatSession
from torpor.cli.destination import Destination, destination
from torpor.cli.keyboard import Keyboard
from torpor.cli.lines import lines_of
from torpor.cli.remote import ANSWER_DEADLINE_S, Server, server_options, standard_input, unanswered
from torpor.cli.screen import Screen
from torpor.clock import RandomIds
from torpor.records.frames import Welcome

_PROMPT: Final = "> "


@click.command(short_help="Talk to an agent in the terminal.")
@click.option(
    "--conversation",
    metavar="ID",
    show_default="a new one",
    help="Go on in this one, by any part from the end that is unique.",
)
@click.option("--agent", default="", metavar="NAME", show_default="the home's", help="Of a conversation that is made.")
@server_options
def command(*, conversation: str | None, agent: str, server: Server) -> None:
    """Talk to an agent: one line is one message.

    Ctrl-C cancels the running turn; pressed again, or when none is running, it leaves. So does the end of input
    (Ctrl-D), after the last reply. The conversation keeps, and --conversation goes on in it.

    What begins with a slash and a word is no message: /attach FILE sends a file along, /retry and /continue take up a
    turn that failed, /help tells what there is. A second slash before it makes it one.

    What is typed while a reply streams stands below it and is sent with Enter. Backspace, Ctrl-W and Ctrl-U take back a
    character, a word, all of it.
    """
    anyio.run(_chat, server, conversation, agent)


async def _chat(server: Server, wanted: str | None, agent: str) -> None:
    url, token = await server.reached()
    source = standard_input()
    session: ChatSession | None = None

    def on_connection(welcome: Welcome | None) -> None:
        if session is not None and client.ended is None:  # that is told by itself, behind what was said before it
            session.on_connection(is_there=welcome is not None)

    async with server.client(url, token, on_connection=on_connection) as client:
        try:
            with anyio.fail_after(ANSWER_DEADLINE_S):
                welcome = await client.connected()
                place = Destination(f"c-{RandomIds().new_id()[:8]}", is_new=True)
                if wanted is not None:
                    place = await destination(client, wanted)
        except TimeoutError as exc:
            raise unanswered(url, client) from exc
        conversation = place.name
        new = ", a new one" if wanted is not None and place.is_new else ""
        with ExitStack() as opened:
            is_terminal = source.isatty() and sys.stdout is not None and sys.stdout.isatty()
            keyboard = opened.enter_context(Keyboard(source.fileno())) if is_terminal else None
            screen = Screen(_write, prompt=_PROMPT if keyboard else "", columns=_columns)
            screen.note(
                f"conversation {conversation}{new}; Ctrl-C cancels the running turn, and leaves when pressed again"
            )
            session = ChatSession(
                client,
                conversation,
                agent=agent,
                screen=screen,
                echoes=not source.isatty(),
                on_continue=keyboard.take if keyboard else lambda: None,
                why_not=lambda files: why_not(welcome, conversation, files=files),
            )
            lines = keyboard.lines(screen.typed) if keyboard else lines_of(source.fileno())
            try:
                async with client.watch(conversation) as watch:
                    await session.run(watch, lines=lines)
            finally:
                session = None  # what becomes of the connection from here on is our own doing


def _write(text: str) -> None:
    click.echo(text, nl=False)


def _columns() -> int:
    return shutil.get_terminal_size().columns
