"""``torpor send``: one message, one turn, the reply on standard output; for scripts."""

import shlex
import sys
from pathlib import Path
from typing import Any, Final

import anyio
import click
import msgspec

from torpor.cli.attaching import attached, why_not
from torpor.cli.destination import Destination, destination
from torpor.cli.faults import CUT_SHORT, IS_CUT, asked_again, one_line, remedy
from torpor.cli.folders import where
from torpor.cli.output import json_option, print_json, program
from torpor.cli.paths import shortened
from torpor.cli.patience import Patience
from torpor.cli.remote import Server, server_options, standard_input, troubled
from torpor.cli.terminal import harmless
from torpor.cli.turn_watch import AnsweringTurn, Ending
from torpor.client.items import AnyItem, EventItem, ReloadItem
from torpor.client.torpor_client import TorporClient
from torpor.clock import RandomIds
from torpor.records.events import AnyEvent
from torpor.records.terms import Offer, WhenBusy

TURN_FAILED: Final = 3
TURN_CANCELLED: Final = 4
TURN_REFUSED: Final = 5
_EXIT_CODES: Final = {
    Ending.FAILED: TURN_FAILED,
    Ending.CANCELLED: TURN_CANCELLED,
    Ending.REFUSED: TURN_REFUSED,
}
_OF_A_FILE: Final = ("blob", "media_type", "size_bytes", "tokens", "name")
_OFFERED: Final = {
    Offer.CONTINUE: "has the reply go on where it was cut",
    Offer.RETRY: "has it tried again",
}


@click.command(short_help="Send one message and print the reply.")
@click.argument("text", default=None, required=False)
@click.option(
    "--conversation",
    metavar="ID",
    show_default="a new one",
    help="Where to, by any part from the end that is unique; made, as one of your own, when there is none.",
)
@click.option("--agent", default="", metavar="NAME", show_default="the home's", help="Of a conversation that is made.")
@click.option(
    "--when-busy",
    type=click.Choice([way.value for way in WhenBusy]),
    default=WhenBusy.QUEUE.value,
    show_default=True,
    help="What to do when a turn is running.",
)
@click.option(
    "--resume",
    type=click.Choice([offer.value for offer in Offer]),
    help="Take up what a failed turn offered; TEXT may be left out then.",
)
@click.option(
    "--lookback",
    type=click.IntRange(min=0, max=50),
    default=0,
    show_default=True,
    metavar="N",
    help="Exchanges from before what the model still sees that are quoted to it, for this message alone.",
)
@click.option(
    "--attach",
    "files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="A picture, a PDF, a text or a document to send along; may be given again. TEXT may be left out then.",
)
@click.option(
    "--timeout",
    "deadline_s",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the reply; the turn goes on without us.",
)
@click.option(
    "--reconnect",
    "outage_s",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to try again, within that time, when the server goes away.",
)
@click.option(
    "--message-id",
    metavar="ID",
    show_default="a new one",
    help="Of this message: sent again under its id, it stays one message.",
)
@server_options
@json_option
def command(
    *,
    text: str | None,
    conversation: str | None,
    agent: str,
    when_busy: str,
    resume: str | None,
    lookback: int,
    files: tuple[Path, ...],
    deadline_s: float,
    outage_s: float,
    message_id: str | None,
    server: Server,
    as_json: bool,
) -> int:
    """Send TEXT, wait for the turn that answers it, and print its last reply. TEXT - reads standard input.

    Standard error tells when a conversation is made or is somebody else's, and when the server goes and comes back.

    Exit codes: 0 replied, 3 the turn failed, 4 it was cancelled, 5 the model refused, 1
    anything else that went wrong, 2 used wrongly.
    """
    if text is None and resume is None and not files:
        raise click.UsageError("Missing argument 'TEXT'.")
    if text == "" and resume is None and not files:
        raise click.UsageError("the TEXT is empty, expected words, or - to read standard input.")
    if resume is not None and conversation is None:
        raise click.UsageError("--resume needs --conversation.")
    if message_id is not None and conversation is None:
        raise click.UsageError("--message-id needs --conversation.")
    message = standard_input().read() if text == "-" else text or ""
    name = conversation or f"c-{RandomIds().new_id()[:8]}"
    sending = _Sending(
        name,
        message,
        agent=agent,
        when_busy=WhenBusy(when_busy),
        resume=Offer(resume) if resume else None,
        lookback=lookback,
        message_id=message_id or RandomIds().new_id(),
        is_named=conversation is not None,
        files=files,
    )
    sending, turn = anyio.run(_answered, server, sending, deadline_s, outage_s)
    if as_json:
        print_json(_facts(sending, turn))
    else:
        _show(turn, _resending(server, sending.conversation))
    return _EXIT_CODES.get(turn.ending or Ending.FINISHED, 0)


class _Sending(msgspec.Struct, frozen=True):
    """What to send where."""

    conversation: str
    text: str
    agent: str = msgspec.field(default="")
    when_busy: WhenBusy = WhenBusy.QUEUE
    resume: Offer | None = None
    lookback: int = 0
    message_id: str = ""
    files: tuple[Path, ...] = ()
    attachments: tuple[dict[str, Any], ...] = ()
    """What the server has made of them."""
    is_named: bool = True
    """Whether somebody has said which conversation; else its name is a new one."""


