"""``torpor chat``: a conversation in a plain terminal, or through pipes."""

import sys
from typing import Final

import anyio
import click

from torpor.cli.chat_session import ChatSession
from torpor.cli.remote import ANSWER_DEADLINE_S, Server, server_options, standard_input
from torpor.cli.screen import Screen
from torpor.client.torpor_client import TorporClient
from torpor.clock import RandomIds
from torpor.records.frames import Welcome

_PROMPT: Final = "> "


@click.command(short_help="Talk to an agent in the terminal.")
@click.option("--conversation", metavar="ID", show_default="a new one", help="Go on in this one.")
@click.option("--agent", default="", metavar="NAME", show_default="the home's", help="Of a conversation that is made.")
@server_options
def command(*, conversation: str | None, agent: str, server: Server) -> None:
    """Talk to an agent: one line is one message.

    Ctrl-C cancels the running turn, and at the prompt leaves; so does the end of input, after the last reply. The
    conversation keeps, and --conversation goes on in it.
    """
    anyio.run(_chat, server, conversation or f"c-{RandomIds().new_id()[:8]}", agent)


async def _chat(server: Server, conversation: str, agent: str) -> None:
    url, token = await server.reached()
    is_typed = standard_input().isatty()
    screen = Screen(lambda text: click.echo(text, nl=False), prompt=_PROMPT if is_typed and sys.stdout.isatty() else "")
    session: ChatSession | None = None

    def on_connection(welcome: Welcome | None) -> None:
        if session is not None:
            session.on_connection(is_there=welcome is not None)

    async with TorporClient(url, token, on_connection=on_connection) as client:
        try:
            with anyio.fail_after(ANSWER_DEADLINE_S):
                await client.connected()
        except TimeoutError as exc:
            raise click.ClickException(f"{url} did not say welcome within {ANSWER_DEADLINE_S:g} s") from exc
        screen.note(f"conversation {conversation}; Ctrl-C cancels a turn, and leaves when none is running")
        session = ChatSession(client, conversation, agent=agent, screen=screen, echoes=not is_typed)
        async with client.watch(conversation) as watch:
            await session.run(watch, descriptor=sys.stdin.fileno())