async def _answered(
    server: Server, sending: _Sending, deadline_s: float, outage_s: float
) -> tuple[_Sending, AnsweringTurn]:
    """``sending`` as it went out, and what came of it."""
    url, token = await server.reached()
    patience = Patience(deadline_s=deadline_s, outage_s=outage_s, url=url, say=_say)
    accepted = anyio.Event()
    async with server.client(
        url, token, on_connection=patience.on_connection, on_put_off=patience.on_put_off
    ) as client:
        with patience:
            place = Destination(sending.conversation, is_new=True)
            if sending.is_named:
                place = await destination(client, sending.conversation)
                if place.name != sending.conversation:
                    _say(f"this is {shortened(place.name)}")
                sending = msgspec.structs.replace(sending, conversation=place.name)
            sending = await _with_files(client, sending)
            return sending, await _turn_of(client, sending, accepted, is_new=place.is_new)
    raise click.ClickException(_unanswered(server, sending, _silence(patience, client), is_accepted=accepted.is_set()))


def _silence(patience: Patience, client: TorporClient) -> str:
    return f"{patience.ran_out}{troubled(client, before=', ')}"


def _unanswered(server: Server, sending: _Sending, silence: str, *, is_accepted: bool) -> str:
    """What became of the message as far as is known, and how to find out more. Args: silence: behind "no reply"."""
    name = sending.conversation
    if is_accepted:
        look = f"`{program()} chat --conversation {name}{where(server.home)}` shows the reply later"
        return f"no reply {silence}; the message was accepted and its turn goes on, {look}"
    again = f"`{_resending(server, name)} --message-id {sending.message_id} TEXT` sends it again, as one message"
    return f"no reply {silence}; the message was not acknowledged, it may have arrived or not: {again}"


async def _with_files(client: TorporClient, sending: _Sending) -> _Sending:
    """Raises: click.ClickException: before any was uploaded, if the message cannot have them."""
    if sending.files and (why := why_not(await client.connected(), sending.conversation, files=len(sending.files))):
        raise click.ClickException(f"cannot attach {sending.files[0]}: {why}")
    rows = tuple([await attached(client, file, say=_say) for file in sending.files])
    return msgspec.structs.replace(sending, attachments=rows)


async def _turn_of(client: TorporClient, sending: _Sending, accepted: anyio.Event, *, is_new: bool) -> AnsweringTurn:
    """Watch, send, and follow the turn that takes the message; sets ``accepted`` when it is."""
    name = sending.conversation
    steers = sending.when_busy is WhenBusy.STEER
    async with client.watch(name) as watch:
        first = await anext(watch)  # from here on nothing is missed
        receipt = await client.send(
            name,
            sending.text,
            message_id=sending.message_id,
            when_busy=sending.when_busy,
            agent=sending.agent,
            resume=sending.resume,
            lookback=sending.lookback,
            attachments=[row["attachment"] for row in sending.attachments],
        )
        accepted.set()
        if is_new:
            _say(f"new conversation {name}")
        turn = AnsweringTurn(sending.message_id, accepted_at=receipt.event, steers=steers)
        turn.take(_events(first))  # where an earlier attempt under the same id was answered already
        while turn.ending is None:
            known = len(turn.waits)
            turn.take(_events(await anext(watch)))
            for wait in filter(None, map(asked_again, turn.waits[known:])):
                _say(wait)
    if not turn.is_certain:
        await _settle(client, name, turn)
    return turn


def _say(line: str) -> None:
    click.echo(f"torpor: {line}", err=True)


async def _settle(client: TorporClient, name: str, turn: AnsweringTurn) -> None:
    """The turn that ran has ended. A steer that came too late for it is taken by the next one, in the same commit."""
    async with client.watch(name) as watch:
        async for item in watch:
            turn.take(_events(item))
            if turn.ending is not None:
                return


def _events(item: AnyItem) -> tuple[AnyEvent, ...]:
    match item:
        case EventItem():
            return (item.event,)
        case ReloadItem():
            return item.events
        case _:
            return ()


def _facts(sending: _Sending, turn: AnsweringTurn) -> dict[str, Any]:
    return {
        "conversation": sending.conversation,
        "message_id": sending.message_id,
        "turn": turn.turn,
        "outcome": turn.ending,
        "text": turn.text,
        "tools": turn.tools,
        "code": turn.code,
        "detail": turn.detail,
        "stop_reason": turn.stop_reason,
        "offers": turn.offers,
        "attachments": [{name: row.get(name, "") for name in _OF_A_FILE} for row in sending.attachments],
    }


def _resending(server: Server, name: str) -> str:
    """The command that sends to the conversation ``name`` again, up to its own options."""
    url = f" --url {shlex.quote(server.url)}" if server.url else ""
    return f"{program()} send --conversation {shlex.quote(name)}{where(server.home)}{url}"


def _show(turn: AnsweringTurn, again: str) -> None:
    """Args: again: as ``_resending`` gives it."""
    if turn.text:
        click.echo(harmless(turn.text) if sys.stdout.isatty() else turn.text)
    match turn.ending:
        case Ending.CANCELLED:
            _say(f"turn {turn.turn} was cancelled ({turn.detail})")
        case Ending.FAILED:
            _say(f"turn {turn.turn} failed, {turn.code}: {one_line(turn.detail)}")
            if told := remedy(turn.code, program=program()):
                _say(told)
            for offer in turn.offers:
                _say(f"`{again} --resume {offer}` {_OFFERED[offer]}")
        case Ending.REFUSED:
            _say(f"turn {turn.turn} was refused: {turn.detail}")
        case Ending.FINISHED if turn.stop_reason in CUT_SHORT:
            _say(IS_CUT)
        case _:
            pass
